package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// long returns a name of n bytes that begins with label.
func long(label string, n int) string { return label + strings.Repeat("é", (n-len(label))/2) }

// Promise: every field takes what the contract allows, and nothing else.
var boundsChecks = []check{
	{"LongestFields", func(t *testing.T, x *suite) {
		s := x.open(t)
		const n = contract.MaxName
		session, row := long("se", n), spool.Row{Agent: long("ag", n), Principal: long("pr", n), Title: long("ti", contract.MaxTitle)}
		agents := make([]string, contract.MaxAgents)
		for i := range agents {
			agents[i] = long(fmt.Sprintf("%04d", i), n)
		}
		agents[len(agents)-1] = row.Agent
		r := rec(chunk.Kept, "x")
		r.Type, r.Agent = chunk.Type(long("ty", n)), long("re", n)
		put(t, s, spool.Append{Session: session, Row: row, Records: []chunk.Record{r}})
		c := spool.Claim{ID: long("id", n), Owner: long("ow", n), Agents: agents, Principal: row.Principal}
		l := mustClaim(t, s, c)
		if again := mustClaim(t, s, c); l.Session != session || l.Row.Title != row.Title || again.Epoch != l.Epoch {
			t.Fatalf("claimed %+v, and again %+v", l, again)
		}
		a := spool.Append{Session: session, Epoch: l.Epoch, Writer: long("wr", n), Ordinal: 1, Records: []chunk.Record{r}}
		put(t, s, a)
		if !put(t, s, a).Repeated {
			t.Fatal("the longest name of a writer is not known again")
		}
		got := log(t, s, session, 0, 10)
		if len(got) != 2 || got[1].Type != r.Type || got[1].Agent != r.Agent {
			t.Fatalf("records %+v", got)
		}
		if lister, ok := s.(spool.Lister); ok {
			if list := wantListed(t, lister, spool.SessionQuery{Principal: row.Principal, Max: 1}, session); list[0].Row != l.Row {
				t.Fatalf("listed %+v", list)
			}
		}
		if folds, ok := s.(spool.FoldStore); ok {
			name, f := long("fo", n), spool.SavedFold{Version: 1, Seq: 1, Data: bytes.Repeat([]byte("0123456789abcdef"), contract.MaxFold/16)}
			if err := folds.SaveFold(limit(t), session, name, f); err != nil {
				t.Fatal(err)
			}
			if got, err := folds.LoadFold(limit(t), session, name); err != nil || !bytes.Equal(got.Data, f.Data) {
				t.Fatalf("a fold of %d bytes, %v", len(got.Data), err)
			}
		}
		if blobs, ok := s.(spool.BlobStore); ok {
			hash, data := long("ha", n), bytes.Repeat([]byte("fedcba9876543210"), contract.MaxBlob/16)
			if err := blobs.PutBlob(limit(t), session, hash, data); err != nil {
				t.Fatal(err)
			}
			if got, err := blobs.GetBlob(limit(t), session, hash); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("a blob of %d bytes, %v", len(got), err)
			}
		}
	}},
	{"FieldsBeyondTheLimits", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		was := head(t, s, "s")
		record := func(r chunk.Record) spool.Append {
			r.Data, r.Class = []byte("{}"), chunk.Kept
			return spool.Append{Session: "s", Records: []chunk.Record{r}}
		}
		row := func(r spool.Row) spool.Append {
			a := record(chunk.Record{Type: "x"})
			a.Row = r
			return a
		}
		for _, bad := range []struct {
			name string
			most int
			call func(text string) error
		}{
			{"session", contract.MaxName, func(text string) error {
				return tried(t, s, spool.Append{Session: text, Records: recs(chunk.Kept, "x", 1)})
			}},
			{"type of a record", contract.MaxName, func(text string) error { return tried(t, s, record(chunk.Record{Type: chunk.Type(text)})) }},
			{"agent of a record", contract.MaxName, func(text string) error { return tried(t, s, record(chunk.Record{Type: "x", Agent: text})) }},
			{"agent type", contract.MaxName, func(text string) error { return tried(t, s, row(spool.Row{Agent: text})) }},
			{"principal", contract.MaxName, func(text string) error { return tried(t, s, row(spool.Row{Principal: text})) }},
			{"title", contract.MaxTitle, func(text string) error { return tried(t, s, row(spool.Row{Title: text})) }},
			{"writer", contract.MaxName, func(text string) error {
				return tried(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Writer: text, Ordinal: 1})
			}},
			{"claim", contract.MaxName, func(text string) error {
				_, err := claim(t, s, spool.Claim{ID: text, Session: "s", Force: true})
				return err
			}},
			{"owner", contract.MaxName, func(text string) error {
				_, err := claim(t, s, spool.Claim{Owner: text, Session: "s", Force: true})
				return err
			}},
			{"claimed session", contract.MaxName, func(text string) error {
				_, err := claim(t, s, spool.Claim{Session: text, Force: true})
				return err
			}},
			{"agent type of a claim", contract.MaxName, func(text string) error {
				_, err := claim(t, s, spool.Claim{Agents: []string{text}})
				return err
			}},
			{"principal of a claim", contract.MaxName, func(text string) error {
				_, err := claim(t, s, spool.Claim{Session: "s", Force: true, Principal: text})
				return err
			}},
		} {
			for text, want := range map[string]error{long("é", bad.most) + "éé": chunk.ErrTooLarge, "a\x00b": chunk.ErrInvalid, "a\xffb": chunk.ErrInvalid} {
				err := bad.call(text)
				if err == nil {
					t.Fatalf("%s: %.20q is accepted", bad.name, text)
				}
				wantErr(t, err, want)
			}
		}
		_, err := claim(t, s, spool.Claim{Agents: make([]string, contract.MaxAgents+1)})
		wantErr(t, err, chunk.ErrTooLarge)
		if h := head(t, s, "s"); h != was {
			t.Fatalf("the head was %+v and is %+v", was, h)
		}
	}},
	{"WritersOfAnEpoch", func(t *testing.T, x *suite) {
		s := x.open(t)
		l := own(t, s, "s", "o")
		numbered := func(writer int, ordinal uint64) spool.Append {
			return spool.Append{Session: "s", Epoch: l.Epoch, Writer: fmt.Sprint(writer), Ordinal: ordinal, Records: recs(chunk.Trace, "x", 1)}
		}
		for i := range contract.MaxWriters {
			put(t, s, numbered(i, 1))
		}
		was := head(t, s, "s")
		wantErr(t, tried(t, s, numbered(-1, 1)), chunk.ErrTooLarge)
		if h := head(t, s, "s"); h != was {
			t.Fatalf("the head was %+v and is %+v", was, h)
		}
		put(t, s, numbered(7, 2))
		if !put(t, s, numbered(contract.MaxWriters-1, 1)).Repeated {
			t.Fatal("a repeat was stored again")
		}
		a := numbered(-1, 0) // needs no place
		put(t, s, a)
		l = own(t, s, "s", "o2")
		put(t, s, numbered(-1, 1))
	}},
	{"BlobsBeyondTheLimits", with(func(t *testing.T, x *suite, s spool.Store, r spool.BlobStore) {
		wantErr(t, r.PutBlob(limit(t), "s", "sha256:x", make([]byte, contract.MaxBlob+1)), chunk.ErrTooLarge)
		wantErr(t, r.PutBlob(limit(t), "s", strings.Repeat("x", contract.MaxName+1), nil), chunk.ErrTooLarge)
		wantErr(t, r.PutBlob(limit(t), "s", "", nil), chunk.ErrInvalid)
	})},
	{"FoldsBeyondTheLimits", with(func(t *testing.T, x *suite, s spool.Store, r spool.FoldStore) {
		command(t, s, "s", "x")
		wantErr(t, r.SaveFold(limit(t), "s", "main", spool.SavedFold{Data: make([]byte, contract.MaxFold+1)}), chunk.ErrTooLarge)
		wantErr(t, r.SaveFold(limit(t), "s", strings.Repeat("x", contract.MaxName+1), spool.SavedFold{}), chunk.ErrTooLarge)
		wantErr(t, r.SaveFold(limit(t), "s", "a\x00b", spool.SavedFold{}), chunk.ErrInvalid)
	})},
}

// tried appends and returns the error.
func tried(t testing.TB, s spool.Store, a spool.Append) error {
	t.Helper()
	_, err := s.Append(limit(t), a)
	return err
}
