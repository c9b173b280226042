package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite" // to prepare a store's file as an operator would
)

// spoolServer is a spool binary that serves a store.
type spoolServer struct {
	t   *testing.T
	url string
	cmd *exec.Cmd
	out io.Reader
	log *lines
}

// serveSpool starts the binary on a SQLite file. Nothing in it depends on how fast
// this machine is: no replay ends, no heartbeat comes, nothing is paced or trimmed, and
// no answer says when it began.
func serveSpool(t *testing.T, db string, args ...string) *spoolServer {
	t.Helper()
	return serveSpoolGated(t, db, "", args...)
}

func serveSpoolGated(t *testing.T, db, gate string, args ...string) *spoolServer {
	t.Helper()
	return serveBinary(t, spoolPath(t), db, gate, args...)
}

// spoolPath is the build of spool that is tested.
func spoolPath(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("spool")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// serveBinary does so with another build of spool.
func serveBinary(t *testing.T, path, db, gate string, args ...string) *spoolServer {
	t.Helper()
	flags := []string{"serve", "--addr", "127.0.0.1:0", "--store", "sqlite:" + db, "--demo-rate", "0", "--model", "scripted?background=0", "--replay-grace", "1000000h",
		"--heartbeat", "1h", "--write-timeout", "1h", "--lease-ttl", "1h", "--trace-age", "0", "--trace-records", "0", "--merlin-pacing", "none", "--linger=-1s"}
	return startSpool(t, path, []string{"SPOOL_TEST_GATE=" + gate}, append(flags, args...)...)
}

// startSpool starts a build with variables beside those of this process, but for those that
// name a provider, and waits for the server's URL.
func startSpool(t *testing.T, path string, env []string, args ...string) *spoolServer {
	t.Helper()
	s := launchSpool(t, path, env, args...)
	s.awaitURL()
	return s
}

// launchSpool is startSpool without the waiting.
func launchSpool(t *testing.T, path string, env []string, args ...string) *spoolServer {
	t.Helper()
	s := &spoolServer{t: t, cmd: exec.Command(path, args...), log: &lines{}}
	s.cmd.Env = append(os.Environ(), "OPENAI_API_KEY=", "OPENAI_BASE_URL=", "OPENAI_MODEL=", "ANTHROPIC_API_KEY=", "ANTHROPIC_BASE_URL=", "ANTHROPIC_MODEL=")
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Stderr = s.log
	var err error
	if s.out, err = s.cmd.StdoutPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	return s
}

func (s *spoolServer) awaitURL() {
	s.t.Helper()
	first, err := bufio.NewReader(s.out).ReadString('\n')
	if err != nil {
		s.kill()
		s.t.Fatalf("the server printed no URL: %v\n%s", err, s.log)
	}
	s.url = strings.TrimSpace(first)
}

// with is the server for another test, whose failures are its own.
func (s *spoolServer) with(t *testing.T) *spoolServer {
	c := *s
	c.t = t
	return &c
}

// kill is kill -9.
func (s *spoolServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// end asks the server to stop, and waits until it has.
func (s *spoolServer) end() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		s.t.Fatalf("after SIGTERM: %v\n%s", err, s.log)
	}
}

// reply is a whole answer, but for its Date.
type reply struct {
	status int
	header http.Header
	body   []byte
	broken bool // the connection ended before the answer did
	open   bool // nobody waited for its end

	records bool // it is a stream of records
}

// text is the answer as a golden file has it.
func (r *reply) text() string {
	if r.digested() {
		return r.with(digest(r.body))
	}
	return r.whole()
}

// whole is the answer with its body, however large.
func (r *reply) whole() string { return r.with(string(r.body)) }

func (r *reply) with(body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s\n", r.status, http.StatusText(r.status))
	names := make([]string, 0, len(r.header))
	for name := range r.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range r.header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	b.WriteByte('\n')
	b.WriteString(body)
	if r.broken {
		b.WriteString("\n[the connection broke]")
	}
	if r.open {
		b.WriteString("\n[the stream goes on]")
	}
	return b.String()
}

// digested says whether a golden file has a digest instead of the body: of what is
// large, and of records, which are in the database as they are sent.
func (r *reply) digested() bool {
	return len(r.body) > 64<<10 || r.records && len(r.body) > 1<<10 || !goldenText(string(r.body))
}

// record adds an answer to those of a golden file.
func (a *answers) record(name string, r *reply) {
	a.add(name, r.text())
	if r.digested() {
		a.large[name] = r.body
	}
}

// asker sends requests as they are: it follows nothing and unpacks nothing.
var asker = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// open sends a request and returns the answer, whose body is still to be read.
// Header lines are "Name: value".
func (s *spoolServer) open(method, path, body string, header ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json") // errors with their codes and hints
	}
	if body != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := asker.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", method, path, err, s.log)
	}
	return res
}

var retryField = regexp.MustCompile(`^(: spool\n)retry: [1-3]\d{3}\n`)

// withoutRetry is a stream without the time after which its reader is to reconnect, which
// differs from stream to stream.
func withoutRetry(body []byte) []byte { return retryField.ReplaceAll(body, []byte("$1")) }

// ask sends a request and reads the whole answer.
func (s *spoolServer) ask(method, path, body string, header ...string) *reply {
	s.t.Helper()
	res := s.open(method, path, body, header...)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	r := &reply{status: res.StatusCode, header: res.Header, body: withoutRetry(data)}
	r.header.Del("Date")
	if r.broken = errors.Is(err, io.ErrUnexpectedEOF); err != nil && !r.broken {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// must is ask for an answer that has to be good.
func (s *spoolServer) must(method, path string, body any, header ...string) []byte {
	s.t.Helper()
	text := ""
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		text = string(data)
	}
	r := s.ask(method, path, text, header...)
	if r.status > 299 {
		s.t.Fatalf("%s %s %s: %d %s", method, path, text, r.status, r.body)
	}
	return r.body
}

// into is must with a decoded answer.
func (s *spoolServer) into(v any, method, path string, body any) {
	s.t.Helper()
	if err := json.Unmarshal(s.must(method, path, body), v); err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// streamInfo is what is asked of a session to know which questions it has.
type streamInfo struct {
	Session     string `json:"session"`
	Status      string `json:"status"`
	Latest      uint64 `json:"latestSequence"`
	TraceFloor  uint64 `json:"traceFloor"`
	Floor       uint64 `json:"floor"`
	Incarnation uint64 `json:"incarnation"`
	Waiting     int    `json:"waiting"`
}

func (s *spoolServer) info(session string) (i streamInfo) {
	s.t.Helper()
	s.into(&i, "GET", "/stream/"+url.PathEscape(session)+"/info", nil)
	return i
}

// unpack writes the files of a packed database into a folder of the test's and
// returns the database's path.
func unpack(t *testing.T, packed string) string {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(packed), ".gz")
	to := filepath.Join(t.TempDir(), name)
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(strings.TrimSuffix(packed, ".gz") + suffix + ".gz")
		if suffix != "" && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			var r *gzip.Reader
			if r, err = gzip.NewReader(bytes.NewReader(data)); err == nil {
				data, err = io.ReadAll(r)
			}
		}
		if err == nil {
			err = os.WriteFile(to+suffix, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// execSQL changes a store's file that nobody serves.
func execSQL(t *testing.T, db string, statements ...string) {
	t.Helper()
	d, err := sql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := d.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// Leases as an operator ends them, or as an owner has them that lives for ever.
const (
	endLeases  = "UPDATE session SET lease_expires = 1, ready = MIN(ready, 1) WHERE ready IS NOT NULL"
	holdLeases = "UPDATE session SET lease_expires = 9000000000000000, ready = 9000000000000000 WHERE ready IS NOT NULL"
)

func jsonBody(v any) io.Reader {
	if v == nil {
		return http.NoBody
	}
	data, _ := json.Marshal(v) // what tests send always encodes
	return bytes.NewReader(data)
}
