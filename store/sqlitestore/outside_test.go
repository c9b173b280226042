package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

func append1(ctx context.Context, s *Store) error {
	_, err := s.Append(ctx, spool.Append{Session: "s", Records: []chunk.Record{{Type: "user_message", Data: []byte(`{"type":"user_message"}`)}}})
	return err
}

// A file that is deleted or replaced while it is open takes nothing more: what
// would be acknowledged would be in a file without a name. Nothing is made in
// its place, and what was put there is left alone.
func TestFileTakenAway(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		t.Run(fmt.Sprint("replaced ", replaced), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spool.db")
			s := mustOpen(t, path, nil, "boot")
			put(t, s, "before")
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(path + suffix); err != nil {
					t.Fatal(err)
				}
			}
			if replaced {
				put(t, mustOpen(t, path, nil, "boot"), "another")
			}
			_, head := s.Head(t.Context(), "s")
			for what, err := range map[string]error{"append": append1(t.Context(), s), "head": head, "close": s.Close()} {
				if !errors.Is(err, spool.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "deleted or replaced") {
					t.Errorf("%s: %v", what, err)
				}
			}
			for _, suffix := range []string{"", "-wal"} {
				if _, err := os.Stat(path + suffix); (err == nil) != replaced {
					t.Errorf("afterwards %s: %v", suffix, err)
				}
			}
		})
	}
}

// Who keeps a transaction open holds up appends, each as long as its caller
// waits, and neither reads nor the end of the store.
func TestLockedByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	s := mustOpen(t, path, nil, "boot")
	put(t, s, "before")
	other, err := dial(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.script("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	ask := func(ctx context.Context) *request {
		r := &request{ctx: ctx, weight: 1, fn: func(*tx) error { return nil }, done: make(chan struct{})}
		s.w.queue <- r
		return r
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := ask(ctx)
	cancel()
	<-gone.done
	waiting := ask(t.Context())
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-waiting.done
	if err := translate(waiting.err); !errors.Is(err, spool.ErrUnavailable) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("who waited: %v", err)
	}
	if err := other.script("ROLLBACK"); err != nil {
		t.Error(err)
	}
	if err := other.close(); err != nil {
		t.Error(err)
	}
	s = mustOpen(t, path, nil, "boot")
	if h, err := s.Head(t.Context(), "s"); err != nil || h.Seq != 1 {
		t.Errorf("head %+v, %v", h, err)
	}
}

// leaving is a caller who is gone once it was asked so many times.
type leaving struct {
	context.Context
	left atomic.Int64
}

func (l *leaving) Err() error {
	if l.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A deletion whose caller leaves is one, and takes everything with it all the
// same, not only at the next open.
func TestDeletionWhoseCallerLeaves(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "spool.db"), nil, "boot")
	put(t, s, "private")
	ctx := &leaving{Context: t.Context()}
	ctx.left.Store(2) // asked before and in the transaction that deletes
	if err := s.Delete(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if ctx.left.Load() >= 0 {
		t.Fatal("the caller is still there")
	}
	for left := int64(1); left > 0; {
		if err := s.read(t.Context(), func(c *conn) (err error) {
			left, err = c.number("SELECT (SELECT count(*) FROM garbage) + (SELECT count(*) FROM record)")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesAreTheirUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	put(t, mustOpen(t, path, nil, "boot"), "private")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if i, err := os.Stat(path + suffix); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("spool.db%s: %v, %v", suffix, i.Mode(), err)
		}
	}
}
