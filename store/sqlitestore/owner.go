package sqlitestore

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/filelock"
)

// life proves that this store's process lives, and finds out which others do not. For its
// first lease that is bound to the process, a store makes the file PATH-owner-TOKEN and
// keeps it locked. The operating system gives the lock up with the process, however that
// ends, and not before: a stopped process keeps it. So a lock that can be taken proves that
// the owners of its file's leases are dead.
//
// The token, which is never used again, precedes the owner in the lease. On a file system
// that may be shared with other hosts, and if anything fails, no lease has a token, and
// leases expire by their TTL.
type life struct {
	prefix string // PATH-owner-

	mu    sync.Mutex
	tried bool
	token string // "": there is no proof
	file  *os.File
}

// sign returns the text that stands for an owner in a lease bound to this process.
func (l *life) sign(owner string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tried {
		l.tried = true
		l.begin()
	}
	if l.token == "" {
		return owner
	}
	return signature(l.token) + owner
}

func signature(token string) string { return token + " " }

// begin makes and locks the file.
func (l *life) begin() {
	if !localDisk(filepath.Dir(l.prefix)) {
		return
	}
	// Another process may take a file that is not locked yet for that of a dead one, and
	// remove it.
	for range 10 {
		token := rand.Text()
		path := l.prefix + token
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return
		}
		if filelock.Lock(f) == nil && inPlace(path, f) {
			l.token, l.file = token, f
			return
		}
		_ = f.Close()
		_ = os.Remove(path)
	}
}

func inPlace(path string, f *os.File) bool {
	file, err := f.Stat()
	return err == nil && names(path, file)
}

// end removes the file. Leases that were not released expire by their TTL.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried = true
	if l.file == nil {
		return
	}
	_ = os.Remove(l.prefix + l.token) // while it is locked, or fails on Windows
	_ = l.file.Close()
	_ = os.Remove(l.prefix + l.token)
	l.token, l.file = "", nil
}

// others returns the tokens of the other stores that have a file, living or dead.
func (l *life) others() (tokens []string) {
	dir, err := os.Open(filepath.Dir(l.prefix))
	if err != nil {
		return nil
	}
	defer dir.Close()
	entries, _ := dir.ReadDir(-1)
	l.mu.Lock()
	own := l.token
	l.mu.Unlock()
	prefix := filepath.Base(l.prefix)
	for _, e := range entries {
		token, ok := strings.CutPrefix(e.Name(), prefix)
		if ok && token != own && isToken(token) && e.Type().IsRegular() {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// isToken reports whether a text may come from rand.Text. Other files are not touched,
// whatever they are called.
func isToken(text string) bool {
	return len(text) >= 26 && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// dead returns the tokens of processes that have ended without closing their stores.
// Their files stay locked, so that nobody else takes care of them, until done is called.
func (l *life) dead() (tokens []string, done func(released bool)) {
	others := l.others()
	if len(others) == 0 || !localDisk(filepath.Dir(l.prefix)) {
		return nil, nil
	}
	var files []*os.File
	for _, token := range others {
		f, err := os.OpenFile(l.prefix+token, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if filelock.Lock(f) != nil || !inPlace(l.prefix+token, f) {
			_ = f.Close()
			continue
		}
		tokens, files = append(tokens, token), append(files, f)
	}
	return tokens, func(released bool) {
		for i, f := range files {
			_ = f.Close()
			if released {
				_ = os.Remove(l.prefix + tokens[i])
			}
		}
	}
}

// releaseDead releases the leases that dead processes held.
func (s *Store) releaseDead(ctx context.Context) error {
	tokens, done := s.life.dead()
	if len(tokens) == 0 {
		return nil
	}
	released := false
	defer func() { done(released) }()
	for _, token := range tokens {
		var ids []string
		from, to := signature(token), signature(token)+"\U0010ffff"
		if err := s.read(ctx, func(c *conn) error {
			ids = nil
			return c.query(func(row []driver.Value) error {
				id, _ := row[0].(string)
				ids = append(ids, id)
				return nil
			}, "SELECT id FROM session WHERE lease_owner > +? AND lease_owner < +?", from, to)
		}); err != nil {
			return err
		}
		for len(ids) > 0 {
			some := ids[:min(len(ids), slice)]
			ids = ids[len(some):]
			if err := s.write(ctx, len(some), func(t *tx) error {
				for _, id := range some {
					st, err := t.session(id)
					if err != nil {
						return err
					}
					if strings.HasPrefix(st.owner, from) { // nobody has claimed it by force
						st.release()
						t.touch(st)
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	released = true
	return nil
}

// releaseDeadIfPossible is releaseDead for calls that go on if it fails: then the leases
// expire by their TTL.
func (s *Store) releaseDeadIfPossible(ctx context.Context) error {
	if err := s.releaseDead(ctx); errors.Is(err, spool.ErrClosed) || ctx.Err() != nil {
		return err
	}
	return nil
}
