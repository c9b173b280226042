package sqlitestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// ownFor claims a session for an hour, bound to this process, with an open run.
func ownFor(t *testing.T, s *Store, session string) spool.Lease {
	t.Helper()
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "an owner", Session: session, TTL: time.Hour, Force: true, InProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), spool.Append{Session: session, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusActive}}); err != nil {
		t.Fatal(err)
	}
	return l
}

// die lets a store's lock go as the operating system does when its process is killed.
func die(t *testing.T, s *Store) {
	t.Helper()
	if err := s.life.file.Close(); err != nil {
		t.Fatal(err)
	}
}

func owners(t *testing.T, path string) []os.DirEntry {
	t.Helper()
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e os.DirEntry) bool {
		return !strings.HasPrefix(e.Name(), filepath.Base(path)+"-owner-")
	})
}

func wantClaim(t *testing.T, s *Store, session string, want error) {
	t.Helper()
	l, err := s.Claim(t.Context(), spool.Claim{Owner: "next", Session: session})
	if !errors.Is(err, want) {
		t.Fatalf("claimed %+v, %v; want %v", l, err, want)
	}
}

// There is one file for each living store with such leases. It is its user's, is made with
// the first lease, and removed by Close or by who finds out that the process is dead.
func TestOwnerFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	count := func(want int) {
		t.Helper()
		if got := owners(t, path); len(got) != want {
			t.Fatalf("there are %v, want %d", got, want)
		}
	}
	one, two, three := mustOpen(t, path, nil, "boot"), mustOpen(t, path, nil, "boot"), mustOpen(t, path, nil, "boot")
	put(t, one, "a")
	wantClaim(t, one, "s", nil)
	count(0)
	for i, s := range []*Store{one, two, three} {
		ownFor(t, s, fmt.Sprint("s", i))
		ownFor(t, s, fmt.Sprint("more", i))
	}
	count(3)
	for _, f := range owners(t, path) {
		if i, err := f.Info(); err != nil || i.Mode() != 0o600 { // a regular file, for rm -f spool.db*
			t.Errorf("%s: %v, %v", f.Name(), i.Mode(), err)
		}
	}
	if err := three.Close(); err != nil {
		t.Fatal(err)
	}
	count(2)
	wantClaim(t, one, "s2", spool.ErrNothingDue) // it may be open again elsewhere: the lease says how long it lasts
	die(t, two)
	count(2)
	wantClaim(t, one, "", nil)
	wantClaim(t, one, "", nil)
	wantClaim(t, one, "", spool.ErrNothingDue)
	count(1)
	if err := errors.Join(one.Close(), two.Close()); err != nil {
		t.Fatal(err)
	}
	count(0)
}

// What only looks like a lock file is left alone.
func TestOtherFilesStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	s := mustOpen(t, path, nil, "boot")
	put(t, s, "a")
	token := strings.Repeat("A", 26)
	for _, name := range []string{"", "notes", token[1:], token + ".bak", strings.ToLower(token)} {
		if err := os.WriteFile(path+"-owner-"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(path+"-owner-"+token, 0o700); err != nil {
		t.Fatal(err)
	}
	wantClaim(t, s, "s", nil)
	if got := owners(t, path); len(got) != 6 {
		t.Errorf("left are %v", got)
	}
}

// Without a proof leases expire by their TTL: where no file can be made, where the files
// are deleted, and for leases that are not bound to a process.
func TestNoProofOfDeath(t *testing.T) {
	// No file's name can be longer than 255 bytes; that of the lock would be.
	for name, base := range map[string]string{"none can be made": strings.Repeat("s", 240), "deleted": "spool.db"} {
		t.Run(name, func(t *testing.T) {
			path, now := filepath.Join(t.TempDir(), base), time.Now()
			o := &Options{Now: func() time.Time { return now }}
			s, other := mustOpen(t, path, o, "boot"), mustOpen(t, path, o, "boot")
			l := ownFor(t, s, "s")
			if files := owners(t, path); base == "spool.db" {
				if err := os.Remove(filepath.Join(filepath.Dir(path), files[0].Name())); err != nil {
					t.Fatal(err)
				}
				die(t, s)
			} else if len(files) > 0 {
				t.Fatalf("there are %v", files)
			}
			wantClaim(t, other, "s", spool.ErrNothingDue)
			if err := s.Renew(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Hour)
			wantClaim(t, other, "s", nil)
		})
	}
}

// A session that was claimed by force, after its first owner's death, is its new owner's.
func TestReleasedAfterATakeover(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	dead, s := mustOpen(t, path, nil, "boot"), mustOpen(t, path, nil, "boot")
	ownFor(t, dead, "s")
	ownFor(t, dead, "other")
	l := ownFor(t, s, "s")
	die(t, dead)
	wantClaim(t, s, "other", nil)
	wantClaim(t, s, "s", spool.ErrNothingDue)
	if err := s.Renew(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}
