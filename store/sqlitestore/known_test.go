package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// counted counts the appends that reach a store.
type counted struct {
	*Store
	appends int
}

func (c *counted) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	c.appends++
	return c.Store.Append(ctx, a)
}

// pragma sets something on the writing connection.
func pragma(t *testing.T, s *Store, text string) {
	t.Helper()
	r := &request{ctx: t.Context(), done: make(chan struct{}), fn: func(tx *tx) error {
		return tx.c.query(func([]driver.Value) error { return nil }, "PRAGMA "+text)
	}}
	s.w.queue <- r
	if <-r.done; r.err != nil {
		t.Fatal(r.err)
	}
}

// The store knows that a full, read-only, damaged or deleted file took nothing. The caller
// learns it at once, with what to do about it, and a probe says the same.
func TestFailuresAreKnown(t *testing.T) {
	for _, test := range []struct {
		name, want string
		make       func(t *testing.T, path string) (s *Store, mend func())
	}{
		{"full", "the disk is full", func(t *testing.T, path string) (*Store, func()) {
			s := mustOpen(t, path, nil, "boot")
			put(t, s, "before")
			pragma(t, s, "max_page_count = 1") // SQLite takes the present size instead
			return s, func() { pragma(t, s, "max_page_count = 1000000") }
		}},
		{"read-only", "cannot be written", func(t *testing.T, path string) (*Store, func()) {
			s := mustOpen(t, path, nil, "boot")
			put(t, s, "before")
			pragma(t, s, "query_only = ON")
			return s, func() { _ = s.w.c.script("PRAGMA query_only = OFF") }
		}},
		{"damaged", "damaged", func(t *testing.T, path string) (*Store, func()) {
			s := mustOpen(t, path, nil, "boot")
			put(t, s, "before")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			page, err := strconv.ParseInt(sqlite3(t, path, "SELECT rootpage FROM sqlite_master WHERE name = 'record'"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte(strings.Repeat("\xff", 4096)), (page-1)*4096)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			return mustOpen(t, path, nil, "boot"), nil
		}},
		{"deleted", "deleted or replaced", func(t *testing.T, path string) (*Store, func()) {
			s := mustOpen(t, path, nil, "boot")
			put(t, s, "before")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			return s, nil
		}},
		{"write-ahead log deleted", "-wal file was deleted", nil},
		{"index deleted", "-shm file was deleted", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spool.db")
			if test.make == nil {
				test.make = func(t *testing.T, path string) (*Store, func()) {
					s := mustOpen(t, path, nil, "boot")
					put(t, s, "before")
					if err := os.Remove(path + test.want[:4]); err != nil {
						t.Fatal(err)
					}
					return s, nil
				}
			}
			s, mend := test.make(t, path)
			store := &counted{Store: s}
			logs := spool.NewLogs(store, nil)
			defer logs.Close()
			g, err := logs.Log("s")
			if err != nil {
				t.Fatal(err)
			}
			big := &chunk.UserMessage{CommandID: "c", Message: chunk.Message{ID: "c", Role: chunk.RoleUser}}
			for range 60 {
				big.Message.Parts = append(big.Message.Parts, chunk.Part{Type: chunk.PartText, Text: strings.Repeat("x", 1000)})
			}
			_, err = g.Command(t.Context(), spool.Row{}, big)
			known, ok := errors.AsType[*chunk.Error](err)
			if !ok || !errors.Is(err, spool.ErrNotStored) || !errors.Is(err, spool.ErrUnavailable) || !strings.Contains(known.Message, test.want) || known.Hint == "" {
				t.Fatalf("%v, hint %q; want one that says %q", err, known.Hint, test.want)
			}
			if store.appends != 1 {
				t.Errorf("the append was tried %d times", store.appends)
			}
			if test.name != "full" && test.name != "damaged" { // which a small write need not meet
				if err := s.Probe(t.Context()); !errors.Is(err, spool.ErrNotStored) || !strings.Contains(fmt.Sprint(err), test.want) {
					t.Errorf("probe: %v", err)
				}
			}
			if mend == nil {
				return
			}
			mend()
			if err := s.Probe(t.Context()); err != nil {
				t.Errorf("a probe afterwards: %v", err)
			}
			if res, err := g.Command(t.Context(), spool.Row{}, big); err != nil || res.First != 2 {
				t.Errorf("the append afterwards: %+v, %v", res, err)
			}
		})
	}
}

// Records that were acknowledged into a write-ahead log which was then deleted are brought
// into the database, where the next start finds them.
func TestDeletedWALIsRescued(t *testing.T) {
	for _, closed := range []bool{false, true} { // noticed by a write, or by the end
		path := filepath.Join(t.TempDir(), "spool.db")
		s := mustOpen(t, path, nil, "boot")
		for range 10 {
			put(t, s, "acknowledged")
		}
		if err := os.Remove(path + "-wal"); err != nil {
			t.Fatal(err)
		}
		if !closed {
			if err := append1(t.Context(), s); !errors.Is(err, spool.ErrNotStored) {
				t.Fatal(err)
			}
		}
		if err := s.Close(); !errors.Is(err, spool.ErrUnavailable) {
			t.Fatal(err)
		}
		s = mustOpen(t, path, nil, "boot")
		if h, err := s.Head(t.Context(), "s"); err != nil || h.Seq != 10 {
			t.Errorf("the next start finds %+v, %v", h, err)
		}
		put(t, s, "more")
	}
}

// A probe writes to the disk each time.
func TestProbeWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	s := mustOpen(t, path, nil, "boot")
	size := func() int64 {
		i, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return i.Size()
	}
	for range 3 {
		before := size()
		if err := s.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if size() == before {
			t.Error("a probe wrote nothing")
		}
	}
}
