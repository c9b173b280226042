package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/spool-run/spool/model/scripted"
)

// pty opens a pseudo-terminal.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	control := func(request uintptr, v *int32) {
		raw, err := master.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var errno syscall.Errno
		err = raw.Control(func(fd uintptr) {
			_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(v)))
		})
		if err != nil || errno != 0 {
			t.Fatal(err, errno)
		}
	}
	var unlocked, number int32
	control(syscall.TIOCSPTLCK, &unlocked)
	control(syscall.TIOCGPTN, &number)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	return master, slave
}

// screen is what a terminal was sent.
type screen struct {
	*testing.T
	master *os.File
	mu     sync.Mutex
	text   strings.Builder
	from   int // what was looked at
}

// await waits until the terminal shows text that it did not show at the last await.
func (s *screen) await(text string) {
	s.Helper()
	for {
		s.mu.Lock()
		all := s.text.String()
		s.mu.Unlock()
		if i := strings.Index(all[s.from:], text); i >= 0 {
			s.from += i + len(text)
			return
		}
		if s.Context().Err() != nil {
			s.Fatalf("%q is not shown in %q", text, all[s.from:])
		}
		time.Sleep(5 * time.Millisecond) // the package's deadline is the only one
	}
}

func (s *screen) types(keys string) {
	s.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.Fatal(err)
	}
}

// A person at a terminal: lines are edited, Ctrl-C stops an answer and does not end the
// program, an approval is asked for, Ctrl-D leaves.
func TestChatOnATerminal(t *testing.T) {
	t.Parallel()
	url := serveDemo(t, scripted.New(&scripted.Options{Rate: 100})).URL
	s, cmd := onTerminal(t, "chat", "s", "--server", url)
	s.await("session s;")
	s.await("> ")
	s.types("helo\x7flo\r") // a typing error, and a backspace
	s.await("Hello!")       // the scene of "hello"
	s.await("> ")
	s.types("long\r")
	s.await("long\r\n")
	s.await(" ")
	s.types("\x03")
	s.await("stopping")
	s.await("stopped")
	s.await("> ")
	s.types("approve\r")
	s.await("allow book_trip")
	s.types("y\r")
	s.await("approved")
	s.await("It is booked")
	s.await("> ")
	s.types("\x04")
	s.await("come back with: spool chat s")
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-D: %v", err)
	}
	if shown := s.all(); strings.Count(shown, "\n") != strings.Count(shown, "\r\n") {
		t.Errorf("lines end without going back to the left: %q", shown)
	}
}

// onTerminal runs the binary on a terminal of 80 columns.
func onTerminal(t *testing.T, args ...string) (*screen, *exec.Cmd) {
	t.Helper()
	bin, err := exec.LookPath("spool")
	if err != nil {
		t.Fatal(err)
	}
	master, slave := pty(t)
	cmd := exec.Command(bin, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &screen{T: t, master: master}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s, cmd
}

// A notice that a server cannot be reached is shown whole, and Ctrl-C leaves.
func TestChatOnATerminalWithoutAServer(t *testing.T) {
	t.Parallel()
	s, cmd := onTerminal(t, "chat", "s", "--server", "http://127.0.0.1:1")
	s.await("session s;")
	s.await("http://127.0.0.1:1 cannot be reached")
	s.await("there?)")
	s.await("coming back")
	s.types("\x03")
	s.await("come back with: spool chat s --server http://127.0.0.1:1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
	for line := range strings.Lines(ansi.ReplaceAllString(s.all(), "")) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); n > 80 {
			t.Errorf("a line has %d characters: %q", n, line)
		}
	}
}

var ansi = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")

func (s *screen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A notice begins a line of its own, also when it comes in mid-answer.
func TestTailOnATerminalLosesItsConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") == "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "id: 1\ndata: {\"type\":\"text_delta\",\"agentId\":\"s\",\"delta\":\"half an answer\"}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	s, _ := onTerminal(t, "tail", "s", "--server", server.URL)
	s.await("half an answer\r\nspool: ")
	s.await("coming back\r\n")
}
