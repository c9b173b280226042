package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// filled is a store with many sessions, of which one is long. Analyzed is what
// somebody made of its file with the sqlite3 command: then SQLite knows samples of
// its columns, and plans by them.
func filled(t *testing.T, analyzed bool) *Store {
	path := filepath.Join(t.TempDir(), "spool.db")
	s := mustOpen(t, path, &Options{Sync: SyncNormal}, "boot")
	for i := range 60 {
		batch := make([]chunk.Record, 3)
		if i == 7 {
			batch = make([]chunk.Record, 900)
		}
		for n := range batch {
			batch[n] = chunk.Record{Type: "x", Class: chunk.Class(n % 2), Data: []byte(`{}`)}
		}
		a := spool.Append{Session: fmt.Sprint("s", i), Records: batch, Row: spool.Row{Principal: fmt.Sprint("p", i%9), Agent: fmt.Sprint("a", i%5)}}
		if _, err := s.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if !analyzed {
		return s
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := dial(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.script("ANALYZE"); err != nil {
		t.Fatal(err)
	}
	if n, err := c.number("SELECT count(*) FROM sqlite_stat4"); err != nil || n == 0 {
		t.Fatalf("%d samples, %v", n, err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	return mustOpen(t, path, &Options{Sync: SyncNormal}, "boot")
}

// everyCall has the store run each of its statements.
func everyCall(t *testing.T, s *Store, round int) {
	t.Helper()
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, spool.ErrNothingDue) {
			t.Fatal(err)
		}
	}
	id, record := fmt.Sprint("r", round), chunk.Record{Type: "x", Class: chunk.Trace, Data: []byte(`{}`)}
	batch := append(slices.Repeat([]chunk.Record{record}, insertRows), chunk.Record{Type: "x", Data: []byte(`{}`)})
	_, err := s.Append(ctx, spool.Append{Session: id, Records: batch, Row: spool.Row{Principal: "p1"}})
	ok(err)
	l, err := s.Claim(ctx, spool.Claim{Owner: "o", Session: id, Force: true})
	ok(err)
	ok(s.write(ctx, 1, func(t *tx) error { t.w.forget(); return nil })) // so that it reads rows again
	for n := range uint64(2) {
		_, err = s.Append(ctx, spool.Append{Session: id, Epoch: l.Epoch, Writer: "w", Ordinal: n + 1, Records: batch, Row: spool.Row{Status: chunk.StatusActive}})
		ok(err)
	}
	ok(s.Renew(ctx, l))
	ok(s.Release(ctx, l))
	for _, c := range []spool.Claim{{}, {Agents: []string{"a1", "a2"}}, {Session: id}, {Session: id, Agents: []string{"a1", "a2"}}, {Session: "nobody"}} {
		c.Owner = "p"
		_, err = s.Claim(ctx, c)
		ok(err)
		_, _, _, err = s.due(ctx, &c)
		ok(err)
	}
	_, err = s.Head(ctx, id)
	ok(err)
	_, _, err = s.Wait(ctx, id, spool.Head{})
	ok(err)
	_, _, err = s.Read(ctx, id, 3, 5)
	ok(err)
	for _, q := range []spool.KeptQuery{{After: 3, Max: 5}, {Backwards: true}} {
		_, _, err = s.ReadKept(ctx, id, q)
		ok(err)
	}
	_, err = s.Session(ctx, id)
	ok(err)
	for _, q := range []spool.SessionQuery{{}, {Status: chunk.StatusActive}, {Principal: "p1"}, {Status: chunk.StatusEnded, Principal: "p1"}, {Idle: 1}} {
		q.Max = 1
		p, err := s.Sessions(ctx, q)
		ok(err)
		if q.After = p.NextAfter; q.After != "" {
			_, err = s.Sessions(ctx, q)
			ok(err)
		}
	}
	ok(s.PutBlob(ctx, id, "h", []byte("x")))
	_, err = s.GetBlob(ctx, id, "h")
	ok(err)
	ok(s.SaveFold(ctx, id, "f", spool.SavedFold{}))
	_, err = s.LoadFold(ctx, id, "f")
	ok(err)
	for _, principal := range []string{"", "p1"} {
		_, err = s.Usage(ctx, principal)
		ok(err)
	}
	ok(s.Trim(ctx, id, 12, 3))
	ok(s.Delete(ctx, id))
	if err := s.Expire(ctx, "s0", time.Hour); !errors.Is(err, spool.ErrBusy) {
		t.Fatal(err)
	}
}

// eachStatement calls fn for each statement that the store's connections keep prepared.
func eachStatement(t *testing.T, s *Store, fn func(c *conn, sql string, stmt *stmt)) {
	t.Helper()
	each := func(c *conn) {
		for sql, stmt := range maps.Clone(c.stmts) {
			fn(c, sql, stmt)
		}
	}
	if err := s.write(t.Context(), 1, func(t *tx) error { each(t.c); return nil }); err != nil {
		t.Fatal(err)
	}
	for range readers { // all turns, so that nobody reads meanwhile
		s.pool.turns <- struct{}{}
		defer func() { <-s.pool.turns }()
	}
	for _, c := range s.pool.idle {
		each(c)
	}
}

// plan says how SQLite runs a statement, in lines. It may be called by the writer.
func plan(t *testing.T, c *conn, sql string) (lines []string) {
	t.Helper()
	explain := "EXPLAIN QUERY PLAN " + sql
	prepared, err := c.prepared(explain)
	if err != nil {
		t.Error(err)
		return nil
	}
	args := make([]driver.Value, lib.Xsqlite3_bind_parameter_count(prepared.e.tls, prepared.handle))
	if err := c.query(func(row []driver.Value) error {
		lines = append(lines, row[3].(string))
		return nil
	}, explain, args...); err != nil {
		t.Errorf("%s: %v", explain, err)
		return nil
	}
	c.stmts[explain].close()
	delete(c.stmts, explain)
	return lines
}

// Every statement walks an index, and only listings sort.
func TestQueryPlans(t *testing.T) {
	const owned, older = " AND principal = +? AND principal <> ''", " AND (updated < +? OR updated = +? AND id > +?)"
	scans := []string{ // what may read a whole table
		"SELECT count(*) FROM sqlite_schema", // when the store is opened
		"SELECT count(*) FROM unsynced",
		"SELECT sid FROM garbage",
	}
	indexes := map[string]string{
		readAll:     "record_seq",
		readKept:    "record_kept",
		readBack:    "record_kept",
		latest:      "session_listed (listed<?)",
		nextReady:   "session_ready",
		nextExpired: "session_ready",
		"SELECT ready, id FROM session WHERE ready IS NOT NULL AND ready <= +?1 AND +lease_expires <= +?1 ORDER BY ready LIMIT 1":                         "session_ready",
		"SELECT ready, id FROM session WHERE ready IS NOT NULL AND ready <= +?1 AND +lease_expires <= +?1 AND agent IN ('',+?,+?) ORDER BY ready LIMIT 1": "session_ready",
		"SELECT count(*), sum(bytes), max(bytes), min(updated) FROM session WHERE listed <= +? AND hidden = 0":                                            "session_listed (listed<?)",
		listing + "" + listingOrder:                                                                                                                  "session_listed (listed<?)",
		listing + "" + older + listingOrder:                                                                                                          "session_listed (listed<?)",
		listing + " AND status = +?" + listingOrder:                                                                                                  "session_status (status=? AND listed<?)",
		listing + " AND updated <= +?" + listingOrder:                                                                                                "session_listed (listed<?)",
		listing + "" + owned + listingOrder:                                                                                                          "session_principal (principal=? AND listed<?)",
		listing + "" + owned + older + listingOrder:                                                                                                  "session_principal (principal=? AND listed<?)",
		listing + " AND +status = +?" + owned + listingOrder:                                                                                         "session_principal (principal=? AND listed<?)",
		"SELECT " + headColumns + " FROM session WHERE id = +?":                                                                                      "(id=?)",
		"SELECT name, ordinal, first, last FROM writer WHERE sid = +?":                                                                               "PRIMARY KEY (sid=?)",
		"DELETE FROM record WHERE sid = +? AND seq > +? AND seq <= +? RETURNING octet_length(data)":                                                  "record_seq (sid=? AND seq>? AND seq<?)",
		"DELETE FROM record WHERE rowid IN (SELECT rowid FROM record WHERE sid = +? LIMIT +?)":                                                       "record_seq",
		"DELETE FROM blob WHERE rowid IN (SELECT rowid FROM blob WHERE sid = +? LIMIT (? + 999) / 1000)":                                             "(sid=?)",
		"DELETE FROM fold WHERE rowid IN (SELECT rowid FROM fold WHERE sid = +? LIMIT (? + 999) / 1000)":                                             "(sid=?)",
		"SELECT b.data FROM session s JOIN blob b ON b.sid = s.sid WHERE s.id = +? AND b.hash = +?":                                                  "(sid=? AND hash=?)",
		"SELECT f.version, f.incarnation, f.seq, f.data FROM session s JOIN fold f ON f.sid = s.sid WHERE s.id = +? AND s.alive = 1 AND f.name = +?": "(sid=? AND name=?)",
	}
	for _, analyzed := range []bool{false, true} {
		t.Run(fmt.Sprint("analyzed ", analyzed), func(t *testing.T) {
			s := filled(t, analyzed)
			everyCall(t, s, 0)
			run := map[string]bool{}
			eachStatement(t, s, func(c *conn, sql string, _ *stmt) {
				run[sql] = true
				switch verb, _, _ := strings.Cut(sql, " "); verb {
				case "BEGIN", "COMMIT", "ROLLBACK", "PRAGMA":
					return
				}
				lines := plan(t, c, sql)
				all := strings.Join(lines, "\n")
				for _, line := range lines {
					scan := strings.HasPrefix(line, "SCAN") && !strings.Contains(line, "CONSTANT ROW") &&
						!slices.ContainsFunc(scans, func(s string) bool { return strings.HasPrefix(sql, s) })
					// Of a listing, what was updated at about the same time is sorted.
					sort := strings.Contains(line, "TEMP B-TREE") && line != "USE TEMP B-TREE FOR LAST 2 TERMS OF ORDER BY"
					if scan || sort {
						t.Errorf("%s\n%s", sql, all)
					}
				}
				if index := indexes[sql]; !strings.Contains(all, index) {
					t.Errorf("%s\n%s\nwithout %s", sql, all, index)
				}
			})
			for sql := range indexes {
				if !run[sql] {
					t.Errorf("no call ran %s", sql)
				}
			}
		})
	}
}

// prepares counts how often SQLite prepared a statement again by itself.
func prepares(t *testing.T, stmt *stmt) int {
	t.Helper()
	return int(lib.Xsqlite3_stmt_status(stmt.e.tls, stmt.handle, lib.SQLITE_STMTSTATUS_REPREPARE, 0))
}

// A statement is prepared once: its plan depends on no parameter's value.
func TestPreparedOnce(t *testing.T) {
	for _, analyzed := range []bool{false, true} {
		t.Run(fmt.Sprint("analyzed ", analyzed), func(t *testing.T) {
			s := filled(t, analyzed)
			counted := 0
			for round := range 3 {
				everyCall(t, s, round)
			}
			eachStatement(t, s, func(_ *conn, sql string, stmt *stmt) {
				counted++
				if n := prepares(t, stmt); n > 0 {
					t.Errorf("prepared %d times more: %s", n, sql)
				}
			})
			if counted < 30 {
				t.Errorf("only %d statements were kept", counted)
			}
		})
	}
}
