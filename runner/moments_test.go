package runner_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/memstore"
)

// moment is what is left when a process dies: what is stored, and what its tools
// have done.
type moment struct {
	n      int  // the append that it dies at
	stored bool // that append is
	head   spool.Head
	at     time.Time
	store  *memstore.Store // a fork, only to be forked again
	done   map[string]int  // effects by call
	ids    []string        // their ids
}

func (m moment) String() string { return fmt.Sprintf("died at append %d (stored: %v)", m.n, m.stored) }

// goOn runs a test in a world as it was at that moment, where nobody is alive.
func (m moment) goOn(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(m.at))
		inWorldOf(t, m.store.Fork(nil), test)
	})
}

// witness is the store of a process that could die at any append: it notes each
// moment before one of them, and behind it.
type witness struct {
	*memstore.Store
	e *effects

	mu      sync.Mutex
	appends int
	moments []moment
}

func (s *witness) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if a.Epoch == 0 {
		return s.Store.Append(ctx, a)
	}
	s.mu.Lock() // the session's owner has one append under way at a time anyway
	defer s.mu.Unlock()
	s.appends++
	if err := s.note(ctx, a.Session, false); err != nil {
		return spool.Appended{}, err
	}
	res, err := s.Store.Append(ctx, a)
	if err == nil {
		err = s.note(ctx, a.Session, true)
	}
	return res, err
}

// note adds a moment, in the place of the one before if nothing has happened since:
// to die behind an append is to die before the next, if in between no tool has done
// anything and nobody else has appended anything.
func (s *witness) note(ctx context.Context, session string, stored bool) error {
	m := moment{n: s.appends, stored: stored, at: time.Now(), store: s.Store.Fork(nil)}
	m.done, m.ids = s.e.seen() // a tool may have done its work, and not yet have said so to anybody
	var err error
	if m.head, err = m.store.Head(ctx, session); err != nil {
		return err
	}
	if last := len(s.moments) - 1; last >= 0 && s.moments[last].head == m.head && maps.Equal(s.moments[last].done, m.done) {
		s.moments = s.moments[:last]
	}
	s.moments = append(s.moments, m)
	return nil
}

// lived lets a process live in peace and returns the moments at which it could have
// died, the first before its first append. It appends one record at a time. w is the
// world around it.
func lived(t *testing.T, live func(w, process *world, e *effects)) (moments []moment, appends int) {
	inWorld(t, func(w *world) {
		e := new(effects)
		s := &witness{Store: w.store.(*memstore.Store), e: e}
		live(w, w.on(s, "first"), e)
		synctest.Wait() // it has released the session
		s.mu.Lock()
		defer s.mu.Unlock()
		moments, appends = slices.Clip(s.moments), s.appends
	})
	return moments, appends
}
