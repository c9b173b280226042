package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

const (
	schemaVersion = 2 // how many migrations there are
	formatVersion = 1 // the one that a program has to know
	defaultSchema = "spool"
	// versions is by how much a loss raises the versions of rows: by more than there can
	// have been changes.
	versions = 1 << 40
)

// migrations bring the schema from each version to the next one, beginning with none. Times
// are Unix milliseconds. A deleted session stays as a row that is not alive. A session with
// incarnation 0 has blobs but no log yet. trace_trimmed and trimmed tell how far the records
// below trace_floor and floor have been removed. ready is the time from which the session can
// be claimed. listed is updated in units of ten seconds, so that the indexes of listings change
// at most once in ten seconds. bytes is the size of the session's records and blobs. identity
// is that of the cluster to which the tables were last seen to belong, losses how often it
// has changed. applied counts the migrations, and version is the one that a program has to
// know: it stays while programs of before can go on using the tables.
var migrations = [schemaVersion]string{tablesSQL, appendSQL}

var (
	//go:embed migrations/1_tables.sql
	tablesSQL string
	//go:embed migrations/2_append.sql
	appendSQL string
)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

func checkSchema(name string) error {
	if !schemaName.MatchString(name) || strings.HasPrefix(name, "pg_") {
		return chunk.ErrInvalid.Because("the name of the schema must be lower-case letters, digits and underscores, 48 at most, and not begin with pg_ or a digit")
	}
	return nil
}

// Schema returns the statements that make the tables in the schema with this name ("":
// "spool"), or bring those of an older version up to date, for those who do not let the store
// do it. If role is not "", they let that role use the tables; it needs no right to change
// them. They can be run again, and while stores are open. It fails with [chunk.ErrInvalid].
func Schema(name, role string) (string, error) {
	if name == "" {
		name = defaultSchema
	}
	if err := checkSchema(name); err != nil {
		return "", err
	}
	if len(role) > maxIdentifier || strings.IndexByte(role, 0) >= 0 {
		return "", chunk.ErrInvalid.Because("the name of the role is longer than 63 bytes, or has a zero byte")
	}
	var b strings.Builder
	fmt.Fprintf(&b, `BEGIN;
SELECT pg_advisory_xact_lock(hashtext('spool:%[1]s'));
DO $spool$ BEGIN
IF to_regnamespace('%[1]s') IS NULL THEN
CREATE SCHEMA %[1]s;
END IF;
END $spool$;
SET LOCAL search_path = %[1]s;
DO $spool$
DECLARE have integer := 0;
BEGIN
IF to_regclass('%[1]s.meta') IS NOT NULL THEN
have := (SELECT coalesce((to_json(meta)->>'applied')::integer, version) FROM meta);
END IF;
`, name)
	for i, sql := range migrations {
		fmt.Fprintf(&b, "IF have <= %d THEN\nEXECUTE $migration$\n%s\n$migration$;\nEND IF;\n", i, strings.TrimSpace(sql))
	}
	b.WriteString("END $spool$;\n")
	if role != "" {
		fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA %[1]s TO %[2]s;\nGRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO %[2]s;\nGRANT USAGE ON ALL SEQUENCES IN SCHEMA %[1]s TO %[2]s;\nGRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO %[2]s;\n",
			name, pgx.Identifier{role}.Sanitize())
	}
	b.WriteString("COMMIT;\n")
	return b.String(), nil
}

// maxIdentifier is the length of a name in the engine.
const maxIdentifier = 63

// migrate makes the tables, or what a newer version adds. Of several processes one does it.
func (s *Store) migrate(ctx context.Context, c *pgx.Conn) error {
	v, err := s.versions(ctx, c)
	if err != nil {
		return err
	}
	if v.format > formatVersion {
		return chunk.ErrInvalid.Because(fmt.Sprintf("the tables are of version %d, and this program knows %d: it is too old", v.format, formatVersion))
	}
	if v.applied >= schemaVersion {
		return nil
	}
	sql, err := Schema(s.schema, "")
	if err == nil {
		_, err = c.PgConn().Exec(ctx, sql).ReadAll()
	}
	if e := serverError(err); e != nil && e.Code == codePrivilege {
		return chunk.ErrInvalid.Because(fmt.Sprintf("the role may not make the tables: they are at migration %d of %d", v.applied, schemaVersion)).With("", err)
	}
	return err
}

// tableVersions are those of the tables; zero if there are none.
type tableVersions struct{ format, applied int }

func (s *Store) versions(ctx context.Context, c *pgx.Conn) (v tableVersions, err error) {
	var there bool
	if err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.schema+".meta").Scan(&there); err != nil || !there {
		return v, err
	}
	err = c.QueryRow(ctx, "SELECT version, coalesce((to_json(meta)->>'applied')::integer, version) FROM meta").Scan(&v.format, &v.applied)
	return v, err
}

// identity names the cluster and its timeline, which changes with each promotion and each
// recovery from a backup to a point in time.
const identity = "SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)"

// noticeLoss is called with each new connection. If the tables belong to another history
// than before, which may lack what was acknowledged, it raises all numbers.
func (s *Store) noticeLoss(ctx context.Context, c *pgx.Conn) error {
	var now string
	if err := c.QueryRow(ctx, s.identity).Scan(&now); err != nil {
		if known, ok := errors.AsType[*pgconn.PgError](err); !ok || known.Code != codePrivilege {
			return err
		}
		return s.learn(ctx, c) // without the permission a loss goes unnoticed
	}
	var noted string
	var losses int64
	if err := c.QueryRow(ctx, "SELECT identity, losses FROM meta").Scan(&noted, &losses); err != nil {
		return err
	}
	if noted == now {
		s.raise(losses)
		return nil
	}
	err := pgx.BeginFunc(ctx, c, func(t pgx.Tx) error {
		if err := t.QueryRow(ctx, "SELECT identity, losses FROM meta FOR UPDATE").Scan(&noted, &losses); err != nil || noted == now {
			return err
		}
		if _, err := t.Exec(ctx, "UPDATE meta SET identity = $1", now); err != nil || noted == "" {
			return err
		}
		losses++
		for _, sql := range []string{
			"UPDATE meta SET losses = losses + 1",
			"DELETE FROM writer",
		} {
			if _, err := t.Exec(ctx, sql); err != nil {
				return err
			}
		}
		_, err := t.Exec(ctx, `UPDATE session SET incarnation = incarnation + $1, epoch = epoch + $1, version = version + $2, writers = 0,
 lease_claim = '', lease_owner = '', lease_ttl = 0, lease_expires = 0,
 ready = CASE WHEN NOT alive OR hidden THEN NULL WHEN status = 'active' THEN 0 WHEN due <> 0 THEN due END
 WHERE incarnation > 0`, int64(contract.Generation), int64(versions))
		return err
	})
	if err == nil {
		s.raise(losses)
	}
	return err
}

func (s *Store) learn(ctx context.Context, c *pgx.Conn) error {
	var losses int64
	err := c.QueryRow(ctx, "SELECT losses FROM meta").Scan(&losses)
	s.raise(losses)
	return err
}

// raise notes how many losses there were.
func (s *Store) raise(losses int64) {
	for {
		was := s.losses.Load()
		if losses <= was || s.losses.CompareAndSwap(was, losses) {
			return
		}
	}
}

// blank is what a session that never existed has instead of a tombstone: numbers that a lost
// session of that name may have had are not given out again.
func (s *Store) blank() spool.Head {
	g := uint64(s.losses.Load()) * contract.Generation
	return spool.Head{Epoch: g, Incarnation: g}
}
