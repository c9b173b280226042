//go:build nodes

package pgstore

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
)

// as is the server's address for another role.
func as(role, addr string) string {
	return "postgres://" + role + "@" + addr + "/postgres?sslmode=disable"
}

// psql runs a script as a role with the program that operators use.
func psql(t *testing.T, role, addr, script string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", as(role, addr))
	c.Stdin = strings.NewReader(script)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// use does what a process does with a store, in a session with this name.
func use(t *testing.T, s *Store, session string) {
	t.Helper()
	a := newAppender(t, s, session)
	for range 3 {
		if err := a.append(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a.whole(t)
	if err := s.PutBlob(t.Context(), session, "h", []byte("x")); err != nil {
		t.Error(err)
	}
	if err := s.SaveFold(t.Context(), session, "f", spool.SavedFold{Version: 1, Incarnation: 1, Seq: 1, Data: []byte("x")}); err != nil {
		t.Error(err)
	}
	if err := s.Trim(t.Context(), session, 1, 1); err != nil {
		t.Error(err)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), session); err != nil {
		t.Error(err)
	}
}

// The tables are made by their owner, from a file. A role without rights to make or change
// them uses them then, and says what is missing before.
func TestTablesFromAFile(t *testing.T) {
	server := engines.Postgres(t)
	addr := server.Addr()

	run(t, addr, "CREATE ROLE owner LOGIN; GRANT CREATE ON DATABASE postgres TO owner; CREATE ROLE \"the user\" LOGIN")
	open := func() (*Store, error) { return Open(t.Context(), as("the%20user", addr), nil) }
	if _, err := open(); !errors.Is(err, chunk.ErrInvalid) || !strings.Contains(err.Error(), "0 of 2") {
		t.Fatalf("without tables: %v", err)
	}
	// The tables of the first version, then today's, twice.
	psql(t, "owner", addr, "CREATE SCHEMA spool; SET search_path = spool; "+tablesSQL+"GRANT USAGE ON SCHEMA spool TO \"the user\"; GRANT SELECT ON ALL TABLES IN SCHEMA spool TO \"the user\"")
	if _, err := open(); !errors.Is(err, chunk.ErrInvalid) || !strings.Contains(err.Error(), "1 of 2") {
		t.Fatalf("with the first tables: %v", err)
	}
	sql, err := Schema("", "the user")
	if err != nil {
		t.Fatal(err)
	}
	psql(t, "owner", addr, sql)
	psql(t, "owner", addr, sql)
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	use(t, s, "s")
	if _, err := s.pool.Exec(t.Context(), "CREATE TABLE more ()"); serverError(err) == nil || serverError(err).Code != codePrivilege {
		t.Errorf("the role can make tables: %v", err)
	}
}

// Tables of the first version get what is missing when a store opens them, and what is in them
// stays. A program of that version can still use them.
func TestTablesAreUpgraded(t *testing.T) {
	server := engines.Postgres(t)
	run(t, server.Addr(), "CREATE SCHEMA spool; SET search_path = spool; "+tablesSQL+"INSERT INTO session (id, alive, seq, incarnation, status) VALUES ('before', true, 7, 1, 'ended')")
	s, err := Open(t.Context(), engines.PostgresURL(server.Addr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h, err := s.Head(t.Context(), "before")
	if err != nil || h.Seq != 7 || h.Incarnation != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	use(t, s, "s")
	var known int
	if err := s.read(t.Context(), func(_ context.Context, c *pgx.Conn) error {
		return c.QueryRow(t.Context(), "SELECT version FROM meta").Scan(&known)
	}); err != nil || known != 1 {
		t.Errorf("a program has to know version %d, %v", known, err)
	}
}
