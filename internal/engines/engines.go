//go:build unix

// Package engines starts the database servers that tests of stores need: each in a temporary
// directory, on a free loopback port, and never as a service of the system. One file has what
// an engine needs; this one has what all of them have in common.
package engines

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Engine is how the servers of one kind are started.
type Engine struct {
	Name string
	// Prepare fills the directory before the first start. It may be nil.
	Prepare func(dir string) error
	// Command is the server's command line: it keeps its data in the directory, listens on
	// the loopback port and stays in the foreground.
	Command func(dir string, port int) *exec.Cmd
	// Ready asks the server at HOST:PORT for anything, and fails until it answers.
	Ready func(ctx context.Context, addr string) error
	// Stop is the signal that shuts it down in order; SIGTERM if 0.
	Stop syscall.Signal
}

// startLimit is how long a server may take until it is ready, on a machine that has much else
// to do.
const startLimit = 2 * time.Minute

// Server is a server process, which ends with its test. Its methods belong to the goroutine
// of the test, which they end if they fail.
type Server struct {
	t      testing.TB
	engine Engine
	dir    string
	port   int
	proc   *process // nil: it does not run
	frozen bool
}

// process is one run of a server.
type process struct {
	cmd   *exec.Cmd
	out   *tail
	ended chan struct{}
}

// Start starts a server in a directory of its own and waits until it is ready.
func Start(t testing.TB, e Engine) *Server {
	t.Helper()
	// Not t.TempDir: paths of Unix sockets in it have to be short.
	dir, err := os.MkdirTemp("", "spool-"+e.Name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if e.Prepare != nil {
		if err := e.Prepare(dir); err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
	}
	if e.Stop == 0 {
		e.Stop = syscall.SIGTERM
	}
	s := &Server{t: t, engine: e, dir: dir}
	t.Cleanup(func() {
		if s.proc != nil {
			s.Kill()
		}
	})
	for tries := 1; ; tries++ {
		s.port = FreePort(t)
		err := s.run()
		if err == nil {
			return s
		}
		// Somebody else may have taken the port meanwhile.
		if !errors.Is(err, errEnded) || tries == 5 {
			t.Fatal(err)
		}
	}
}

// FreePort returns a loopback port that is free now. It lies below those that outgoing
// connections take, so that none of them gets it meanwhile.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		if l, err := net.Listen("tcp", Loopback(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Loopback is the loopback address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr is where the server listens, HOST:PORT. It stays the same when it is started again.
func (s *Server) Addr() string { return Loopback(s.port) }

// Dir is where the server has its data.
func (s *Server) Dir() string { return s.dir }

// Start starts a server that was stopped or killed again, on the same data and port, and
// waits until it is ready.
func (s *Server) Start() {
	s.t.Helper()
	if s.proc != nil {
		s.t.Fatalf("%s runs already", s.engine.Name)
	}
	// The one before may have left processes that are just ending.
	deadline := time.Now().Add(startLimit)
	for {
		err := s.run()
		if err == nil {
			return
		}
		if !errors.Is(err, errEnded) || time.Now().After(deadline) {
			s.t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Stop shuts the server down in order and waits for its end.
func (s *Server) Stop() { s.t.Helper(); s.StopWith(s.engine.Stop) }

// StopWith sends the server a signal that ends it and waits for its end.
func (s *Server) StopWith(sig syscall.Signal) {
	s.t.Helper()
	s.Signal(sig)
	s.gone()
}

// Kill ends the server and its children as kill -9 does.
func (s *Server) Kill() {
	s.t.Helper()
	p := s.running()
	for _, pid := range tree(p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	s.gone()
}

// Freeze stops the server and its children without ending them, as a machine that stands
// still does: connections stay open and are not answered.
func (s *Server) Freeze() {
	s.t.Helper()
	for _, pid := range tree(s.running().cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	s.frozen = true
}

// Thaw lets a frozen server go on.
func (s *Server) Thaw() {
	s.t.Helper()
	for _, pid := range tree(s.running().cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	s.frozen = false
}

// Signal sends the server, but not its children, a signal.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	p := s.running()
	if s.frozen {
		s.Thaw()
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
}

// Output is the end of what the server has written since it was started last.
func (s *Server) Output() string { s.t.Helper(); return s.running().out.String() }

func (s *Server) running() *process {
	s.t.Helper()
	if s.proc == nil {
		s.t.Fatalf("%s does not run", s.engine.Name)
	}
	return s.proc
}

func (s *Server) gone() {
	s.t.Helper()
	select {
	case <-s.proc.ended:
	case <-time.After(startLimit):
		s.t.Fatalf("%s does not end\n%s", s.engine.Name, s.proc.out)
	}
	s.proc, s.frozen = nil, false
}

var errEnded = errors.New("it ended before it was ready")

// run starts the process and waits until it is ready.
func (s *Server) run() error {
	p := &process{cmd: s.engine.Command(s.dir, s.port), out: &tail{}, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	endWithTest(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", s.engine.Name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how a server ended that was killed says nothing
		close(p.ended)
	}()
	s.proc = p
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		err := s.ask(ctx)
		select {
		case <-p.ended: // what has answered was another server on this port
			s.proc = nil
			return fmt.Errorf("%s: %w\n%s", s.engine.Name, errEnded, p.out)
		default:
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s does not become ready: %w\n%s", s.engine.Name, err, p.out)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *Server) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return s.engine.Ready(ctx, s.Addr())
}

// tree returns a process and its children, theirs, and so on: the parents first, so that one
// that is stopped or killed starts no further ones. Without /proc it is the process alone.
func tree(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state parent …", where the name may contain anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	list := []int{pid}
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i]]...)
	}
	return list
}

// tail keeps the end of what a process writes.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 16 << 10

func (o *tail) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if extra := len(o.text) - tailBytes; extra > 0 {
		o.text = append(o.text[:0], o.text[extra:]...)
	}
	return len(p), nil
}

func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}
