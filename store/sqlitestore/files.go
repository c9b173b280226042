package sqlitestore

import (
	"context"
	"database/sql/driver"
	"os"

	"github.com/spool-run/spool"
)

// suffixes are those of the files of an open database: the database, its write-ahead log,
// and the index of that. The last two exist as long as a connection is open.
var suffixes = [...]string{"", "-wal", "-shm"}

// note remembers which files were opened.
func (s *Store) note() (err error) {
	for i, suffix := range suffixes {
		s.paths[i] = s.path + suffix
		if s.files[i], err = os.Stat(s.paths[i]); err != nil {
			return err
		}
	}
	return nil
}

// there reports whether a path still names the file that was opened.
func (s *Store) there(i int) bool { return names(s.paths[i], s.files[i]) }

// names reports whether a path names a file.
func names(path string, file os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, file)
}

// inPlace reports whether the paths still name the files that were opened. SQLite would
// continue with deleted files, and all that it acknowledges would be lost when the process
// ends.
func (s *Store) inPlace() error {
	for i := range suffixes {
		if s.there(i) {
			continue
		}
		e := spool.ErrUnavailable.Because("the database file was deleted or replaced while it was open")
		e.Hint = "restore the file, or restart with a new one"
		if i > 0 {
			e = e.Because("the database's " + suffixes[i] + " file was deleted or replaced while the database was open")
			e.Hint = "restart the server; nothing but the server may delete the files beside the database"
		}
		return e
	}
	return nil
}

// rescue copies the records in a deleted write-ahead log into the database, from where the
// next start reads them. It does nothing once another process has written: that one has a
// write-ahead log of its own by now.
func (w *writer) rescue() {
	if w.rescued || !w.s.there(0) {
		return
	}
	if v, err := w.c.number("PRAGMA data_version"); err != nil || v != w.dataVersion {
		return
	}
	_ = w.c.query(func(row []driver.Value) error {
		busy, all, copied := row[0], row[1], row[2]
		w.rescued = busy == int64(0) && all == copied
		return nil
	}, "PRAGMA wal_checkpoint(PASSIVE)")
}

// Probe writes a row that no session has, and removes it in the same transaction. The page
// that had it is written all the same.
func (s *Store) Probe(ctx context.Context) error {
	return s.write(ctx, 1, func(t *tx) error {
		if err := t.c.exec("INSERT INTO unsynced (token, boot) VALUES ('probe', '')"); err != nil {
			return err
		}
		return t.c.exec("DELETE FROM unsynced WHERE token = +?", "probe")
	})
}
