//go:build nodes

package pgstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
)

// Behind a pooler in session mode everything works, notifications too. In transaction mode
// the store refuses to open, and says why.
func TestPoolers(t *testing.T) {
	server := engines.Postgres(t)
	t.Run("session", func(t *testing.T) {
		address := engines.PostgresURL(engines.PgBouncer(t, server, "session").Addr())
		s, err := Open(t.Context(), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		other, err := Open(t.Context(), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		a := newAppender(t, s, "s")
		seen, err := other.Head(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := a.append(t.Context()); err != nil {
				t.Fatal(err)
			}
			if seen, _, err = other.Wait(t.Context(), "s", seen); err != nil || seen.Seq != uint64(a.acked) {
				t.Fatalf("the other process waits for %d and gets %+v, %v", a.acked, seen, err)
			}
		}
		a.whole(t)
		if _, err := other.Claim(t.Context(), spool.Claim{Owner: "x", TTL: time.Minute}); !errors.Is(err, spool.ErrNothingDue) {
			t.Error(err)
		}
	})
	t.Run("transaction", func(t *testing.T) {
		_, err := Open(t.Context(), engines.PostgresURL(engines.PgBouncer(t, server, "transaction").Addr()), nil)
		known, ok := errors.AsType[*chunk.Error](err)
		if !ok || !errors.Is(err, chunk.ErrInvalid) || !strings.Contains(known.Message, "between transactions") || !strings.Contains(known.Hint, "session") {
			t.Errorf("%v", err)
		}
	})
}
