package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/runner"
)

// spoolBinary is the binary that the tests run.
var spoolBinary = Binary{Name: "spool"}

func TestMain(m *testing.M) {
	setClock(os.Getenv(envClock))
	testscript.Main(m, map[string]func(){
		"spool": func() { os.Exit(spoolBinary.Main()) },
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Values["servers"] = &servers{byName: map[string]*process{}}
			env.Values["providers"] = map[string]*modeltest.Background{}
			for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"} {
				env.Setenv(name, "")
			}
			env.Setenv("SPOOL_ADDR", "127.0.0.1:0") // what else runs on this machine is no matter
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"serve":  serveScript,
			"hold":   holdScript,
			"kill9":  killScript,
			"term":   termScript,
			"terms":  termsScript,
			"logs":   logsScript,
			"post":   postScript,
			"get":    getScript,
			"follow": followScript,
			"watch":  watchScript,
			"text":   textScript,
			"decide": decideScript,

			"provider": providerScript,
			"asked":    askedScript,
			"halt":     stopScript,
		},
	})
}

// runAgent has a runner execute an agent's sessions in a store until it is ended.
func runAgent(t *testing.T, store spool.Store, a *agent.Agent) (logs *spool.Logs, end func()) {
	t.Helper()
	logs = spool.NewLogs(store, nil)
	r, err := runner.New(logs, []*agent.Agent{a}, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background()) }()
	return logs, func() {
		_ = r.Close()
		if err := errors.Join(<-done, logs.Close()); err != nil {
			t.Error(err)
		}
	}
}

type servers struct {
	mu     sync.Mutex
	byName map[string]*process
}

// process is a server that a script started.
type process struct {
	cmd *exec.Cmd
	url string
	log *lines
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func running(ts *testscript.TestScript, name string) *process {
	s := ts.Value("servers").(*servers)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byName[name]
	if p == nil {
		ts.Fatalf("no server is called %s", name)
	}
	return p
}

// holdScript is "hold TYPE": servers that begin later store the first record of
// that type, and then nothing more. "hold" alone lets them go on.
func holdScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: hold [TYPE]")
	}
	ts.Setenv("GATE", "")
	if len(args) == 0 {
		return
	}
	var stored atomic.Bool
	gate := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if stored.Load() {
			<-r.Context().Done() // until the server is killed
		}
		stored.Store(r.URL.Query().Get("types") == args[0])
	}))
	ts.Defer(gate.Close)
	ts.Setenv("GATE", gate.URL)
}

// serveScript is "serve NAME [flag…]": it starts a server and sets $NAME to its
// URL, the first line that it prints.
func serveScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: serve NAME [flag...]")
	}
	path, err := exec.LookPath("spool")
	ts.Check(err)
	p := &process{cmd: exec.Command(path, append([]string{"serve", "--addr", "127.0.0.1:0"}, args[1:]...)...), log: &lines{}}
	p.cmd.Dir = ts.Getenv("WORK")
	p.cmd.Env = append(os.Environ(), "SPOOL_TEST_GATE="+ts.Getenv("GATE"), "OPENAI_API_KEY=", "OPENAI_BASE_URL="+ts.Getenv("PROVIDER"), "OPENAI_MODEL=", "ANTHROPIC_API_KEY=", "ANTHROPIC_BASE_URL=", "ANTHROPIC_MODEL=")
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(p.cmd.Start())
	ts.Defer(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		_ = p.cmd.Wait()
		ts.Fatalf("the server printed no URL: %v\n%s", err, p.log)
	}
	p.url = strings.TrimSpace(first)
	if !strings.HasPrefix(p.url, "http://127.0.0.1:") {
		ts.Fatalf("the first line is %q, want the URL alone", first)
	}
	s := ts.Value("servers").(*servers)
	s.mu.Lock()
	s.byName[args[0]] = p
	s.mu.Unlock()
	ts.Setenv(args[0], p.url)
	ts.Setenv(args[0]+"_ADDR", strings.TrimPrefix(p.url, "http://"))
}

func killScript(ts *testscript.TestScript, _ bool, args []string) {
	p := running(ts, args[0])
	ts.Check(p.cmd.Process.Kill())
	_ = p.cmd.Wait()
}

// termScript asks a server to stop and expects that it does, with code 0.
func termScript(ts *testscript.TestScript, _ bool, args []string) {
	p := running(ts, args[0])
	ts.Check(p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); err != nil {
		ts.Fatalf("after SIGTERM: %v\n%s", err, p.log)
	}
}

// logsScript is "logs NAME REGEXP": the server's log holds that. With ! it does not,
// and the server has ended.
func logsScript(ts *testscript.TestScript, neg bool, args []string) {
	p, want := running(ts, args[0]), regexp.MustCompile(args[1])
	for !neg && !want.MatchString(p.log.String()) {
		time.Sleep(10 * time.Millisecond) // the package's deadline is the only one
	}
	if neg && want.MatchString(p.log.String()) {
		ts.Fatalf("the log holds %s:\n%s", args[1], p.log)
	}
}

// termsScript asks a server that has something to wait for to stop, again and
// again, and expects that it does not wait.
func termsScript(ts *testscript.TestScript, _ bool, args []string) {
	p := running(ts, args[0])
	ended := make(chan error)
	go func() { ended <- p.cmd.Wait() }()
	for again := time.NewTicker(20 * time.Millisecond); ; <-again.C {
		select {
		case err := <-ended:
			if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
				ts.Fatalf("after several signals: %v\n%s", err, p.log)
			}
			return
		default:
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}

// postScript is "post NAME SESSION MESSAGE-ID TEXT [ROUTE]": it posts a message
// and prints the stream to its end. The route is /api/chat unless another is
// given.
func postScript(ts *testscript.TestScript, neg bool, args []string) {
	route := "/api/chat"
	if len(args) > 4 {
		route = args[4]
	}
	body, _ := json.Marshal(map[string]any{"messages": []any{map[string]any{
		"id": args[2], "role": "user", "parts": []any{map[string]any{"type": "text", "text": args[3]}}}}})
	res, err := http.Post(running(ts, args[0]).url+route+"/"+args[1], "application/json", strings.NewReader(string(body)))
	ts.Check(err)
	answer(ts, neg, res)
}

// getScript is "get NAME PATH".
func getScript(ts *testscript.TestScript, neg bool, args []string) {
	res, err := http.Get(running(ts, args[0]).url + args[1])
	ts.Check(err)
	answer(ts, neg, res)
}

func answer(ts *testscript.TestScript, neg bool, res *http.Response) {
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	ts.Check(err)
	if ok := res.StatusCode < 300; ok == neg {
		ts.Fatalf("%s: %s", res.Status, data)
	}
	_, _ = ts.Stdout().Write(data)
}

// followScript is "follow NAME SESSION MESSAGE-ID TEXT STOP": it posts a message
// and reads the stream until an event holds STOP, then lets go.
func followScript(ts *testscript.TestScript, _ bool, args []string) {
	body, _ := json.Marshal(map[string]any{"messages": []any{map[string]any{
		"id": args[2], "role": "user", "parts": []any{map[string]any{"type": "text", "text": args[3]}}}}})
	res, err := http.Post(running(ts, args[0]).url+"/api/chat/"+args[1], "application/json", strings.NewReader(string(body)))
	ts.Check(err)
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), args[4]) {
			return
		}
	}
	ts.Fatalf("the stream ended before %q", args[4])
}

// watchScript is "watch NAME SESSION TEXT": it reads a session's log until a record
// holds TEXT, and waits for the session before that.
func watchScript(ts *testscript.TestScript, _ bool, args []string) {
	res, err := http.Get(running(ts, args[0]).url + "/stream/" + args[1] + "?wait=1&follow=session")
	ts.Check(err)
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), args[2]) {
			return
		}
	}
	ts.Fatalf("the stream ended before %q", args[2])
}

// textScript is "text FILE": it prints the text that a client shows of the
// stream in a file.
func textScript(ts *testscript.TestScript, _ bool, args []string) {
	var text strings.Builder
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var f struct{ Type, Delta string }
		data, ok := strings.CutPrefix(line, "data: ")
		if ok && json.Unmarshal([]byte(data), &f) == nil && f.Type == "text-delta" {
			text.WriteString(f.Delta)
		}
	}
	_, _ = io.WriteString(ts.Stdout(), text.String()+"\n")
}

// decideScript is "decide NAME SESSION true|false": it decides on the approval
// that the session's snapshot shows.
func decideScript(ts *testscript.TestScript, neg bool, args []string) {
	url := running(ts, args[0]).url + "/api/chat/" + args[1]
	res, err := http.Get(url + "/snapshot")
	ts.Check(err)
	data, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	ts.Check(err)
	_, rest, _ := strings.Cut(string(data), `"approval":{"id":"`)
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		ts.Fatalf("no approval in %s", data)
	}
	res, err = http.Post(url+"/approvals/"+id, "application/json", strings.NewReader(`{"approved":`+args[2]+`}`))
	ts.Check(err)
	answer(ts, neg, res)
}
