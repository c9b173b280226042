//go:build nodes

package pgstore

import (
	"testing"

	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/doctor"
)

// A server is examined as it is, by its owner and by a role that may do little, and nothing is
// left in it.
func TestDoctor(t *testing.T) {
	server := engines.Postgres(t, "-c", "fsync=on")
	open := func(url string) *Store {
		s, err := Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	level := func(url string) map[string]contract.Level {
		one, another := open(url), open(url)
		found := map[string]contract.Level{}
		for _, f := range doctor.Examine(t.Context(), one, another) {
			if found[f.Check] == "" || f.Level != contract.OK {
				found[f.Check] = f.Level
			}
		}
		return found
	}
	got := level(engines.PostgresURL(server.Addr()))
	for _, check := range []string{"reach", "version", "schema", "permissions", "durability", "standbys", "pooler", "vacuum", "clock"} {
		if got[check] != contract.OK {
			t.Errorf("%s: %q of %v", check, got[check], got)
		}
	}
	if got["append"] == "" || got["wake"] == "" {
		t.Errorf("%v", got)
	}
	run(t, server.Addr(),
		"CREATE ROLE little LOGIN",
		"GRANT USAGE ON SCHEMA spool TO little",
		"GRANT SELECT ON ALL TABLES IN SCHEMA spool TO little",
		"REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
		"ALTER ROLE little SET synchronous_commit = off",
		"ALTER TABLE spool.record SET (autovacuum_enabled = false)")
	got = level("postgres://little@" + server.Addr() + "/postgres?sslmode=disable")
	for check, want := range map[string]contract.Level{"permissions": contract.Problem, "durability": contract.Problem, "losses": contract.Warning, "vacuum": contract.Warning, "write": contract.Problem} {
		if got[check] != want {
			t.Errorf("%s: %q, want %q; %v", check, got[check], want, got)
		}
	}
	n := 0
	run(t, server.Addr(), "VACUUM spool.session")
	if err := open(engines.PostgresURL(server.Addr())).pool.QueryRow(t.Context(), "SELECT count(*) FROM session WHERE alive").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d sessions are left, %v", n, err)
	}
}
