package layers

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// The quickstart works as it is written: its commands run in its order in an empty
// folder, with its main.go, and answer what it says.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	q := &quickstart{T: t, dir: t.TempDir()}
	if err := os.Symlink(repo, filepath.Join(q.dir, "spool")); err != nil {
		t.Fatal(err)
	}
	q.module = filepath.Join(q.dir, "hello")
	seen := map[string]int{}
	for _, block := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		seen[block[1]]++
		switch block[1] {
		case "sh":
			q.shell(block[2])
		case "go":
			main := strings.Replace(block[2], "127.0.0.1:8080", "127.0.0.1:0", 1)
			if err := os.WriteFile(filepath.Join(q.module, "main.go"), []byte(main), 0o600); err != nil {
				t.Fatal(err)
			}
		case "text":
			want := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(block[2])), "…", ".*")
			if got := strings.TrimSpace(q.said); !regexp.MustCompile("(?s)^" + want + "$").MatchString(got) {
				t.Errorf("the page says\n%s\nthe server says\n%s", block[2], got)
			}
		default:
			t.Errorf("a block of %s", block[1])
		}
	}
	q.stop()
	if seen["text"] < 4 || seen["go"] != 1 {
		t.Errorf("the page has %v", seen)
	}
}

type quickstart struct {
	*testing.T
	dir, module string
	said        string // by the last block of commands
	server      *exec.Cmd
	address     string
}

// shell runs a block of commands; the server is started beside them.
func (q *quickstart) shell(block string) {
	q.Helper()
	dir := q.dir
	if _, err := os.Stat(q.module); err == nil {
		dir = q.module
	}
	block, starts := strings.CutSuffix(block, "go run .\n")
	cmd := exec.CommandContext(q.Context(), "sh", "-ec", strings.ReplaceAll(block, "localhost:8080", q.address))
	cmd.Dir = dir
	// The checksum database is no matter here, and not every machine reaches it.
	cmd.Env = append(os.Environ(), "GOSUMDB=off", "GOWORK=off")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		q.Fatalf("%s: %v\n%s%s", block, err, out, &errors)
	}
	q.said = string(out)
	if starts {
		q.start()
	}
}

// start is `go run .`, without the go command between this test and the server.
func (q *quickstart) start() {
	q.Helper()
	q.stop()
	build := exec.CommandContext(q.Context(), "go", "build", "-o", "hello", ".")
	build.Dir = q.module
	if out, err := build.CombinedOutput(); err != nil {
		q.Fatalf("%v\n%s", err, out)
	}
	q.server = exec.Command("./hello")
	q.server.Dir = q.module
	said, err := q.server.StderrPipe()
	if err != nil {
		q.Fatal(err)
	}
	if err := q.server.Start(); err != nil {
		q.Fatal(err)
	}
	process := q.server.Process
	q.Cleanup(func() { _ = process.Kill() })
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, address, ok := strings.Cut(lines.Text(), "listening on http://"); ok {
			q.address = address
			return // it says nothing more, unless it fails
		}
	}
	q.Fatal("the server does not start")
}

// stop is Ctrl-C.
func (q *quickstart) stop() {
	q.Helper()
	if q.server == nil {
		return
	}
	if err := q.server.Process.Signal(syscall.SIGINT); err != nil {
		q.Fatal(err)
	}
	if err := q.server.Wait(); err != nil {
		q.Errorf("the server ends with %v", err)
	}
	q.server = nil
}
