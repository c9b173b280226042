package runner_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/sqlitestore"
)

// envFrozen names the directory of a process that owns a run and is stopped.
const envFrozen = "SPOOL_TEST_FROZEN"

// frozenTTL is the leases' length. No owner loses one because the machine stands
// still: the second one's store has a clock that is ahead by more.
const frozenTTL = 2 * time.Minute

// audited is a store that tells of the owner appends that it stored. It can be
// held: then nothing of it is under way.
type audited struct {
	*sqlitestore.Store
	told func(epoch, first, last uint64)
	hold sync.RWMutex
}

func (s *audited) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	s.hold.RLock()
	defer s.hold.RUnlock()
	res, err := s.Store.Append(ctx, a)
	if err == nil && a.Epoch > 0 && len(a.Records) > 0 {
		s.told(a.Epoch, res.First, res.Last)
	}
	return res, err
}

func (s *audited) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	s.hold.RLock()
	defer s.hold.RUnlock()
	return s.Store.Claim(ctx, c)
}

func (s *audited) Renew(ctx context.Context, l spool.Lease) error {
	s.hold.RLock()
	defer s.hold.RUnlock()
	return s.Store.Renew(ctx, l)
}

func (s *audited) Release(ctx context.Context, l spool.Lease) error {
	s.hold.RLock()
	defer s.hold.RUnlock()
	return s.Store.Release(ctx, l)
}

// owner is a runner on a file, with logs and a store of its own. Its model says
// a word of its name, tells, waits to be let go, and says many more.
type frozenOwner struct {
	store  *audited
	logs   *spool.Logs
	waits  chan struct{}
	letGo  chan struct{}
	failed chan error
	end    func() error
}

func newOwner(dir, name string, ahead time.Duration, told func(epoch, first, last uint64)) (*frozenOwner, error) {
	now := func() time.Time { return time.Now().Add(ahead) }
	store, err := sqlitestore.Open(filepath.Join(dir, "spool.db"), &sqlitestore.Options{Sync: sqlitestore.SyncNormal, Now: now})
	if err != nil {
		return nil, err
	}
	o := &frozenOwner{store: &audited{Store: store, told: told}, waits: make(chan struct{}, 8), letGo: make(chan struct{}), failed: make(chan error, 8)}
	o.logs = spool.NewLogs(o.store, nil)
	words := func(scripted.Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			if !yield(model.TextDelta{ID: "t", Delta: name + " begins. "}, nil) {
				return
			}
			o.waits <- struct{}{}
			<-o.letGo // deaf to its context, as a stopped process is
			for i := range 50 {
				if !yield(model.TextDelta{ID: "t", Delta: fmt.Sprintf("%s %d. ", name, i)}, nil) {
					return
				}
			}
			yield(model.Finish{Reason: "stop"}, nil)
		}
	}
	a := &agent.Agent{Name: "demo", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"go": words}})}
	r, err := runner.New(o.logs, []*agent.Agent{a}, &runner.Options{LeaseTTL: frozenTTL, Observer: runner.Observer{Failed: func(session string, err error) {
		if session != "" {
			o.failed <- err
		}
	}}})
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background()) }()
	o.end = func() error {
		_ = r.Close()
		return errors.Join(<-done, o.logs.Close(), store.Close())
	}
	return o, nil
}

// freezing is the process that is stopped. It takes orders on its standard input
// and tells on its standard output.
func freezing(dir string) error {
	var mu sync.Mutex
	tell := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	o, err := newOwner(dir, "first", 0, func(epoch, first, last uint64) { tell("append %d %d %d", epoch, first, last) })
	if err != nil {
		return err
	}
	<-o.waits
	tell("waits")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case "hold":
			o.store.hold.Lock()
			tell("held")
		case "go":
			o.store.hold.Unlock()
			close(o.letGo)
			err := <-o.failed
			tell("failed %t %v", errors.Is(err, spool.ErrSuperseded), err)
		}
	}
	return o.end()
}

// appended are the sequences that each epoch has stored.
type appended struct {
	mu   sync.Mutex
	last map[uint64]uint64
	from map[uint64]uint64
}

func (a *appended) add(epoch, first, last uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last, a.from = map[uint64]uint64{}, map[uint64]uint64{}
	}
	if a.from[epoch] == 0 {
		a.from[epoch] = first
	}
	a.last[epoch] = last
}

// check holds the log against what was stored: nothing of an owner lies behind
// the first record of a later one.
func (a *appended) check(t *testing.T, o *frozenOwner) {
	t.Helper()
	g, err := o.logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	taken := false
	for r, err := range g.Records(t.Context(), spool.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		c, err := chunk.Decode(r.Data)
		if err != nil {
			t.Fatal(err)
		}
		switch c := c.(type) {
		case *chunk.ExecutorSuperseded:
			taken = true
		case *chunk.TextDelta:
			if taken {
				text.WriteString(c.Delta)
			}
		}
	}
	if got := text.String(); !strings.HasPrefix(got, "second begins. second 0. ") || !strings.HasSuffix(got, "second 49. ") || strings.Contains(got, "first") {
		t.Errorf("after the take-over: %q", got)
	}
	err = g.View(t.Context(), func(f *fold.Fold) error {
		if f.Reason != "completed" || f.Messages[1].Text() != text.String() || len(f.Turns[0].Runs) != 1 {
			t.Errorf("%s: %s", f.Reason, mustJSON(f.Messages))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.from) < 2 {
		t.Fatalf("epochs %v", a.from)
	}
	for older, last := range a.last {
		for newer, first := range a.from {
			if newer > older && last >= first {
				t.Errorf("epoch %d stored %d, behind the first record of epoch %d, %d", older, last, newer, first)
			}
		}
	}
}

func (o *frozenOwner) say(t *testing.T) {
	t.Helper()
	g, err := o.logs.Log("s")
	if err == nil {
		_, err = g.Command(t.Context(), spool.Row{}, say("u1", "go"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An owner that does not get to renew its lease is replaced. When it wakes, not
// one of its records is stored any more, and it says so.
func TestOwnerThatStoppedRenewing(t *testing.T) {
	t.Parallel()
	var stored appended
	dir := t.TempDir()
	start := func(name string, ahead time.Duration) *frozenOwner {
		o, err := newOwner(dir, name, ahead, stored.add)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	first := start("first", 0)
	first.say(t)
	<-first.waits
	first.store.hold.Lock()
	second := start("second", 2*frozenTTL)
	<-second.waits // its lease ran out, and the run was taken from it
	first.store.hold.Unlock()
	close(first.letGo)
	if err := <-first.failed; !errors.Is(err, spool.ErrSuperseded) {
		t.Errorf("it says: %v", err)
	}
	if err := first.end(); err != nil {
		t.Error(err)
	}
	close(second.letGo)
	stored.check(t, second)
	if err := second.end(); err != nil {
		t.Error(err)
	}
}

// The same with a process that is stopped with SIGSTOP in mid-stream, and goes on
// with SIGCONT while the new owner streams.
func TestOwnerStoppedAndContinued(t *testing.T) {
	t.Parallel()
	var stored appended
	dir := t.TempDir()
	store, err := sqlitestore.Open(filepath.Join(dir, "spool.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	logs := spool.NewLogs(store, nil)
	(&frozenOwner{logs: logs}).say(t)
	if err := errors.Join(logs.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}

	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), envFrozen+"="+dir)
	child.Stderr = os.Stderr
	orders, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	until := func(prefix string) string {
		t.Helper()
		for lines.Scan() {
			var epoch, first, last uint64
			if n, _ := fmt.Sscanf(lines.Text(), "append %d %d %d", &epoch, &first, &last); n == 3 {
				stored.add(epoch, first, last)
			}
			if strings.HasPrefix(lines.Text(), prefix) {
				return lines.Text()
			}
		}
		t.Fatalf("the process ended before it said %q", prefix)
		return ""
	}
	order := func(text string) {
		t.Helper()
		if _, err := fmt.Fprintln(orders, text); err != nil {
			t.Fatal(err)
		}
	}
	until("waits")
	order("hold") // a process stopped inside a transaction would keep the file locked
	until("held")
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v, %v", status, err)
	}
	second, err := newOwner(dir, "second", 2*frozenTTL, stored.add)
	if err != nil {
		t.Fatal(err)
	}
	<-second.waits
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	order("go")
	if said := until("failed"); !strings.HasPrefix(said, "failed true") {
		t.Errorf("it says: %s", said)
	}
	close(second.letGo)
	stored.check(t, second)
	_ = orders.Close()
	for lines.Scan() { // what it still tells
		t.Logf("%s", lines.Text())
		if strings.HasPrefix(lines.Text(), "append") {
			t.Errorf("a late append: %s", lines.Text())
		}
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if err := second.end(); err != nil {
		t.Error(err)
	}
}
