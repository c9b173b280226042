package server_test

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing/fstest"

	"github.com/spool-run/spool/server/frontend"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
)

func noGrace() server.Options { return server.Options{Chat: chat.Options{ReplayGrace: -1}} }

func (k *kit) snapshot(session string) frontend.Snapshot {
	k.Helper()
	var s frontend.Snapshot
	if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/api/chat/"+session+"/snapshot", ""), &s); err != nil {
		k.Fatal(err)
	}
	return s
}

// atOnce posts bodies at the same time and returns the statuses, sorted.
func (k *kit) atOnce(path string, bodies ...string) []int {
	k.Helper()
	codes := make([]int, len(bodies))
	var wg sync.WaitGroup
	for i, body := range bodies {
		wg.Go(func() {
			res, err := http.Post(k.http.URL+path, "application/json", strings.NewReader(body))
			if err != nil {
				k.Error(err)
				return
			}
			_ = res.Body.Close()
			codes[i] = res.StatusCode
		})
	}
	wg.Wait()
	slices.Sort(codes)
	return codes
}

// beside is a second server over the same logs.
func (k *kit) beside(o *server.Options) *kit {
	k.Helper()
	return k.over(k.logs, o)
}

// restarted is another process on the same store, which remembers nothing.
func (k *kit) restarted() *kit {
	k.Helper()
	logs := spool.NewLogs(k.store, nil)
	k.Cleanup(func() { _ = logs.Close() })
	return k.over(logs, nil)
}

func (k *kit) over(logs *spool.Logs, o *server.Options) *kit {
	b := &kit{T: k.T, store: k.store, logs: logs, srv: server.New(logs, hijacking(k, o))}
	b.http = httptest.NewServer(asDescribed(k, b.srv))
	k.Cleanup(func() {
		b.http.CloseClientConnections()
		b.http.Close()
	})
	return b
}

// execute has a runner execute an agent's sessions until the test ends.
func (k *kit) execute(a *agent.Agent) {
	k.Helper()
	r, err := runner.New(k.logs, []*agent.Agent{a}, &runner.Options{Linger: -1})
	if err != nil {
		k.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(k.Context()) }()
	k.Cleanup(func() { _ = r.Close(); <-done })
}

func assets() fs.FS {
	return fstest.MapFS{
		"index.html":      {Data: []byte("<p>page")},
		"inspect.html":    {Data: []byte("<p>inspector")},
		"assets/a-123.js": {Data: []byte("1")},
	}
}

func newSSE(res *http.Response) *sse.Reader { return sse.NewReader(res.Body, nil) }
