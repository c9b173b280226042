package pgstore

import (
	"context"
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
	schemaVersion = 1
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
// has changed.
var migrations = [schemaVersion]string{`
CREATE TABLE meta (
  version integer NOT NULL,
  identity text NOT NULL DEFAULT '',
  losses bigint NOT NULL DEFAULT 0
);
INSERT INTO meta (version) VALUES (1);
CREATE SEQUENCE session_sid;
CREATE TABLE session (
  id text COLLATE "C" PRIMARY KEY,
  sid bigint NOT NULL UNIQUE DEFAULT nextval('session_sid'),
  alive boolean NOT NULL DEFAULT false,
  seq bigint NOT NULL DEFAULT 0,
  incarnation bigint NOT NULL DEFAULT 0,
  trace_floor bigint NOT NULL DEFAULT 0,
  floor bigint NOT NULL DEFAULT 0,
  epoch bigint NOT NULL DEFAULT 0,
  status text COLLATE "C" NOT NULL DEFAULT '',
  due bigint NOT NULL DEFAULT 0,
  last_command bigint NOT NULL DEFAULT 0,
  pending boolean NOT NULL DEFAULT false,
  hidden boolean NOT NULL DEFAULT false,
  agent text COLLATE "C" NOT NULL DEFAULT '',
  principal text COLLATE "C" NOT NULL DEFAULT '',
  title text COLLATE "C" NOT NULL DEFAULT '',
  updated bigint NOT NULL DEFAULT 0,
  listed bigint,
  bytes bigint NOT NULL DEFAULT 0,
  lease_claim text COLLATE "C" NOT NULL DEFAULT '',
  lease_owner text COLLATE "C" NOT NULL DEFAULT '',
  lease_ttl bigint NOT NULL DEFAULT 0,
  lease_expires bigint NOT NULL DEFAULT 0,
  ready bigint,
  trace_trimmed bigint NOT NULL DEFAULT 0,
  trimmed bigint NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 0,
  writers integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE INDEX session_ready ON session (ready) WHERE ready IS NOT NULL;
CREATE INDEX session_claim ON session (lease_claim) WHERE lease_claim <> '';
CREATE INDEX session_listed ON session (listed) WHERE listed IS NOT NULL;
CREATE INDEX session_status ON session (status, listed) WHERE listed IS NOT NULL;
CREATE INDEX session_principal ON session (principal, listed) WHERE principal <> '' AND listed IS NOT NULL;
CREATE TABLE record (
  sid bigint NOT NULL,
  seq bigint NOT NULL,
  type text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  time bigint NOT NULL,
  trace smallint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sid, seq)
);
CREATE INDEX record_kept ON record (sid, seq) WHERE trace = 0;
CREATE TABLE writer (
  sid bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  ordinal bigint NOT NULL,
  first bigint NOT NULL,
  last bigint NOT NULL,
  PRIMARY KEY (sid, name)
) WITH (fillfactor = 50);
CREATE TABLE fold (
  sid bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  incarnation bigint NOT NULL,
  seq bigint NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sid, name)
);
CREATE TABLE blob (
  sid bigint NOT NULL,
  hash text COLLATE "C" NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (sid, hash)
);
CREATE TABLE garbage (sid bigint PRIMARY KEY);
CREATE TABLE probe (at timestamptz NOT NULL);
`}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

func checkSchema(name string) error {
	if !schemaName.MatchString(name) || strings.HasPrefix(name, "pg_") {
		return chunk.ErrInvalid.Because("the name of the schema must be lower-case letters, digits and underscores, 48 at most, and not begin with pg_ or a digit")
	}
	return nil
}

// Schema returns the statements that make the tables in the schema with this name ("":
// "spool"), for those who do not let the store make them. It fails with [chunk.ErrInvalid].
func Schema(name string) (string, error) {
	if name == "" {
		name = defaultSchema
	}
	if err := checkSchema(name); err != nil {
		return "", err
	}
	return fmt.Sprintf("BEGIN;\nCREATE SCHEMA IF NOT EXISTS %s;\nSET LOCAL search_path = %s;\n%s\nCOMMIT;\n", name, name, strings.TrimSpace(strings.Join(migrations[:], ""))), nil
}

// migrate makes the tables, or those that a newer version adds. Of several processes one
// does it.
func (s *Store) migrate(ctx context.Context, c *pgx.Conn) error {
	have, err := s.version(ctx, c)
	if err == nil && have == 0 || err == nil && have < schemaVersion {
		err = pgx.BeginFunc(ctx, c, func(t pgx.Tx) error {
			if _, err := t.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", "spool:"+s.schema); err != nil {
				return err
			}
			if have, err = s.version(ctx, c); err != nil {
				return err
			}
			if have == 0 {
				if _, err := t.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+s.schema); err != nil {
					return err
				}
			}
			for ; have < schemaVersion; have++ {
				if _, err := t.Conn().PgConn().Exec(ctx, migrations[have]).ReadAll(); err != nil {
					return err
				}
			}
			_, err := t.Exec(ctx, "UPDATE meta SET version = $1", schemaVersion)
			return err
		})
	}
	if err == nil && have > schemaVersion {
		err = chunk.ErrInvalid.Because(fmt.Sprintf("the tables are of version %d, and this program knows %d: it is too old", have, schemaVersion))
	}
	return err
}

// version returns that of the tables, 0 if there are none.
func (s *Store) version(ctx context.Context, c *pgx.Conn) (have int, err error) {
	var there bool
	if err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.schema+".meta").Scan(&there); err != nil || !there {
		return 0, err
	}
	err = c.QueryRow(ctx, "SELECT version FROM meta").Scan(&have)
	return have, err
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
