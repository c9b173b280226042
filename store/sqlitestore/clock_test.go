package sqlitestore

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/storetest"
)

// Processes whose clocks differ have one clock as soon as they have heard of each other:
// each takes over what another one left a TTL after that was silent, not an hour later.
func TestClocksOfProcesses(t *testing.T) {
	const ttl = 10 * time.Second
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spool.db")
			right, wrong := storetest.NewClock(), storetest.NewClock()
			wrong.Advance(skew)
			a := mustOpen(t, path, &Options{Now: right.Now}, "boot")
			b := mustOpen(t, path, &Options{Now: wrong.Now}, "boot")
			defer a.Close()
			defer b.Close()
			pass := func(d time.Duration) {
				right.Advance(d)
				wrong.Advance(d)
			}
			ctx := t.Context()
			message := func(s *Store) {
				t.Helper()
				if _, err := s.Append(ctx, spool.Append{Session: "s", Row: spool.Row{Status: chunk.StatusActive},
					Records: []chunk.Record{{Type: chunk.TypeUserMessage, Class: chunk.Kept, Data: []byte(`{}`)}}}); err != nil {
					t.Fatal(err)
				}
			}
			claim := func(s *Store, owner string) {
				t.Helper()
				if err := s.AwaitDue(ctx, spool.Claim{Owner: owner}); err != nil {
					t.Fatal(err)
				}
				if l, err := s.Claim(ctx, spool.Claim{Owner: owner, TTL: ttl}); err != nil || l.Head.Due > l.Now {
					t.Fatalf("%s: %+v, %v", owner, l, err)
				}
			}
			message(a)
			message(b) // now they have heard of each other
			claim(a, "a")
			for _, s := range []*Store{b, a} {
				for range 2 {
					if _, err := s.Claim(ctx, spool.Claim{Owner: "early", TTL: ttl}); !errors.Is(err, spool.ErrNothingDue) {
						t.Fatalf("a lease was taken from its owner: %v", err)
					}
					pass(ttl/4 - time.Millisecond)
				}
			}
			pass(ttl)
			claim(b, "b")
			message(a)
			pass(ttl)
			claim(a, "a")
		})
	}
}
