//go:build nodes

package pgstore

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/contract"
)

// Pages of logs, and what can be claimed, are read from an index in its order, also where the
// server knows nothing of the tables yet: so a page costs what is in it. Listings are read from
// their index; a few rows may be sorted.
func TestPlans(t *testing.T) {
	server := engines.Postgres(t, "-c", "autovacuum=off")
	s, err := Open(t.Context(), engines.PostgresURL(server.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 5 {
		if _, err := s.Append(t.Context(), spool.Append{Session: "s", Records: deltas(1000), Row: spool.Row{Principal: "p"}}); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(sql string, args ...any) string {
		t.Helper()
		var lines []string
		if err := s.read(t.Context(), func(_ context.Context, c *pgx.Conn) error {
			rows, err := c.Query(t.Context(), "EXPLAIN "+sql, append([]any{pgx.QueryExecModeExec}, args...)...)
			if err == nil {
				lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return strings.Join(lines, "\n")
	}
	const listings = "a listing"
	check := func(what, index, plan string) {
		t.Helper()
		sorts := strings.Contains(plan, "Sort  (") && what != listings
		if !strings.Contains(plan, "using "+index) || strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Bitmap") || sorts {
			t.Errorf("%s is not read from %s in its order:\n%s", what, index, plan)
		}
	}
	check("a page", "record_pkey", plan(readAll, "s", 2000, 1000, spool.MaxReadBytes))
	check("a kept page", "record_kept", plan(readKept, "s", 2000, 1000, spool.MaxReadBytes))
	back := plan(readBack, "s", int64(math.MaxInt64), 1000, spool.MaxReadBytes)
	if !strings.Contains(back, "Index Scan Backward using record_kept") {
		t.Errorf("a page backwards:\n%s", back)
	}
	sql, args := claimable(&spool.Claim{Owner: "o"}, 1)
	check("what can be claimed", "session_ready", plan(sql, args...))
	for index, q := range map[string]spool.SessionQuery{"session_listed": {}, "session_status": {Status: chunk.StatusEnded}, "session_principal": {Principal: "p"}} {
		sql, args := listing(&q, contract.Place{}, 10, 1)
		check(listings, index, plan(sql, args...))
	}
}
