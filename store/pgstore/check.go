package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/store/contract"
)

var _ contract.Checker = (*Store)(nil)

// condition is what the server says of itself, and of the store's tables.
type condition struct {
	version     int    // 150004
	commit      string // synchronous_commit, of this role in this database
	fsync, full bool   // full: full_page_writes
	walLevel    string
	standbys    string // synchronous_standby_names
	together    int    // standbys that are connected and synchronous
	others      int    // those that are connected and asynchronous
	archive     string // archive_mode
	identity    bool   // the role may ask for the cluster's identity
	creates     bool   // the role may create tables in the schema
	lacks       string // privileges on tables that the role does not have
	schema      int    // the version of the tables
	pooled      bool
	vacuum      bool  // autovacuum, of the server and of every table
	live, dead  int64 // rows of the tables
	used, limit int   // connections
}

const (
	askSettings = `SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'), current_setting('fsync')::bool,
 current_setting('full_page_writes')::bool, current_setting('wal_level'), current_setting('synchronous_standby_names'), current_setting('archive_mode'),
 (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
 (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('async', 'potential')),
 has_function_privilege('pg_control_system()', 'EXECUTE'),
 has_schema_privilege(current_schema(), 'CREATE'),
 (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
 current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int`
	askTables = `SELECT (SELECT version FROM meta),
 current_setting('autovacuum')::bool AND NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND 'autovacuum_enabled=false' = ANY (reloptions)),
 (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = current_schema()),
 (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = current_schema()),
 (SELECT coalesce(string_agg(t || ': ' || p, ', '), '') FROM unnest(ARRAY['meta', 'session', 'record', 'writer', 'fold', 'blob', 'garbage', 'probe']) AS t,
  unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p WHERE NOT has_table_privilege(t, p) AND NOT (t = 'meta' AND p IN ('INSERT', 'DELETE')))`
)

// Check implements [contract.Checker].
func (s *Store) Check(ctx context.Context) []contract.Finding {
	var c condition
	err := s.read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var backend uint32
		c = condition{}
		b := &pgx.Batch{}
		b.Queue("SELECT pg_backend_pid()").QueryRow(func(row pgx.Row) error { return row.Scan(&backend) })
		b.Queue(askSettings).QueryRow(func(row pgx.Row) error {
			return row.Scan(&c.version, &c.commit, &c.fsync, &c.full, &c.walLevel, &c.standbys, &c.archive, &c.together, &c.others, &c.identity, &c.creates, &c.used, &c.limit)
		})
		b.Queue(askTables).QueryRow(func(row pgx.Row) error { return row.Scan(&c.schema, &c.vacuum, &c.live, &c.dead, &c.lacks) })
		err := conn.SendBatch(ctx, b).Close()
		c.pooled = backend != conn.PgConn().PID()
		return err
	})
	if err != nil {
		return []contract.Finding{{Check: "reach", Level: contract.Problem, Text: "the server does not tell its state: " + redact.Text(err.Error()),
			Hint: "see that the server runs, and that this role may read its settings"}}
	}
	return c.findings()
}

type findings []contract.Finding

func (f *findings) say(check string, level contract.Level, hint, format string, args ...any) {
	*f = append(*f, contract.Finding{Check: check, Level: level, Hint: hint, Text: fmt.Sprintf(format, args...)})
}

// findings says what a server's state and settings mean.
func (c *condition) findings() findings {
	var f findings
	f.say("version", contract.OK, "", "PostgreSQL %d.%d", c.version/10000, c.version%10000)
	f.say("schema", contract.OK, "", "the tables are of version %d", c.schema)
	c.permissions(&f)
	c.durability(&f)
	c.replication(&f)
	if c.pooled {
		f.say("pooler", contract.OK, "", "there is a pooler in session mode in between")
	} else {
		f.say("pooler", contract.OK, "", "the connection is direct")
	}
	if c.used >= c.limit/10*9 {
		f.say("connections", contract.Warning, "raise max_connections, or lower ?connections= in the store's URL", "%d of the server's %d connections are in use", c.used, c.limit)
	}
	switch {
	case !c.vacuum:
		f.say("vacuum", contract.Warning, "switch autovacuum on, for the server and for each table of the schema", "autovacuum is off: tables and indexes grow with every change")
	case c.dead > 100_000 && c.dead > c.live:
		f.say("vacuum", contract.Warning, "look for long transactions and unused replication slots, which keep rows from being removed; then VACUUM", "%d rows are dead and %d are live", c.dead, c.live)
	default:
		f.say("vacuum", contract.OK, "", "autovacuum is on; %d rows are live and %d are dead", c.live, c.dead)
	}
	return f
}

func (c *condition) permissions(f *findings) {
	switch {
	case c.lacks != "":
		f.say("permissions", contract.Problem, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA … TO this role", "the role lacks privileges: %s", c.lacks)
	case !c.creates:
		f.say("permissions", contract.OK, "", "the role uses the tables and cannot change them: before an upgrade its owner runs spool migrations")
	default:
		f.say("permissions", contract.OK, "", "the role may use the tables, and upgrades them itself")
	}
	if !c.identity {
		f.say("losses", contract.Warning, "GRANT EXECUTE ON FUNCTION pg_control_system() TO this role", "the role may not ask for the cluster's identity, so a promotion that loses records goes unnoticed")
	}
}

func (c *condition) durability(f *findings) {
	switch {
	case !c.fsync:
		f.say("durability", contract.Problem, "fsync = on", "the server does not sync to its disk: if its machine fails, the database may be damaged, and nothing notices what is lost")
	case c.commit == "off":
		f.say("durability", contract.Problem, "ALTER ROLE … SET synchronous_commit = on", "synchronous_commit is off: a crash of the server loses the last moments, and nothing notices that")
	case !c.full:
		f.say("durability", contract.Warning, "full_page_writes = on, unless the file system writes pages whole", "full_page_writes is off: if the machine fails, pages may be torn")
	default:
		f.say("durability", contract.OK, "", "an append is on the server's disk before it is acknowledged (synchronous_commit = %s)", c.commit)
	}
}

// replication says what the promotion of a standby would cost.
func (c *condition) replication(f *findings) {
	waits := strings.TrimSpace(c.standbys) != "" && c.commit != "local" && c.commit != "off"
	switch {
	case waits && c.together == 0:
		f.say("standbys", contract.Problem, "start a standby that synchronous_standby_names names", "each append waits for a standby, and none is connected: nothing can be stored")
	case waits:
		f.say("standbys", contract.OK, "", "each append is on a synchronous standby before it is acknowledged; %d are connected", c.together)
	case c.others > 0 || c.together > 0:
		f.say("standbys", contract.Warning, "name one in synchronous_standby_names, with synchronous_commit = on", "the promotion of a standby may lose what was acknowledged; that is noticed, and readers begin again")
	case c.walLevel == "minimal":
		f.say("standbys", contract.Warning, "wal_level = replica", "wal_level is minimal: there can be neither a standby nor a backup with recovery to a point in time")
	case c.archive == "off":
		f.say("standbys", contract.OK, "", "no standby is connected, and the log is not archived: what the server's disk loses is lost")
	default:
		f.say("standbys", contract.OK, "", "no standby is connected; the log is archived (archive_mode = %s)", c.archive)
	}
}
