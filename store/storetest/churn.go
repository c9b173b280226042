package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// What the other process does in a "churn", one thing after the other: blobs and
// appends of three records, trims, deletions.
type churnOp int

const (
	churnPut churnOp = iota
	churnTrim
	churnDelete
)

func churnAt(n int) churnOp {
	switch n % 8 {
	case 0:
		return churnDelete
	case 3, 6:
		return churnTrim
	}
	return churnPut
}

func churnHash(round string, n int) string { return fmt.Sprintf("sha256:%s-%d", round, n) }

// churn goes on until it is killed, and reports what was acknowledged.
func churn(ctx context.Context, s spool.Store, round string) error {
	for n := 1; ; n++ {
		var err error
		switch churnAt(n) {
		case churnPut:
			if err = s.(spool.BlobStore).PutBlob(ctx, "s", churnHash(round, n), make([]byte, 100<<10)); err == nil {
				_, err = s.Append(ctx, spool.Append{Session: "s", Records: recs(chunk.Class(n%2), fmt.Sprint(round, "-", n), 3)})
			}
		case churnTrim:
			var h spool.Head
			if h, err = s.Head(ctx, "s"); err == nil {
				err = s.(spool.Trimmer).Trim(ctx, "s", h.Seq-1, h.Seq/2)
			}
		case churnDelete:
			err = s.(spool.Trimmer).Delete(ctx, "s")
		}
		if err != nil {
			return err
		}
		h, err := s.Head(ctx, "s")
		if err != nil && !errors.Is(err, spool.ErrNotFound) {
			return err
		}
		fmt.Println("acked", n, h.Incarnation, h.Seq)
	}
}

// Promise: whatever a process is killed in, what it had acknowledged is so, what
// it was doing is done or not, and nothing of a deleted log comes back.
var churnChecks = []check{
	{"KilledInAnything", apart(func(t *testing.T, x *suite, s spool.Store) {
		_, trims := s.(spool.Trimmer)
		blobs, keeps := s.(spool.BlobStore)
		if !trims || !keeps {
			return
		}
		for round, lines := range []int{3, 7, 8, 15, 24} {
			name := fmt.Sprint("round", round)
			c := x.start(t, s, "churn:"+name)
			var n int
			var was, h spool.Head
			for range lines {
				if _, err := fmt.Sscan(c.expect("acked"), &n, &was.Incarnation, &was.Seq); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for line := c.next(); line != ""; line = c.next() { // what it acknowledged before it died
				fmt.Sscanf(line, "acked %d %d %d", &n, &was.Incarnation, &was.Seq)
			}
			_ = c.cmd.Wait()
			if round%2 == 1 && x.Reopen != nil {
				s = x.Reopen(t, s)
				blobs = s.(spool.BlobStore)
			}
			h, err := s.Head(limit(t), "s")
			if err != nil && !errors.Is(err, spool.ErrNotFound) {
				t.Fatal(err)
			}
			done := h.Incarnation == was.Incarnation && h.Seq == was.Seq // it was not doing anything, or did not
			switch churnAt(n + 1) {
			case churnPut:
				done = done || was.Seq > 0 && h.Incarnation == was.Incarnation && h.Seq == was.Seq+3 || was.Seq == 0 && h.Seq == 3
			case churnDelete:
				done = done || h == spool.Head{}
			}
			if !done {
				t.Fatalf("%d was acknowledged with head %d of incarnation %d; found %+v", n, was.Seq, was.Incarnation, h)
			}
			if h.Seq > 0 {
				log(t, s, "s", h.TraceFloor, 2)
				keptLog(t, s, "s", h.Floor, 2)
			}
			deleted := n - n%8
			if h == (spool.Head{}) {
				deleted = n + 1
			}
			for i := 1; i <= n; i++ {
				if churnAt(i) != churnPut {
					continue
				}
				switch _, err := blobs.GetBlob(limit(t), "s", churnHash(name, i)); {
				case i > deleted && err != nil:
					t.Fatalf("the blob of %d, behind the deletion %d: %v", i, deleted, err)
				case i < deleted && !errors.Is(err, spool.ErrNotFound):
					t.Fatalf("the blob of %d outlived the deletion %d: %v", i, deleted, err)
				}
			}
		}
	})},
}
