package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// A fork is the store as after closing and opening it again: the suite finds
// everything there.
func TestForkHoldsEverything(t *testing.T) {
	storetest.Run(t, open, storetest.Options{
		Advance: func(s spool.Store, d time.Duration) { s.(clocked).clock.Advance(d) },
		Reopen: func(t testing.TB, s spool.Store) spool.Store {
			old := s.(clocked)
			fork := old.Fork(&memstore.Options{Now: old.clock.Now})
			if err := old.Close(); err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { _ = fork.Close() })
			return clocked{fork, old.clock}
		},
	})
}

// story is all that a store tells of a session.
func story(t *testing.T, s *memstore.Store, session string) string {
	t.Helper()
	var b strings.Builder
	head, err := s.Head(t.Context(), session)
	if err != nil {
		return err.Error()
	}
	info, err := s.Session(t.Context(), session)
	fmt.Fprintln(&b, head, info, err)
	all, _, err := s.Read(t.Context(), session, head.TraceFloor, 0)
	for _, r := range all {
		fmt.Fprintln(&b, r.Seq, r.Type, string(r.Data))
	}
	fmt.Fprintln(&b, err)
	kept, _, err := s.ReadKept(t.Context(), session, spool.KeptQuery{After: head.Floor})
	for _, r := range kept {
		fmt.Fprintln(&b, r.Seq, r.Type, string(r.Data))
	}
	fmt.Fprintln(&b, err)
	f, err := s.LoadFold(t.Context(), session, "f")
	fmt.Fprintf(&b, "%+v %v\n", f, err)
	for _, hash := range []string{"h1", "h2"} {
		data, err := s.GetBlob(t.Context(), session, hash)
		fmt.Fprintln(&b, string(data), err)
	}
	return b.String()
}

// What is done to one of two stores is not seen in the other, in either direction
// and whatever it is.
func TestForkIsIndependent(t *testing.T) {
	record := func(text string) chunk.Record {
		return chunk.Record{Type: "x", Agent: "s", Class: chunk.Kept, Data: []byte(`"` + text + `"`)}
	}
	for _, changed := range []string{"the original", "the fork"} {
		t.Run(changed+" is changed", func(t *testing.T) {
			now := time.Unix(1e9, 0)
			o := &memstore.Options{Now: func() time.Time { return now }}
			one := memstore.New(o)
			if _, err := one.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{record("a"), record("b"), record("c"), record("d")}}); err != nil {
				t.Fatal(err)
			}
			lease, err := one.Claim(t.Context(), spool.Claim{Owner: "owner", Session: "s"})
			if err != nil {
				t.Fatal(err)
			}
			write := func(s *memstore.Store, ordinal uint64, text string) spool.Appended {
				t.Helper()
				res, err := s.Append(t.Context(), spool.Append{Session: "s", Epoch: lease.Epoch, Writer: "w", Ordinal: ordinal, Records: []chunk.Record{record(text)},
					Row: spool.Row{Status: chunk.StatusActive, Title: text}})
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
			write(one, 1, "e") // now the lists have room for more
			err = errors.Join(one.PutBlob(t.Context(), "s", "h1", []byte("blob")),
				one.SaveFold(t.Context(), "s", "f", spool.SavedFold{Data: []byte("fold")}))
			if err != nil {
				t.Fatal(err)
			}
			two := one.Fork(o)
			if a, b := story(t, one, "s"), story(t, two, "s"); a != b {
				t.Fatalf("the fork says\n%s\nthe original\n%s", b, a)
			}
			other := two
			if changed == "the fork" {
				one, other = two, one
			}
			before := story(t, other, "s")
			write(one, 2, "f")
			err = errors.Join(one.PutBlob(t.Context(), "s", "h2", []byte("another")),
				one.SaveFold(t.Context(), "s", "f", spool.SavedFold{Data: []byte("another")}))
			if err != nil {
				t.Fatal(err)
			}
			if got := story(t, other, "s"); got != before {
				t.Errorf("it was\n%s\nand is\n%s", before, got)
			}
			mine := story(t, one, "s")
			if res := write(other, 2, "other"); res.Repeated || res.First != 6 {
				t.Errorf("the other's own append: %+v", res)
			}
			if res := write(other, 2, "other"); !res.Repeated || res.First != 6 {
				t.Errorf("the same again: %+v", res)
			}
			if got := story(t, one, "s"); got != mine {
				t.Errorf("it was\n%s\nand is\n%s", mine, got)
			}
			yours := story(t, other, "s")
			if err := one.Trim(t.Context(), "s", 2, 1); err != nil {
				t.Fatal(err)
			}
			if got := story(t, other, "s"); got != yours {
				t.Errorf("it was\n%s\nand is\n%s", yours, got)
			}
			// The lease and the agenda are each one's own, too.
			if err := one.Release(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Claim(t.Context(), spool.Claim{Owner: "next"}); !errors.Is(err, spool.ErrNothingDue) {
				t.Errorf("released here, claimed there: %v", err)
			}
			if l, err := one.Claim(t.Context(), spool.Claim{Owner: "next"}); err != nil || l.Epoch != lease.Epoch+1 {
				t.Errorf("%+v, %v", l, err)
			}
			if err := one.Renew(t.Context(), lease); !errors.Is(err, spool.ErrSuperseded) {
				t.Errorf("renewed after the next claim: %v", err)
			}
			if err := other.Renew(t.Context(), lease); err != nil {
				t.Errorf("the other's lease: %v", err)
			}
			if err := one.Delete(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Head(t.Context(), "s"); err != nil {
				t.Errorf("deleted here, gone there: %v", err)
			}
			if err := one.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Head(t.Context(), "s"); err != nil {
				t.Errorf("closed here, closed there: %v", err)
			}
		})
	}
}

// Who waits at the original hears of its changes and not of the fork's. A name that
// is only waited for is not in the fork.
func TestForkWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := memstore.New(nil)
		ctx, cancel := context.WithCancel(t.Context())
		woken := make(chan error, 1)
		go func() {
			_, _, err := one.Wait(ctx, "s", spool.Head{})
			woken <- err
		}()
		synctest.Wait()
		two := one.Fork(nil)
		if _, err := two.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "x", Data: []byte(`{}`)}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-woken:
			t.Fatalf("woken by the fork: %v", err)
		default:
		}
		cancel()
		if err := <-woken; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := one.Head(t.Context(), "s"); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("the original has it too: %v", err)
		}
	})
}

// A fork of a bubble's store goes on in another bubble, and a lease there expires
// when it would have.
func TestForkInAnotherBubble(t *testing.T) {
	var frozen *memstore.Store
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(nil)
		l, err := s.Claim(t.Context(), spool.Claim{Owner: "a", Session: "s", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), spool.Append{Session: "s", Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive, Agent: "x"}}); err != nil {
			t.Fatal(err)
		}
		frozen = s.Fork(nil)
	})
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			s := frozen.Fork(nil)
			start := time.Now()
			if err := s.AwaitDue(t.Context(), spool.Claim{Owner: "b", Agents: []string{"x"}}); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d != spool.DefaultLeaseTTL {
				t.Fatalf("woke after %v", d)
			}
			if _, err := s.Claim(t.Context(), spool.Claim{Owner: "b", Agents: []string{"x"}}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A store that is raised refuses the owners of before, lets the next ones claim at once,
// and gives no session an incarnation or epoch again, not even one that is new to it.
func TestRaise(t *testing.T) {
	s := memstore.New(nil)
	ctx := t.Context()
	claim := func(s *memstore.Store, c spool.Claim) spool.Lease {
		t.Helper()
		l, err := s.Claim(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	force := func(s *memstore.Store, id string) spool.Lease {
		return claim(s, spool.Claim{Owner: "o", Session: id, Force: true})
	}
	for _, id := range []string{"deleted", "open"} {
		l := force(s, id)
		if _, err := s.Append(ctx, spool.Append{Session: id, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(ctx, "deleted"); err != nil {
		t.Fatal(err)
	}
	was := s.Fork(nil)
	given := map[string]spool.Lease{}
	for _, id := range []string{"deleted", "open", "later"} {
		for range 3 {
			given[id] = force(s, id)
		}
	}
	was.Raise()
	again := was.Fork(nil)
	again.Raise()
	for _, s := range []*memstore.Store{was, again} {
		if _, err := s.Append(ctx, spool.Append{Session: "open", Epoch: given["open"].Epoch}); !errors.Is(err, spool.ErrSuperseded) {
			t.Errorf("an owner from before: %v", err)
		}
		if l := claim(s, spool.Claim{Owner: "next"}); l.Session != "open" || l.Epoch <= given["open"].Epoch {
			t.Errorf("the next owner: %+v", l)
		}
		for id, l := range given {
			next := force(s, id)
			if next.Epoch <= l.Epoch || next.Head.Incarnation <= l.Head.Incarnation {
				t.Errorf("%s: %+v after %+v", id, next.Head, l.Head)
			}
			given[id] = next
		}
	}
}

// rewound is a store whose engine can be set back to a fork of it.
type rewound struct {
	*storetest.Rewound
	engine *memstore.Store
	clock  *storetest.Clock
}

// A fork that is raised is what an engine must be that has lost records: the suite sets
// stores back to it while they are used, and cuts their connections.
func TestRewoundStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) spool.Store {
		c := open(t).(clocked)
		return &rewound{storetest.NewRewound(c.Store), c.Store, c.clock}
	}, storetest.Options{
		Advance: func(s spool.Store, d time.Duration) { s.(*rewound).clock.Advance(d) },
		Rewind: func(t testing.TB, s spool.Store) func() {
			r := s.(*rewound)
			early := r.engine.Fork(&memstore.Options{Now: r.clock.Now})
			t.Cleanup(func() { _ = early.Close() })
			return func() {
				early.Raise()
				r.engine = early
				r.Set(early)
			}
		},
		Break:   func(_ testing.TB, s spool.Store) func() { return s.(*rewound).Cut() },
		Another: func(_ testing.TB, s spool.Store) spool.Store { return s },
		Again:   true,
	})
}
