package sqlitestore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/store/contract"
)

// A check says which settings lose what, and who may read the file.
func TestCheck(t *testing.T) {
	for sync, want := range map[string]contract.Level{"": contract.OK, SyncNormal: contract.Warning} {
		path := filepath.Join(t.TempDir(), "spool.db")
		s, err := Open(path, &Options{Sync: sync})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		level := map[string]contract.Finding{}
		for _, f := range s.Check(t.Context()) {
			level[f.Check] = f
		}
		if level["durability"].Level != want || !strings.HasPrefix(level["version"].Text, "SQLite 3.") {
			t.Errorf("sync=%s: %+v", sync, level)
		}
		if _, ok := level["permissions"]; ok {
			t.Errorf("%+v", level)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		found := s.Check(t.Context())
		if last := found[len(found)-1]; last.Check != "permissions" || last.Level != contract.Warning || !strings.Contains(last.Hint, path) {
			t.Errorf("%+v", found)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if found := s.Check(t.Context()); len(found) != 1 || found[0].Level != contract.Problem {
			t.Errorf("closed: %+v", found)
		}
	}
}
