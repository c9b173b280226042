package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/internal/wait"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/tool"
)

// The environment of a child that plays a scenario until it kills itself.
const (
	envVictim = "SPOOL_TEST_VICTIM" // directory, scenario, append at which to die, and whether that is stored first
	envChaos  = "SPOOL_CHAOS"       // set: every kill, not ten a scenario
)

func TestMain(m *testing.M) {
	if v := os.Getenv(envVictim); v != "" {
		if err := victim(strings.Split(v, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(envFrozen); dir != "" {
		if err := freezing(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if v := os.Getenv(envListener); v != "" {
		if err := listen(strings.Split(v, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// suicidal is a store whose process dies at its n-th append by an owner.
type suicidal struct {
	*sqlitestore.Store
	n     atomic.Int64
	after bool
}

func (s *suicidal) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if a.Epoch == 0 || s.n.Add(-1) != 0 {
		return s.Store.Append(ctx, a)
	}
	if s.after {
		if _, err := s.Store.Append(ctx, a); err != nil {
			return spool.Appended{}, err
		}
	}
	return spool.Appended{}, errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("still alive"))
}

func victim(args []string) error {
	k, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	i, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	store, err := sqlitestore.Open(filepath.Join(args[0], "spool.db"), &sqlitestore.Options{Sync: sqlitestore.SyncNormal})
	if err != nil {
		return err
	}
	dying := &suicidal{Store: store, after: args[3] == "after"}
	dying.n.Store(k)
	_, err = play(dying, args[0], scenarios()[i], true)
	return errors.Join(err, store.Close())
}

// play runs a scenario's session to its end and returns its fold. Effects go to a
// file, so that they are counted whichever process dies.
func play(store spool.Store, dir string, s scenario, begin bool) (*fold.Fold, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // only so that nothing hangs for ever
	defer cancel()
	brief := func(ctx context.Context, d time.Duration) error { return wait.Sleep(ctx, d/100) } // between attempts
	logs := spool.NewLogs(store, &spool.Options{BatchRecords: 1, Sleep: brief})
	defer logs.Close()
	file, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := runner.New(logs, []*agent.Agent{s.on(logs, func(c tool.Call) {
		_, _ = fmt.Fprintln(file, c.ID, c.EffectID)
	})}, &runner.Options{LeaseTTL: time.Hour}) // nobody waits for a dead owner's lease
	if err != nil {
		return nil, err
	}
	g, err := logs.Log("s")
	if err != nil {
		return nil, err
	}
	if begin {
		if _, err := g.Command(ctx, spool.Row{}, say("u1", s.name)); err != nil {
			return nil, err
		}
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() { _ = r.Close(); <-done }()
	for {
		for _, err := range g.Records(ctx, spool.ReadOptions{}) {
			if err != nil {
				return nil, err
			}
		}
		head, err := g.Head(ctx)
		if err != nil {
			return nil, err
		}
		f, err := g.FoldAt(ctx, head.Seq)
		if err != nil {
			return nil, err
		}
		replies, err := s.replies(ctx, g, f)
		if err != nil {
			return nil, err
		}
		if !f.Live() && len(replies) == 0 {
			return f, nil
		}
		if _, err := g.Command(ctx, spool.Row{}, replies...); err != nil {
			return nil, err
		}
	}
}

// A process is killed with SIGKILL at some record of a scenario, in SQLite on
// disk, and another goes on.
func TestKill9(t *testing.T) {
	t.Parallel()
	for i, s := range scenarios() {
		if s.unknown || s.again {
			continue // TestKillAtEveryRecord has it; the rest is the same here
		}
		t.Run(s.title(), func(t *testing.T) {
			t.Parallel()
			l := undisturbed(t, s)
			kills := 10
			if os.Getenv(envChaos) != "" {
				kills = 2 * len(l.log)
			}
			died, tried := 0, 0
			for j := range matrix.Points(t, kills, 9) {
				tried++
				// Spread over the records, alternately before and after they are stored.
				k, when := 1+j*(len(l.log)-2)/kills, []string{"before", "after"}[j%2]
				if killed(t, i, s, k, when, l) {
					died++
				}
			}
			if died < tried*3/4 {
				t.Errorf("%d of %d died", died, tried)
			}
		})
	}
}

func killed(t *testing.T, i int, s scenario, k int, when string, l life) (died bool) {
	t.Helper()
	dir := t.TempDir()
	where := fmt.Sprintf("killed %s append %d", when, k)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%d|%d|%s", envVictim, dir, i, k, when))
	out, err := child.CombinedOutput()
	if err != nil {
		status, _ := child.ProcessState.Sys().(syscall.WaitStatus)
		if died = status.Signaled() && status.Signal() == syscall.SIGKILL; !died {
			t.Fatalf("%s: %v\n%s", where, err, out)
		}
	}
	store, err := sqlitestore.Open(filepath.Join(dir, "spool.db"), &sqlitestore.Options{Sync: sqlitestore.SyncNormal})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	completed, before := map[string]bool{}, effectsIn(t, dir)
	records, _, err := store.Read(t.Context(), "s", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	left := fold.New("s")
	for _, r := range records {
		if err := left.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range toolParts(left) {
		completed[p.CallID] = p.State.Done()
	}
	f, err := play(store, dir, s, false)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if got := s.outcome(f); got != l.want {
		t.Errorf("%s:\n%s\nundisturbed:\n%s", where, got, l.want)
	}
	after := effectsIn(t, dir)
	for call := range l.done {
		switch n := after[call]; {
		case n == 0, n > 2:
			t.Errorf("%s: call %s did its work %d times", where, call, n)
		case completed[call] && n != before[call]:
			t.Errorf("%s: call %s was completed, and made again", where, call)
		}
	}
	return died
}

// effectsIn counts the effects by call. A call has one effect id, however often
// it is made.
func effectsIn(t *testing.T, dir string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	count, ids := map[string]int{}, map[string]string{}
	for line := range strings.Lines(string(data)) {
		call, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		count[call]++
		if ids[call] != "" && ids[call] != id {
			t.Errorf("call %s has the effect ids %s and %s", call, ids[call], id)
		}
		ids[call] = id
	}
	return count
}
