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

// An owner's appends follow each other with a plain statement. When anything else has changed
// the session, or the append is another one, append_group decides.
func TestAppendsFollowEachOther(t *testing.T) {
	server := engines.Postgres(t)
	open := func() *Store {
		s, err := Open(t.Context(), engines.PostgresURL(server.Addr()), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s, other := open(), open()
	countAsks(t, server.Addr())
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	n, last := uint64(0), spool.Head{}
	// append makes the next append, and says how often the function was called for it.
	append := func(change func(a *spool.Append)) (asked int, err error) {
		t.Helper()
		n++
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: n, Records: deltas(3)}
		if change != nil {
			change(&a)
		}
		begun := asks(t, s)
		out, err := s.Append(t.Context(), a)
		if err == nil {
			last = out.Head
			if h, err := other.Head(t.Context(), "s"); err != nil || h != last || out.First != h.Seq-2 || out.Last != h.Seq {
				t.Errorf("append %d gives %+v; the head is %+v, %v", n, out, h, err)
			}
		}
		return asks(t, s) - begun, err
	}
	want := func(what string, asked int, change func(a *spool.Append)) {
		t.Helper()
		if got, err := append(change); err != nil || got != asked {
			t.Errorf("%s: append_group was called %d times, want %d; %v", what, got, asked, err)
		}
	}
	want("the first append", 1, nil)
	want("the next one", 0, nil)
	want("the same status", 0, func(a *spool.Append) { a.Row.Status = last.Status })
	want("another status", 1, func(a *spool.Append) { a.Row.Status = chunk.StatusActive })
	want("a gap in the ordinals", 0, func(a *spool.Append) { n += 5; a.Ordinal = n })
	want("another writer", 1, func(a *spool.Append) { a.Writer = "x" })
	want("the first writer again", 1, nil)
	if _, err := other.Append(t.Context(), spool.Append{Session: "s", Records: deltas(1)}); err != nil {
		t.Fatal(err)
	}
	want("after a command of another process", 1, nil)
	if !last.Pending || last.Due == 0 {
		t.Errorf("the command is not pending: %+v", last)
	}
	want("the next one", 0, nil)
	want("a settled run", 1, func(a *spool.Append) { a.Settle = &spool.Settle{Seen: last.Seq} })
	if last.Pending || last.Due != 0 {
		t.Errorf("the command is still pending: %+v", last)
	}
	want("the next one", 0, nil)
	if err := other.Renew(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	want("after a renewal", 1, nil)
	before := last
	n--
	if asked, err := append(func(a *spool.Append) { a.Records = nil }); err != nil || asked != 1 || last != before {
		t.Errorf("a repeat called append_group %d times; the head was %+v and is %+v, %v", asked, before, last, err)
	}
	want("after a repeat", 1, nil)
	want("the next one", 0, nil)
	if _, err := other.Claim(t.Context(), spool.Claim{Owner: "p", Session: "s", Force: true, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if asked, err := append(nil); !errors.Is(err, spool.ErrSuperseded) || asked != 1 {
		t.Errorf("the owner of before: append_group was called %d times; %v", asked, err)
	}
	h, err := other.Head(t.Context(), "s")
	if err != nil || h.Seq != last.Seq {
		t.Errorf("%+v, %v", h, err)
	}
	var firsts, lasts int
	if err := s.pool.QueryRow(t.Context(), "SELECT count(DISTINCT seq), max(seq) FROM record").Scan(&firsts, &lasts); err != nil || firsts != lasts || uint64(lasts) != h.Seq {
		t.Errorf("there are %d records up to %d; the head is at %d", firsts, lasts, h.Seq)
	}
}

// countAsks has append_group count its calls.
func countAsks(t *testing.T, addr string) {
	t.Helper()
	_, sql, found := strings.Cut(appendSQL, "CREATE FUNCTION")
	sql, _, cut := strings.Cut(sql, "UPDATE meta")
	const begin = "BEGIN\n"
	if !found || !cut || !strings.Contains(sql, begin) {
		t.Fatal("the function is not where it was")
	}
	run(t, addr, "CREATE SEQUENCE spool.asks", "SET search_path = spool", "CREATE OR REPLACE FUNCTION"+strings.Replace(sql, begin, begin+"  PERFORM nextval('asks');\n", 1))
}

// asks is how often append_group was called.
func asks(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM asks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
