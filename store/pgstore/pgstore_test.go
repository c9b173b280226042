//go:build nodes

package pgstore

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(m, func(location string) (spool.Store, error) {
		return Open(context.Background(), location, &Options{identity: testIdentity})
	})
}

// testIdentity takes the place of the identity of the cluster, which a test cannot change.
const testIdentity = "SELECT name FROM test_identity"

// place is a schema of a test, and what its instances share.
type place struct {
	server   string // HOST:PORT
	schema   string
	shift    atomic.Int64
	times    atomic.Int64
	proxy    *netcut.Proxy
	identity string
}

// instance is a store with the place of its data.
type instance struct {
	*Store
	place *place
}

func (p *place) url(addr string) string {
	return engines.PostgresURL(addr) + "&schema=" + p.schema
}

var schemas atomic.Int64

func newPlace(t testing.TB, server string) *place {
	p := &place{server: server, schema: "t" + strconv.Itoa(os.Getpid()) + "_" + strconv.FormatInt(schemas.Add(1), 10)}
	p.times.Store(1)
	t.Cleanup(func() { run(t, server, "DROP SCHEMA IF EXISTS "+p.schema+" CASCADE") })
	proxy, err := netcut.Start(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	p.proxy = proxy
	return p
}

func (p *place) open(t testing.TB) spool.Store {
	t.Helper()
	addr := p.server
	if p.proxy != nil {
		addr = p.proxy.Addr()
	}
	s, err := Open(t.Context(), p.url(addr), &Options{
		Connections: 4,
		shift:       func() time.Duration { return time.Duration(p.shift.Load()) },
		times:       func() int { return int(p.times.Load()) },
		identity:    p.identity,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return instance{s, p}
}

// run runs statements on a connection of its own.
func run(t testing.TB, server string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, engines.PostgresURL(server))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, sql := range statements {
		if _, err := c.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// tables are those that a rewind sets back.
var tables = strings.Fields("meta session record writer fold blob garbage")

// rewind notes what the tables hold. back puts that into them, as a cluster with another
// identity, and ends all connections.
func rewind(t testing.TB, s spool.Store) (back func()) {
	p := s.(instance).place
	var note []string
	for _, table := range tables {
		note = append(note, fmt.Sprintf("CREATE TABLE %[1]s.%[2]s_noted AS SELECT * FROM %[1]s.%[2]s", p.schema, table))
	}
	run(t, p.server, "BEGIN ISOLATION LEVEL REPEATABLE READ; "+strings.Join(note, "; ")+"; COMMIT")
	return func() {
		t.Helper()
		set := "BEGIN; "
		for _, table := range tables {
			set += fmt.Sprintf("LOCK TABLE %[1]s.%[2]s; ", p.schema, table)
		}
		for _, table := range tables {
			set += fmt.Sprintf("DELETE FROM %[1]s.%[2]s; INSERT INTO %[1]s.%[2]s SELECT * FROM %[1]s.%[2]s_noted; ", p.schema, table)
		}
		run(t, p.server, set+"UPDATE "+p.schema+".test_identity SET name = name || 'x'; COMMIT")
		p.proxy.Cut()
	}
}

func suiteOptions() storetest.Options {
	return storetest.Options{
		Reopen: func(t testing.TB, s spool.Store) spool.Store {
			if err := s.(instance).Close(); err != nil {
				t.Fatal(err)
			}
			return s.(instance).place.open(t)
		},
		Another:  func(t testing.TB, s spool.Store) spool.Store { return s.(instance).place.open(t) },
		Advance:  func(s spool.Store, d time.Duration) { s.(instance).place.shift.Add(int64(d)) },
		Location: func(s spool.Store) string { p := s.(instance).place; return p.url(p.server) },
		Notify: func(t testing.TB, s spool.Store, times int) func() {
			p := s.(instance).place
			was := p.times.Swap(int64(times))
			return func() { p.times.Store(was) }
		},
		Rewind: rewind,
		Break: func(t testing.TB, s spool.Store) func() {
			p := s.(instance).place.proxy
			p.Refuse()
			p.Cut()
			return p.Restore
		},
	}
}

func TestStore(t *testing.T) {
	server := engines.Postgres(t)
	storetest.Run(t, func(t testing.TB) spool.Store {
		p := newPlace(t, server.Addr())
		run(t, p.server, "CREATE SCHEMA "+p.schema, "CREATE TABLE "+p.schema+".test_identity AS SELECT 'first' AS name")
		p.identity = testIdentity
		return p.open(t)
	}, suiteOptions())
}
