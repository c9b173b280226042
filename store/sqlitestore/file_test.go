package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

func mustOpen(t *testing.T, path string, o *Options, boot string) *Store {
	t.Helper()
	s, err := open(path, o, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s *Store, text string) spool.Appended {
	t.Helper()
	res, err := s.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "user_message", Data: []byte(`{"type":"user_message","text":"` + text + `"}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func sqlite3(t *testing.T, path, sql string) string {
	t.Helper()
	exe, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Fatal("the sqlite3 command is missing; `make test` installs it (Debian package sqlite3)")
	}
	out, err := exec.Command(exe, path, sql).CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3 %q: %v\n%s", sql, err, out)
	}
	return strings.TrimSpace(string(out))
}

// The file is for people too: Debian's sqlite3 reads it while the store is open.
func TestReadableWithTheCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	s := mustOpen(t, path, nil, "boot")
	put(t, s, "hello")
	put(t, s, "漢字")
	for sql, want := range map[string]string{
		"PRAGMA integrity_check": "ok",
		"PRAGMA journal_mode":    "wal",
		"SELECT s.id, r.seq, r.type, r.data ->> '$.text', typeof(r.data) FROM session s JOIN record r USING (sid) ORDER BY r.seq": "s|1|user_message|hello|text\ns|2|user_message|漢字|text",
		"SELECT seq, status, last_command, due > 0 FROM session":                                                                  "2|ended|2|1",
	} {
		if got := sqlite3(t, path, sql); got != want {
			t.Errorf("%s gave %q, want %q", sql, got, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a clean close leaves the write-ahead log: %v", err)
	}
	if got := sqlite3(t, path, "PRAGMA integrity_check"); got != "ok" {
		t.Error(got)
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	make := func(name, sql string) string {
		path := filepath.Join(dir, name)
		sqlite3(t, path, sql)
		return path
	}
	newer := filepath.Join(dir, "newer.db")
	if s := mustOpen(t, newer, nil, "boot"); s.Close() != nil {
		t.Fatal("close")
	}
	sqlite3(t, newer, "PRAGMA user_version = 7")
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database, a text of some length\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		err  error
		text string
	}{
		make("other.db", "CREATE TABLE t (x)"):                        {chunk.ErrInvalid, "another program"},
		make("app.db", "CREATE TABLE t (x); PRAGMA user_version = 1"): {chunk.ErrInvalid, "another program"},
		newer:                              {chunk.ErrInvalid, "schema version is 7"},
		text:                               {spool.ErrUnavailable, "not a database"},
		filepath.Join(dir, "none", "x.db"): {spool.ErrUnavailable, "cannot be opened"},
		":memory:":                         {chunk.ErrInvalid, "memstore"},
	} {
		s, err := Open(path, nil)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, want.err) || !strings.Contains(fmt.Sprint(err), want.text) {
			t.Errorf("%s: %v; want %v with %q", path, err, want.err, want.text)
		}
	}
	if _, err := Open(filepath.Join(dir, "x.db"), &Options{Sync: "off"}); !errors.Is(err, chunk.ErrInvalid) {
		t.Errorf("sync off: %v", err)
	}
}

// What may have lost acknowledged records says so by a new incarnation: only
// without full sync, and only if the host was restarted meanwhile. Then no lease and no
// epoch from before counts any more.
func TestIncarnationAfterAnUncleanEnd(t *testing.T) {
	for _, test := range []struct {
		name, mode, boot string
		clean, lost      bool
	}{
		{"full, killed, rebooted", SyncFull, "two", false, false},
		{"normal, closed, rebooted", SyncNormal, "two", true, false},
		{"normal, killed", SyncNormal, "one", false, false},
		{"normal, killed, rebooted", SyncNormal, "two", false, true},
		{"normal, killed, boots unknown", SyncNormal, "", false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "spool.db")
			s := mustOpen(t, path, &Options{Sync: test.mode}, "one")
			put(t, s, "hello")
			lease, err := s.Claim(t.Context(), spool.Claim{Owner: "old", Session: "s"})
			if err != nil {
				t.Fatal(err)
			}
			run := spool.Append{Session: "s", Epoch: lease.Epoch, Writer: "w", Ordinal: 1, Row: spool.Row{Status: chunk.StatusActive}}
			was, err := s.Append(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			if test.clean {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			} else { // a copy of the files is what a killed process leaves
				for _, name := range []string{"spool.db", "spool.db-wal"} {
					data, err := os.ReadFile(filepath.Join(dir, name))
					if err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, "copy-"+name), data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				path = filepath.Join(dir, "copy-spool.db")
			}
			s = mustOpen(t, path, nil, test.boot)
			h, err := s.Head(t.Context(), "s")
			if !test.lost {
				if err != nil || h != was.Head {
					t.Errorf("head %+v, %v; want %+v", h, err, was.Head)
				}
				return // a killed process's mark stays until the host restarts
			}
			if err != nil || h.Incarnation <= was.Head.Incarnation || h.Epoch <= lease.Epoch || h.Seq != 1 {
				t.Fatalf("head %+v, %v; it was %+v", h, err, was.Head)
			}
			if _, err := s.Append(t.Context(), run); !errors.Is(err, spool.ErrSuperseded) {
				t.Errorf("an append of the owner from before: %v", err)
			}
			if err := s.Renew(t.Context(), lease); !errors.Is(err, spool.ErrSuperseded) {
				t.Errorf("its renewal: %v", err)
			}
			if next, err := s.Claim(t.Context(), spool.Claim{Owner: "new"}); err != nil || next.Session != "s" || next.Epoch <= h.Epoch {
				t.Errorf("the next claim: %+v, %v", next, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, path, nil, "three") // only once
			if again, err := s.Head(t.Context(), "s"); err != nil || again.Incarnation != h.Incarnation {
				t.Fatalf("head %+v, %v; want incarnation %d", again, err, h.Incarnation)
			}
		})
	}
}

// A full disk fails the append and nothing else, and the store lives on.
func TestFullDisk(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "spool.db"), nil, "boot")
	put(t, s, "before")
	limitPages := func(n int) {
		t.Helper()
		if err := s.write(t.Context(), 1, func(tx *tx) error {
			return tx.c.query(func([]driver.Value) error { return nil }, fmt.Sprintf("PRAGMA max_page_count = %d", n))
		}); err != nil {
			t.Fatal(err)
		}
	}
	limitPages(1) // SQLite takes the present size instead
	big := strings.Repeat("x", 200_000)
	_, err := s.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "x", Data: []byte(`"` + big + `"`)}}})
	if !errors.Is(err, spool.ErrUnavailable) || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("append to a full disk: %v", err)
	}
	if h, err := s.Head(t.Context(), "s"); err != nil || h.Seq != 1 {
		t.Fatalf("head %+v, %v", h, err)
	}
	limitPages(1_000_000)
	if res := put(t, s, "after"); res.First != 2 {
		t.Fatalf("%+v", res)
	}
}

// A deletion that was cut short is finished by the next open.
func TestGarbageIsCollected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	s := mustOpen(t, path, nil, "boot")
	put(t, s, "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sqlite3(t, path, "INSERT INTO garbage SELECT sid FROM session; DELETE FROM session")
	s = mustOpen(t, path, nil, "boot")
	for sql := "SELECT (SELECT count(*) FROM garbage) + (SELECT count(*) FROM record)"; ; {
		var left int64
		if err := s.read(t.Context(), func(c *conn) (err error) { left, err = c.number(sql); return err }); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			break
		}
	}
	if res := put(t, s, "new"); res.First != 1 {
		t.Fatalf("%+v", res)
	}
}

// One request that the engine refuses does not fail its neighbours.
func TestNeighboursOfAFailure(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "spool.db"), nil, "boot")
	add := func(text string) *request {
		return &request{ctx: t.Context(), done: make(chan struct{}), fn: func(tx *tx) error {
			_, err := tx.append(&spool.Append{Session: "s", Records: []chunk.Record{{Type: "x", Data: []byte(`"` + text + `"`)}}})
			return err
		}}
	}
	bad := &request{ctx: t.Context(), done: make(chan struct{}), fn: func(tx *tx) error {
		return tx.c.exec("INSERT INTO session (sid) VALUES (1)")
	}}
	group := []*request{add("a"), bad, add("b")}
	// A group of the test's making, through the writer's own goroutine.
	gate := &request{ctx: t.Context(), done: make(chan struct{}), fn: func(*tx) error {
		for _, r := range group {
			s.w.queue <- r
		}
		return nil
	}}
	s.w.queue <- gate
	<-gate.done
	for _, r := range group {
		<-r.done
	}
	if group[0].err != nil || group[2].err != nil || bad.err == nil {
		t.Fatalf("outcomes: %v, %v, %v", group[0].err, bad.err, group[2].err)
	}
	rs, _, err := s.Read(t.Context(), "s", 0, 10)
	if err != nil || len(rs) != 2 || string(rs[0].Data) != `"a"` || string(rs[1].Data) != `"b"` {
		t.Fatalf("%v, %v", rs, err)
	}
}

// An append writes a page of each table and index that it changes, and no more:
// the record's two, the session's and the writer's. The appends are a second apart: that
// each renews the lease changes the index of what can be claimed every quarter of a TTL only,
// and the indexes of listings change every ten seconds.
func TestPagesPerAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	now := time.Now()
	s := mustOpen(t, path, &Options{Now: func() time.Time { return now }}, "boot")
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: spool.DefaultLeaseTTL})
	if err != nil {
		t.Fatal(err)
	}
	frames := func() int64 {
		i, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return i.Size() / (4096 + 24)
	}
	before := frames()
	for n := range uint64(100) {
		now = now.Add(time.Second)
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: n + 1, Row: spool.Row{Status: chunk.StatusActive}, Records: []chunk.Record{{Class: chunk.Trace, Data: []byte(`{"type":"text_delta","delta":"hello"}`)}}}
		if _, err := s.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if n := frames() - before; n > 500 {
		t.Errorf("100 appends wrote %d pages, want about 4 each", n)
	}
}

// Between two updates of the index a lease is as long as ever, for those who claim and for
// those who wait.
func TestLeaseBeyondIndex(t *testing.T) {
	now := time.UnixMilli(1e12)
	s := mustOpen(t, filepath.Join(t.TempDir(), "spool.db"), &Options{Now: func() time.Time { return now }}, "boot")
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(ordinal uint64) {
		t.Helper()
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: ordinal, Row: spool.Row{Status: chunk.StatusActive}, Records: []chunk.Record{{Data: []byte(`{}`)}}}
		if _, err := s.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	begin(1)
	now = now.Add(10 * time.Second)
	begin(2) // until 70 s; the index says 60
	st, err := s.state(t.Context(), "s")
	if err != nil || st.expires-st.ready != 10_000 {
		t.Fatalf("%+v, %v", st, err)
	}
	now = now.Add(59 * time.Second)
	for _, session := range []string{"", "s"} {
		if l, err := s.Claim(t.Context(), spool.Claim{Owner: "p", Session: session, TTL: time.Minute}); !errors.Is(err, spool.ErrNothingDue) {
			t.Errorf("claimed a second before the lease expired: %+v, %v", l, err)
		}
	}
	if found, _, next, err := s.due(t.Context(), &spool.Claim{Owner: "p", TTL: time.Minute}); found || next != st.expires || err != nil {
		t.Errorf("due: %v, at %d, %v, want at %d", found, next, err, st.expires)
	}
	now = now.Add(time.Second)
	if _, err := s.Claim(t.Context(), spool.Claim{Owner: "p", TTL: time.Minute}); err != nil {
		t.Errorf("not claimed once the lease had expired: %v", err)
	}
}

// A file of the schema before is brought to the present one, whatever it holds, once and
// for all processes.
func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	now := time.UnixMilli(1e12)
	clock := &Options{Now: func() time.Time { return now }}
	s := mustOpen(t, path, clock, "boot")
	say := func(s *Store, id string) {
		t.Helper()
		now = now.Add(7 * time.Second)
		_, err := s.Append(t.Context(), spool.Append{Session: id, Row: spool.Row{Principal: "ann"},
			Records: []chunk.Record{{Type: "user_message", Data: []byte(`{}`)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "gone", "c", "a"} {
		say(s, id)
	}
	if err := errors.Join(s.PutBlob(t.Context(), "a", "h", make([]byte, 5000)), s.Delete(t.Context(), "gone"), s.Close()); err != nil {
		t.Fatal(err)
	}
	const columnsAndIndexes = "SELECT name, type, \"notnull\" FROM pragma_table_info('session'); SELECT sql FROM sqlite_schema WHERE type = 'index' ORDER BY name"
	present := sqlite3(t, path, columnsAndIndexes)
	sqlite3(t, path, `UPDATE session SET status = 'paused', due = updated + 1 WHERE id = 'a';
UPDATE session SET status = 'paused' WHERE id = 'b';
UPDATE session SET due = 0 WHERE id = 'c';
INSERT INTO session SELECT NULL, 'half', alive, seq, incarnation, trace_floor, floor, epoch, 'copying', 0, 0, agent, principal, title, updated,
 lease_owner, lease_ttl, lease_expires, trace_trimmed, trimmed, NULL, version, listed, 0, 0, '', 0 FROM session WHERE id = 'c';
DROP INDEX session_listed; DROP INDEX session_status; DROP INDEX session_principal;
DROP INDEX session_claim;
ALTER TABLE session DROP COLUMN bytes;
ALTER TABLE session DROP COLUMN lease_claim;
ALTER TABLE session DROP COLUMN hidden;
ALTER TABLE session DROP COLUMN pending;
ALTER TABLE session DROP COLUMN listed;
CREATE INDEX session_principal ON session (principal) WHERE principal <> '';
PRAGMA user_version = 1`)
	s, other := mustOpen(t, path, clock, "boot"), mustOpen(t, path, clock, "boot")
	if got := sqlite3(t, path, columnsAndIndexes); got != present {
		t.Errorf("upgraded:\n%s\nmade new:\n%s", got, present)
	}
	for id, want := range map[string]spool.Head{"a": {Status: chunk.StatusPaused}, "b": {Status: chunk.StatusPaused, Pending: true},
		"c": {Status: chunk.StatusEnded}, "half": {Status: chunk.StatusEnded, Hidden: true}} {
		h, err := s.Head(t.Context(), id)
		if got := (spool.Head{Status: h.Status, Pending: h.Pending, Hidden: h.Hidden}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", id, h, err)
		}
	}
	for id, want := range map[string]int64{"a": 4 + 5000, "b": 2} {
		if i, err := s.Session(t.Context(), id); err != nil || i.Bytes != want {
			t.Errorf("%s has %d bytes, want %d, %v", id, i.Bytes, want, err)
		}
	}
	listed := func() (ids string) {
		t.Helper()
		for _, q := range []spool.SessionQuery{{}, {Principal: "ann"}} {
			q.Max = 2
			for {
				p, err := s.Sessions(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range p.Sessions {
					ids += i.Session
				}
				if q.After = p.NextAfter; q.After == "" {
					break
				}
			}
			ids += " "
		}
		return ids
	}
	if got := listed(); got != "acb acb " {
		t.Errorf("listed %q after the upgrade", got)
	}
	say(other, "b")
	if got := listed(); got != "bac bac " {
		t.Errorf("listed %q after an update", got)
	}
	if got := sqlite3(t, path, "PRAGMA integrity_check; SELECT count(*), count(listed) FROM session"); got != "ok\n5|4" {
		t.Error(got)
	}
}
