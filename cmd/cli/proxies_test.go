//go:build nodes

package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/engines"
)

// proxied is a proxy of the folder deploy in front of two servers on one store.
type proxied struct {
	name, version string // HTTP/1.1 or HTTP/2 between browsers and the proxy
	h2c           bool   // HTTP/2 in clear text between the proxy and the servers
}

const proxyPassword = "opensesame"

// start starts the proxy in front of servers at HOST:PORT. It returns the proxy's address, and
// a client that speaks the wanted version of HTTP with it.
func (p proxied) start(t *testing.T, nodes ...string) (at string, c *http.Client) {
	t.Helper()
	cert, key := makePair(t, t.TempDir(), "proxy")
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(p.version == "HTTP/1.1")
	tr.Protocols.SetHTTP2(p.version == "HTTP/2.0")
	t.Cleanup(tr.CloseIdleConnections)
	c = &http.Client{Transport: versioned{tr, p.version}}
	proxy := engines.Start(t, engines.Engine{
		Name: p.name,
		Command: func(dir string, port int) *exec.Cmd {
			if p.name == "nginx" {
				return nginx(t, dir, port, cert, key, nodes)
			}
			return caddy(t, dir, port, cert, key, nodes, p.h2c)
		},
		Ready: func(ctx context.Context, addr string) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+addr+"/healthz", nil)
			if err != nil {
				return err
			}
			res, err := c.Do(r)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return errors.New(res.Status)
			}
			return nil
		},
	})
	return "https://" + proxy.Addr(), c
}

// config is a file of the folder deploy with this machine's names in it. Each that is
// replaced must be there.
func config(t *testing.T, name string, replace ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s has no %q", name, replace[i])
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return text
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func nginx(t *testing.T, dir string, port int, cert, key string, nodes []string) *exec.Cmd {
	write(t, filepath.Join(dir, "users"), "ann:{PLAIN}"+proxyPassword+"\n")
	write(t, filepath.Join(dir, "spool.conf"), config(t, "nginx.conf",
		"127.0.0.1:8081", nodes[0], "127.0.0.1:8082", nodes[1], "listen 443", "listen "+engines.Loopback(port), "chat.example.com;", "localhost;",
		"/etc/letsencrypt/live/chat.example.com/fullchain.pem", cert, "/etc/letsencrypt/live/chat.example.com/privkey.pem", key,
		"/etc/nginx/spool.users", filepath.Join(dir, "users"), "proxy_read_timeout 60s", "proxy_read_timeout 5s"))
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // who can read the folder
	}
	var temp strings.Builder
	for _, of := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s;\n", of, filepath.Join(dir, of))
	}
	write(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf("%s daemon off; pid %s; error_log stderr;\nevents {}\nhttp {\naccess_log off;\n%s include %s;\n}\n",
		user, filepath.Join(dir, "pid"), temp.String(), filepath.Join(dir, "spool.conf")))
	return exec.Command("nginx", "-e", "stderr", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
}

func caddy(t *testing.T, dir string, port int, cert, key string, nodes []string, h2c bool) *exec.Cmd {
	hash, err := exec.Command("caddy", "hash-password", "--plaintext", proxyPassword).Output()
	if err != nil {
		t.Fatal(err)
	}
	versions := "versions 1.1"
	if h2c {
		versions = "versions h2c 2"
	}
	write(t, filepath.Join(dir, "Caddyfile"), "{\nadmin off\nauto_https disable_redirects\ndefault_bind 127.0.0.1\n}\n"+config(t, "Caddyfile",
		"chat.example.com {", fmt.Sprintf("https://127.0.0.1:%d {\ntls %s %s", port, cert, key),
		"127.0.0.1:8081", nodes[0], "127.0.0.1:8082", nodes[1], "response_header_timeout 60s", "response_header_timeout 5s", "versions 1.1", versions))
	c := exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", filepath.Join(dir, "Caddyfile"))
	c.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "HOME="+dir, "SPOOL_USER=ann", "SPOOL_PASSWORD_HASH="+strings.TrimSpace(string(hash)))
	return c
}

// versioned sends the password, and fails if the answer has another version of HTTP.
type versioned struct {
	http.RoundTripper
	version string
}

func (v versioned) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.SetBasicAuth("ann", proxyPassword)
	res, err := v.RoundTripper.RoundTrip(r)
	if err == nil && res.Proto != v.version {
		res.Body.Close()
		return nil, fmt.Errorf("the proxy speaks %s", res.Proto)
	}
	return res, err
}

// Through nginx and through Caddy, over HTTP/1.1 and HTTP/2, with the configurations of the
// folder deploy: streams arrive as they are written, silent ones last, large messages get
// through, the metrics and everything without a password do not; and while one server after
// the other is replaced, nobody who talks or reads notices.
func TestBehindProxies(t *testing.T) {
	t.Parallel()
	for _, p := range []proxied{{"nginx", "HTTP/1.1", false}, {"nginx", "HTTP/2.0", false}, {"caddy", "HTTP/1.1", false}, {"caddy", "HTTP/2.0", false}, {"caddy", "HTTP/2.0", true}} {
		name := p.name + " " + strings.Replace(p.version, "/", " ", 1)
		if p.h2c {
			name += " h2c"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("streams", func(t *testing.T) { p.streams(t) })
			t.Run("two servers", func(t *testing.T) { p.replaced(t) })
			if p.version == "HTTP/2.0" && !p.h2c { // the store is no matter of the proxy
				t.Run("two servers on Redis", func(t *testing.T) { p.replaced(t, "--store", "redis://"+engines.Redis(t).Addr()) })
			}
		})
	}
}

func (p proxied) flags(more ...string) []string {
	if p.h2c {
		more = append(more, "--h2c")
	}
	return more
}

// streams has one server, which holds an answer in its middle.
func (p proxied) streams(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // against a test that hangs
	defer cancel()
	held := make(chan struct{})
	var deltas atomic.Int64
	gate := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/held/") && r.URL.Query().Get("types") == "text_delta" && deltas.Add(1) > 3 {
			<-held
		}
	}))
	defer gate.Close()
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	s := serveSpoolGated(t, filepath.Join(t.TempDir(), "spool.db"), gate.URL, p.flags("--heartbeat", "1s", "--demo-rate", "100")...)
	addr := strings.TrimPrefix(s.url, "http://")
	at, c := p.start(t, addr, addr)

	// The answer goes on only after its beginning has arrived here, and a proxy with a
	// time-out of 5 s has let it be silent for 8 comments, one a second.
	body := strings.NewReader(`{"id":"held","messages":[{"id":"u1","role":"user","parts":[{"type":"text","text":"hello"}]}]}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/api/chat/held", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%s %v", res.Status, res.Header)
	}
	seen, comments, end := 0, 0, false
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.Contains(line, `"text-delta"`):
			seen++
		case strings.HasPrefix(line, ":") && seen == 3:
			if comments++; comments == 8 {
				release()
			}
		case line == "data: [DONE]":
			end = true
		}
	}
	if !end || seen <= 3 || comments < 8 {
		t.Fatalf("%d deltas and %d comments arrived; the end: %v\n%s", seen, comments, end, s.log)
	}

	status := func(path, body string, password bool) int {
		var in io.Reader
		method := http.MethodGet
		if body != "" {
			in, method = strings.NewReader(body), http.MethodPost
		}
		r, err := http.NewRequestWithContext(ctx, method, at+path, in)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		do := c.Do
		if !password {
			do = func(r *http.Request) (*http.Response, error) {
				return c.Transport.(versioned).RoundTripper.RoundTrip(r)
			}
		}
		res, err := do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return res.StatusCode
	}
	large, err := json.Marshal(map[string]any{"id": "u1", "message": "hello " + strings.Repeat("x", 3<<20)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		path, body string
		password   bool
		status     int
	}{
		{"/sessions", "", true, 200}, {"/sessions", "", false, 401}, {"/", "", true, 200}, {"/metrics", "", true, 403},
		{"/api/chat/nobody/snapshot", "", true, 404}, {"/api/chat/large", string(large), true, s.statusOf(t, "/api/chat/large-direct", string(large))},
		{"/api/chat/huge", `{"message":"` + strings.Repeat("x", 16<<20) + `"}`, true, 413},
	} {
		if got := status(want.path, want.body, want.password); got != want.status {
			t.Errorf("%s: %d, want %d", want.path, got, want.status)
		}
	}
}

// statusOf is the status of a POST without a proxy.
func (s *spoolServer) statusOf(t *testing.T, path, body string) int {
	res, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

// replaced has two servers on one store, a SQLite file unless the flags name another, which are
// replaced in turn while users send messages and read the answers.
func (p proxied) replaced(t *testing.T, flags ...string) {
	const users, handOvers = 3, 3
	db := filepath.Join(t.TempDir(), "spool.db")
	start := func(addr string) *spoolServer {
		return serveSpool(t, db, p.flags(append(flags, "--addr", addr, "--demo-rate", "200", "--drain-grace", "1h", "--heartbeat", "1s", "--lease-ttl", "1h")...)...)
	}
	nodes := []*spoolServer{start("127.0.0.1:0"), start("127.0.0.1:0")}
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, strings.TrimPrefix(n.url, "http://"))
	}
	at, through := p.start(t, addrs...)
	c, err := client.New(at, &client.Options{HTTP: through, Retry: client.Retry{Max: -1, Base: 10 * time.Millisecond, Cap: 200 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // against a test that hangs
	defer cancel()
	var handed atomic.Int64
	var turns atomic.Int64
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
				if err := rollingTurn(ctx, c.Session(fmt.Sprintf("user-%d-%d", user, turn)), &handed, midway); err != nil {
					t.Errorf("user %d, turn %d: %v", user, turn, err)
					tell(midway)
					return
				}
				turns.Add(1)
			}
		})
	}
	for n := 0; (n < 4 || handed.Load() < handOvers) && !t.Failed(); n++ {
		<-midway
		i := n % 2
		nodes[i].end()
		nodes[i] = start(addrs[i])
	}
	close(over)
	workers.Wait()
	for _, n := range nodes {
		n.end()
	}
	t.Logf("%d turns, %d hand-overs", turns.Load(), handed.Load())
}
