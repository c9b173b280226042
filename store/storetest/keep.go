package storetest

import (
	"bytes"
	"testing"

	"github.com/spool-run/spool"
)

// Promise: blobs and saved folds are kept beside the log and go with it.
var keepChecks = []check{
	{"Blobs", with(func(t *testing.T, x *suite, s spool.Store, r spool.BlobStore) {
		large := make([]byte, 5<<20)
		for i := range large {
			large[i] = byte(i * i >> 7)
		}
		blobs := map[string][]byte{
			"sha256:large": large,
			"sha256:small": []byte(`"x"`),
			"sha256:zeros": make([]byte, 1000),
		}
		for hash, data := range blobs { // before the session exists
			for range 2 {
				if err := r.PutBlob(limit(t), "s", hash, data); err != nil {
					t.Fatalf("PutBlob(%s): %v", hash, err)
				}
			}
		}
		command(t, s, "s", "names them")
		for hash, data := range blobs {
			got, err := r.GetBlob(limit(t), "s", hash)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("GetBlob(%s): %d bytes, %v", hash, len(got), err)
			}
			_, err = r.GetBlob(limit(t), "other", hash)
			wantErr(t, err, spool.ErrNotFound)
		}
		_, err := r.GetBlob(limit(t), "s", "sha256:unknown")
		wantErr(t, err, spool.ErrNotFound)
		if trimmer, ok := s.(spool.Trimmer); ok {
			if err := trimmer.Delete(limit(t), "s"); err != nil {
				t.Fatal(err)
			}
			_, err := r.GetBlob(limit(t), "s", "sha256:small")
			wantErr(t, err, spool.ErrNotFound)
			command(t, s, "s", "again")
			_, err = r.GetBlob(limit(t), "s", "sha256:small")
			wantErr(t, err, spool.ErrNotFound)
		}
	})},
	{"Probe", with(func(t *testing.T, x *suite, s spool.Store, r spool.Prober) {
		if err := r.Probe(limit(t)); err != nil { // of an empty store
			t.Fatal(err)
		}
		res := command(t, s, "s", "c")
		for range 3 {
			if err := r.Probe(limit(t)); err != nil {
				t.Fatal(err)
			}
		}
		if h, err := s.Head(limit(t), "s"); err != nil || h != res.Head {
			t.Fatalf("the head was %+v and is %+v, %v", res.Head, h, err)
		}
		if lister, ok := s.(spool.Lister); ok {
			wantListed(t, lister, spool.SessionQuery{}, "s")
		}
	})},
	{"SavedFolds", with(func(t *testing.T, x *suite, s spool.Store, r spool.FoldStore) {
		wantErr(t, r.SaveFold(limit(t), "s", "main", spool.SavedFold{Data: []byte("x")}), spool.ErrNotFound)
		_, err := r.LoadFold(limit(t), "s", "main")
		wantErr(t, err, spool.ErrNotFound)
		command(t, s, "s", "c")
		folds := map[string]spool.SavedFold{
			"main": {Version: 3, Incarnation: 1, Seq: 1, Data: []byte(`{"a":1}`)},
			"é/🎈":  {Version: 1, Incarnation: 1, Seq: 0, Data: bytes.Repeat([]byte("0123456789"), 100_000)},
		}
		for round := range 2 {
			for name, f := range folds {
				f.Seq += uint64(round)
				if err := r.SaveFold(limit(t), "s", name, f); err != nil {
					t.Fatalf("SaveFold(%s): %v", name, err)
				}
				got, err := r.LoadFold(limit(t), "s", name)
				if err != nil || got.Version != f.Version || got.Incarnation != f.Incarnation || got.Seq != f.Seq || !bytes.Equal(got.Data, f.Data) {
					t.Fatalf("LoadFold(%s): version %d, seq %d, %d bytes, %v", name, got.Version, got.Seq, len(got.Data), err)
				}
			}
		}
		_, err = r.LoadFold(limit(t), "s", "other")
		wantErr(t, err, spool.ErrNotFound)
		if trimmer, ok := s.(spool.Trimmer); ok {
			if err := trimmer.Delete(limit(t), "s"); err != nil {
				t.Fatal(err)
			}
			command(t, s, "s", "again")
			_, err = r.LoadFold(limit(t), "s", "main")
			wantErr(t, err, spool.ErrNotFound)
		}
	})},
}
