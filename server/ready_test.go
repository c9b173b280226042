package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// probed is a store that says by its field whether it can write.
type probed struct {
	*memstore.Store
	probes int
	err    error
}

func (p *probed) Probe(context.Context) error {
	p.probes++
	return p.err
}

// Readiness tries a write, at most every 5 s, and says why it fails for as long as it
// does.
func TestReadyTriesAWrite(t *testing.T) {
	t.Parallel()
	store := &probed{Store: memstore.New(nil)}
	now := time.Unix(1_800_000_000, 0)
	logs := spool.NewLogs(store, &spool.Options{Now: func() time.Time { return now }})
	t.Cleanup(func() { _ = logs.Close() })
	k := newKit(t, nil).over(logs, nil)
	ask := func() string {
		t.Helper()
		res := k.do("GET", "/readyz", "")
		return fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After") != "")
	}
	for range 3 {
		if got := ask(); got != "200 false" {
			t.Errorf("ready: %s", got)
		}
	}
	store.err = spool.ErrUnavailable.Because("the disk is full").With("", spool.ErrNotStored.With("", errors.New("secret path")))
	now = now.Add(4999 * time.Millisecond)
	if got := ask(); got != "200 false" || store.probes != 1 {
		t.Errorf("within 5 s: %s after %d probes", got, store.probes)
	}
	now = now.Add(time.Millisecond)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p := k.problem(http.StatusServiceUnavailable, "unavailable", "GET", "/readyz", "")
			if !strings.Contains(p.Error, "the disk is full") || strings.Contains(p.Error, "secret") {
				t.Errorf("the reason is %q", p.Error)
			}
		})
	}
	wg.Wait()
	if store.probes != 2 {
		t.Errorf("%d probes, want 2", store.probes)
	}
	now = now.Add(5 * time.Second)
	store.err = context.DeadlineExceeded
	if p := k.problem(http.StatusServiceUnavailable, "unavailable", "GET", "/readyz", ""); !strings.Contains(p.Error, "in time") {
		t.Errorf("the reason is %q", p.Error)
	}
	now = now.Add(5 * time.Second)
	store.err = nil
	if got := ask(); got != "200 false" {
		t.Errorf("ready again: %s", got)
	}
	if page, err := store.Sessions(t.Context(), spool.SessionQuery{}); err != nil || len(page.Sessions) > 0 {
		t.Errorf("it left %+v, %v", page, err)
	}
}

// A store that is away makes a server unready, and not unhealthy: restarting it would not
// help. Logs that are closed do not come back.
func TestHealthIsNotReadiness(t *testing.T) {
	t.Parallel()
	store := &probed{Store: memstore.New(nil), err: spool.ErrUnavailable}
	logs := spool.NewLogs(store, nil)
	k := newKit(t, nil).over(logs, nil)
	k.status(http.StatusOK, "GET", "/healthz", "")
	if p := k.problem(http.StatusServiceUnavailable, "unavailable", "GET", "/readyz", ""); p.Hint == "" {
		t.Errorf("%+v", p)
	}
	k.status(http.StatusOK, "GET", "/healthz", "")
	if store.probes != 1 {
		t.Errorf("%d probes", store.probes)
	}
	if err := logs.Close(); err != nil {
		t.Fatal(err)
	}
	k.problem(http.StatusServiceUnavailable, "closed", "GET", "/healthz", "")
}

// appending counts the appends that reach a store.
type appending struct {
	*sqlitestore.Store
	n atomic.Int32
}

func (a *appending) Append(ctx context.Context, in spool.Append) (spool.Appended, error) {
	a.n.Add(1)
	return a.Store.Append(ctx, in)
}

// A POST to a store whose file was deleted is answered at once: what is wrong and what to
// do, and not that the outcome is unknown. Readiness says the same.
func TestPostToALostFile(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"", "-wal"} {
		path := filepath.Join(t.TempDir(), "spool.db")
		store, err := sqlitestore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		appends := &appending{Store: store}
		logs := spool.NewLogs(appends, nil)
		t.Cleanup(func() { _ = logs.Close() })
		k := newKit(t, nil).over(logs, &server.Options{})
		_ = k.say("before", "u1", "hi").res.Body.Close() // reads have a connection
		appends.n.Store(0)
		if err := os.Remove(path + gone); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/api/chat/s", "/merlin/v1/s", "/readyz"} {
			method := "POST"
			if path == "/readyz" {
				method = "GET"
			}
			p := k.problem(http.StatusServiceUnavailable, "unavailable", method, path, userBody("s", "u1", "hi"))
			if !strings.Contains(p.Error, "file was deleted or replaced") || p.Hint == "" {
				t.Errorf("%s: %+v", path, p)
			}
		}
		if n := appends.n.Load(); n != 2 {
			t.Errorf("two POSTs tried %d appends", n)
		}
	}
}
