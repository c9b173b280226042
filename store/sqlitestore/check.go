package sqlitestore

import (
	"context"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/store/contract"
)

var _ contract.Checker = (*Store)(nil)

// Check implements [contract.Checker].
func (s *Store) Check(ctx context.Context) (found []contract.Finding) {
	say := func(check string, level contract.Level, hint, format string, args ...any) {
		found = append(found, contract.Finding{Check: check, Level: level, Hint: hint, Text: fmt.Sprintf(format, args...)})
	}
	var version, journal, sync string
	err := s.write(ctx, 1, func(t *tx) error {
		for sql, to := range map[string]*string{"SELECT sqlite_version()": &version, "PRAGMA journal_mode": &journal, "PRAGMA synchronous": &sync} {
			if err := t.c.query(func(row []driver.Value) error { *to = fmt.Sprint(row[0]); return nil }, sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		say("write", contract.Problem, "see that the disk has room and that this user may write the file and its folder", "the file cannot be written: %s", redact.Text(err.Error()))
		return found
	}
	say("version", contract.OK, "", "SQLite %s, schema %d", version, schemaVersion)
	if journal != "wal" {
		say("journal", contract.Problem, "put the file on a local disk: some file systems have no shared memory", "the journal mode is %s, not wal", journal)
	}
	if sync == "2" {
		say("durability", contract.OK, "", "an append is on the disk before it is acknowledged")
	} else {
		say("durability", contract.Warning, "leave out ?sync=normal if that matters", "the last appends may be lost when the power fails")
	}
	if !localDisk(filepath.Dir(s.path)) {
		say("disk", contract.Warning, "put the file on a local disk: over a network its locks may be lost", "it is not certain that the file is on a disk of this machine")
	}
	if i, err := os.Stat(s.path); err == nil && runtime.GOOS != "windows" && i.Mode().Perm()&0o077 != 0 {
		say("permissions", contract.Warning, fmt.Sprintf("chmod 600 %s*", s.path), "other users of this machine may open the file: its mode is %o", i.Mode().Perm())
	}
	return found
}
