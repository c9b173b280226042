//go:build nodes

package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/engines"
)

// The commits whose servers run beside today's: the last one before there were stores for
// several machines, and the last one before PostgreSQL got a function that appends.
const (
	earlierSQLite   = "21ad0da765897e523a014ddb5212c274e933bed9"
	earlierPostgres = "98be3f4a3a0a6ddc179f544bddeec673cb81e182"
)

// buildEarlier builds the server of an earlier commit. Where the history is cut short, the
// last commit takes its place: then processes are replaced, but not versions.
func buildEarlier(t *testing.T, earlier string) string {
	t.Helper()
	dir, commit := t.TempDir(), earlier
	if exec.Command("git", "-C", "../..", "cat-file", "-e", commit+"^{commit}").Run() != nil {
		commit = "HEAD"
		t.Logf("the history does not reach back to %s: %s takes its place", earlier, commit)
	}
	for _, command := range []string{`git -C ../.. archive "$COMMIT" | tar -x -C "$DIR"`, `cd "$DIR" && go build -o spool-earlier ./cmd/spool`} {
		c := exec.Command("bash", "-o", "pipefail", "-c", command)
		c.Env = append(os.Environ(), "COMMIT="+commit, "DIR="+dir)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	return filepath.Join(dir, "spool-earlier")
}

// alternating sends each request to the next of several servers.
type alternating struct {
	mu sync.Mutex
	n  int
	to []*url.URL
}

func (a *alternating) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	to := a.to[a.n%len(a.to)]
	a.n++
	a.mu.Unlock()
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// serve says which servers there are.
func (a *alternating) serve(t *testing.T, servers ...*spoolServer) {
	t.Helper()
	var to []*url.URL
	for _, s := range servers {
		u, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		to = append(to, u)
	}
	a.mu.Lock()
	a.to = to
	a.mu.Unlock()
}

// Two servers of an earlier version share a store. They are replaced one after the other by
// today's, and one of those by the earlier version again, while users send messages to any of
// them and read the answers from any. Runs go over between the versions in both directions, and
// nobody notices: nothing is lost, doubled or recovered.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		rollUpgrade(t, earlierSQLite, "sqlite:"+filepath.Join(t.TempDir(), "upgrade.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		rollUpgrade(t, earlierPostgres, engines.PostgresURL(engines.Postgres(t).Addr()))
	})
}

func rollUpgrade(t *testing.T, earlier, store string) {
	old := buildEarlier(t, earlier)
	today, err := exec.LookPath("spool")
	if err != nil {
		t.Fatal(err)
	}
	const users, handOvers = 6, 2 // in each stage
	start := func(binary string) *spoolServer {
		return serveBinary(t, binary, "", "", "--store", store, "--demo-rate", "200", "--drain-grace", "1h", "--heartbeat", "1s")
	}
	nodes := []*spoolServer{start(old), start(old)}
	lb := &alternating{}
	lb.serve(t, nodes...)
	c, err := client.New("http://spool", &client.Options{HTTP: &http.Client{Transport: lb}, Retry: client.Retry{Max: -1, Base: time.Millisecond, Cap: 100 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	var handed, turns atomic.Int64
	midway, over := make(chan struct{}, 1), make(chan struct{})
	var workers sync.WaitGroup
	for user := range users {
		workers.Go(func() {
			for turn := 0; ; turn++ {
				select {
				case <-over:
					return
				default:
				}
				if err := rollingTurn(t.Context(), c.Session(fmt.Sprintf("user-%d-%d", user, turn)), &handed, midway); err != nil {
					t.Errorf("user %d, turn %d: %v", user, turn, err)
					tell(midway)
					return
				}
				turns.Add(1)
			}
		})
	}
	for _, stage := range []struct {
		name   string
		i      int
		binary string
	}{{"today beside the earlier one", 0, today}, {"both today", 1, today}, {"back to the earlier one", 0, old}, {"and to today again", 0, today}} {
		for begun := handed.Load(); handed.Load() < begun+handOvers && !t.Failed(); {
			<-midway
			next := start(stage.binary)
			lb.serve(t, nodes[1-stage.i], next)
			nodes[stage.i].end()
			nodes[stage.i] = next
		}
		t.Logf("%s: %d turns, %d hand-overs", stage.name, turns.Load(), handed.Load())
	}
	close(over)
	workers.Wait()
	for _, n := range nodes {
		n.end()
	}
}
