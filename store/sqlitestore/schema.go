package sqlitestore

import (
	"cmp"
	"crypto/rand"
	"database/sql/driver"
	"fmt"
	"os"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

const (
	schemaVersion = 4
	applicationID = 0x53504c31 // "SPL1", for file(1) and other programs
)

// The schema can be read with the sqlite3 command. Times are Unix milliseconds. A
// deleted session stays as a row with alive = 0. A session with incarnation = 0 has
// blobs but no log yet. trace_trimmed and trimmed tell how far the records below
// trace_floor and floor have been removed. lease_owner begins with a token and a space if
// its process keeps the file PATH-owner-TOKEN locked. ready is the time from which the session
// can be claimed, but not before its lease has expired. listed is updated in units of ten seconds, and NULL for a deleted
// session: listings walk its indexes, which therefore change at most once in ten seconds.
// bytes is the size of the session's records and blobs.
const schema = `
CREATE TABLE session (
  sid INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  alive INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  trace_floor INTEGER NOT NULL,
  floor INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  status TEXT NOT NULL,
  due INTEGER NOT NULL,
  last_command INTEGER NOT NULL,
  agent TEXT NOT NULL,
  principal TEXT NOT NULL,
  title TEXT NOT NULL,
  updated INTEGER NOT NULL,
  lease_owner TEXT NOT NULL,
  lease_ttl INTEGER NOT NULL,
  lease_expires INTEGER NOT NULL,
  trace_trimmed INTEGER NOT NULL,
  trimmed INTEGER NOT NULL,
  ready INTEGER,
  version INTEGER NOT NULL,
  listed INTEGER,
  pending INTEGER NOT NULL DEFAULT 0,
  hidden INTEGER NOT NULL DEFAULT 0,
  lease_claim TEXT NOT NULL DEFAULT '',
  bytes INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX session_ready ON session (ready) WHERE ready IS NOT NULL;
` + claims + `
CREATE TABLE record (
  sid INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  type TEXT NOT NULL,
  agent TEXT NOT NULL,
  time INTEGER NOT NULL,
  trace INTEGER NOT NULL,
  data TEXT NOT NULL
);
CREATE UNIQUE INDEX record_seq ON record (sid, seq);
CREATE INDEX record_kept ON record (sid, seq) WHERE trace = 0;
CREATE TABLE writer (
  sid INTEGER NOT NULL,
  name TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  PRIMARY KEY (sid, name)
) WITHOUT ROWID;
CREATE TABLE fold (
  sid INTEGER NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (sid, name)
);
CREATE TABLE blob (
  sid INTEGER NOT NULL,
  hash TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (sid, hash)
);
CREATE TABLE garbage (sid INTEGER PRIMARY KEY);
CREATE TABLE unsynced (token TEXT PRIMARY KEY, boot TEXT NOT NULL);
` + listings

// claims is the index of the leases, by the ids of their claims.
const claims = `
CREATE INDEX session_claim ON session (lease_claim) WHERE lease_claim <> '';
`

// listings are the indexes of listings: of all sessions, of those in a status, and of a
// principal's.
const listings = `
CREATE INDEX session_listed ON session (listed) WHERE listed IS NOT NULL;
CREATE INDEX session_status ON session (status, listed) WHERE listed IS NOT NULL;
CREATE INDEX session_principal ON session (principal, listed) WHERE principal <> '' AND listed IS NOT NULL;
`

// upgrades bring a database of an older schema to the next one: upgrades[0] from 1 to 2.
// In schema 2 a due time was the only sign of a command that waits; in a paused session it
// could also be when the pause expires.
var upgrades = [schemaVersion - 1]string{
	`ALTER TABLE session ADD COLUMN listed INTEGER;
UPDATE session SET listed = updated / 10000 WHERE alive = 1;
DROP INDEX session_principal;` + listings,
	`ALTER TABLE session ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN lease_claim TEXT NOT NULL DEFAULT '';
UPDATE session SET pending = 1 WHERE due <> 0 AND (status <> 'paused' OR due <= updated);
UPDATE session SET hidden = 1, status = 'ended' WHERE status = 'copying';` + claims,
	`ALTER TABLE session ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE session SET bytes = (SELECT total(octet_length(data)) FROM record WHERE record.sid = session.sid)
 + (SELECT total(octet_length(data)) FROM blob WHERE blob.sid = session.sid);`,
}

// prepare makes, checks or upgrades the schema, on a connection without a transaction.
func prepare(c *conn, path string) error {
	// This is cheap if the file is in WAL mode already; otherwise it makes the file.
	if err := c.query(func([]driver.Value) error { return nil }, "PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	if err := c.script("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := build(c, path)
	if err != nil {
		c.script("ROLLBACK")
		return err
	}
	return c.script("COMMIT")
}

// build is prepare in its transaction.
func build(c *conn, path string) error {
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	switch {
	case version > schemaVersion:
		e := *chunk.ErrInvalid
		e.Message = fmt.Sprintf("a newer program wrote %s: its schema version is %d, this program knows %d", path, version, schemaVersion)
		e.Hint = "use the newer program, or another file"
		return &e
	case version > 0:
		if app, err := c.number("PRAGMA application_id"); err != nil || app != applicationID {
			return cmp.Or(err, refuse(path, "it belongs to another program"))
		}
		if version == schemaVersion {
			return nil
		}
		for _, sql := range upgrades[version-1:] {
			if err := c.script(sql); err != nil {
				return err
			}
		}
		return c.script(fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	case version < 0 || tables > 0:
		return refuse(path, "it belongs to another program")
	}
	if err := c.script(schema); err != nil {
		return err
	}
	return c.script(fmt.Sprintf("PRAGMA user_version = %d; PRAGMA application_id = %d", schemaVersion, applicationID))
}

func refuse(path, why string) error {
	return chunk.ErrInvalid.Because(fmt.Sprintf("%s is not a Spool database: %s", path, why))
}

// bootID identifies the host's present boot; "" if the host does not tell it.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// raise begins another generation of incarnations and epochs, and ends all leases.
func raise(c *conn) error {
	if err := c.exec(`UPDATE session SET incarnation = incarnation + ?1, epoch = epoch + ?1, version = version + 1,
 lease_owner = '', lease_ttl = 0, lease_expires = 0, lease_claim = '',
 ready = CASE WHEN alive = 0 OR hidden = 1 THEN NULL WHEN status = 'active' THEN 0 WHEN due <> 0 THEN due END
 WHERE incarnation > 0`, int64(contract.Generation)); err != nil {
		return err
	}
	return c.exec("DELETE FROM writer")
}

// mark raises every log's incarnation if an earlier process wrote without syncing, did
// not close the store, and the host was restarted since: the last appends of that
// process may be lost. With unsynced set it leaves a mark for this process and returns
// the mark's name. Both writes are synced, even in a store that does not sync. The mark
// of a killed process stays until the host restarts, and then raises the incarnation
// even if nothing was lost.
func mark(c *conn, boot string, unsynced bool) (token string, err error) {
	lost, err := c.number("SELECT count(*) FROM unsynced WHERE boot <> ?1 OR ?1 = ''", boot)
	if err != nil || lost == 0 && !unsynced {
		return "", err
	}
	if err := c.script("PRAGMA synchronous = FULL; BEGIN IMMEDIATE"); err != nil {
		return "", err
	}
	err = func() error {
		// Read again inside the transaction: another process may open the file at the
		// same time.
		if lost, err = c.number("SELECT count(*) FROM unsynced WHERE boot <> ?1 OR ?1 = ''", boot); err != nil {
			return err
		}
		if lost > 0 {
			if err := raise(c); err != nil {
				return err
			}
			if err := c.exec("DELETE FROM unsynced WHERE boot <> ?1 OR ?1 = ''", boot); err != nil {
				return err
			}
		}
		if unsynced {
			token = rand.Text()
			return c.exec("INSERT INTO unsynced (token, boot) VALUES (?, ?)", token, boot)
		}
		return nil
	}()
	if err != nil {
		c.script("ROLLBACK")
		return "", err
	}
	return token, c.script("COMMIT")
}
