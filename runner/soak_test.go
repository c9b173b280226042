package runner_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
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
	"github.com/spool-run/spool/tool"
)

// envSeed repeats a soak's decisions.
const envSeed = "SPOOL_SEED"

// Many runs at once on one SQLite file, stopped, approved, denied and answered at
// random, while their runners are closed or lost in mid-run and others take over:
// every session comes to rest, its readers have what its log holds, its fold is
// the same everywhere, and nothing is left running. Fifty runs for twenty seconds;
// two hundred for two minutes with SPOOL_CHAOS.
func TestRunsSoak(t *testing.T) {
	users, length := 50, 20*time.Second
	if os.Getenv(envChaos) != "" {
		users, length = 200, 2*time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(envSeed); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("again with the same decisions: %s=%d", envSeed, seed)
		}
	}()
	before := runtime.NumGoroutine()
	soakRuns(t, users, length, seed)
	for runtime.NumGoroutine() > before {
		time.Sleep(10 * time.Millisecond) // they are on their way out; if not, the test's timeout says where they are
	}
}

func soakRuns(t *testing.T, users int, length time.Duration, seed uint64) {
	path := filepath.Join(t.TempDir(), "soak.db")
	nodes := &soakNodes{t: t, path: path, rnd: rand.New(rand.NewPCG(seed, 0))}
	for range 3 {
		nodes.start()
	}
	reading, err := newSoakNode(path)
	if err != nil {
		t.Fatal(err)
	}
	// Only so that a session that is stuck is found.
	ctx, cancel := context.WithTimeout(context.Background(), length+10*time.Minute)
	defer cancel()
	over := time.Now().Add(length)
	var tally soakTally
	var working sync.WaitGroup
	for i := range users {
		working.Go(func() {
			u := &soakUser{logs: reading.logs, rnd: rand.New(rand.NewPCG(seed, uint64(i)+1)), tally: &tally}
			for n := 0; time.Now().Before(over) && !t.Failed(); n++ {
				session := fmt.Sprintf("soak-%d-%d", i, n)
				if err := u.session(ctx, session); err != nil {
					t.Errorf("%s: %v\n%s", session, err, u.story())
				}
			}
		})
	}
	for time.Now().Before(over) && !t.Failed() {
		time.Sleep(time.Duration(200+nodes.rnd.IntN(600)) * time.Millisecond)
		nodes.replace()
	}
	working.Wait()
	nodes.end()
	t.Logf("%d sessions, %d runs, %d stopped, %d pauses, %d answers while the run was open, %d take-overs, %d runners",
		tally.sessions.Load(), tally.runs.Load(), tally.stopped.Load(), tally.pauses.Load(), tally.early.Load(), tally.takeovers.Load(), nodes.n)
	for name, n := range map[string]int64{"sessions": tally.sessions.Load(), "stops": tally.stopped.Load(), "pauses": tally.pauses.Load(),
		"early answers": tally.early.Load(), "take-overs": tally.takeovers.Load()} {
		if n == 0 {
			t.Errorf("no %s", name)
		}
	}
	if err := reading.end(); err != nil {
		t.Error(err)
	}
	checkCold(t, path, &tally)
}

// checkCold folds every session in a process that has seen none of it.
func checkCold(t *testing.T, path string, tally *soakTally) {
	cold, err := newSoakNode(path)
	if err != nil {
		t.Fatal(err)
	}
	tally.folds.Range(func(session, want any) bool {
		g, err := cold.logs.Log(session.(string))
		if err == nil {
			err = g.View(context.Background(), func(f *fold.Fold) error {
				if got := sha256.Sum256([]byte(mustJSON(f))); got != want {
					t.Errorf("%s: another process folds it into something else: %s", session, mustJSON(f))
				}
				return nil
			})
		}
		if err != nil {
			t.Errorf("%s: %v", session, err)
		}
		return true
	})
	if err := cold.end(); err != nil {
		t.Error(err)
	}
}

type soakTally struct {
	sessions, runs, stopped, pauses, early, takeovers atomic.Int64
	folds                                             sync.Map // session: hash of its fold
}

// soakNode is a process: a store, logs, and maybe a runner.
type soakNode struct {
	store *droppable
	logs  *spool.Logs
	r     *runner.Runner
	done  chan error
}

// droppable is a store to which nothing gets through any more once its process
// is lost.
type droppable struct {
	*sqlitestore.Store
	lost atomic.Bool
}

func (s *droppable) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if s.lost.Load() {
		return spool.Appended{}, errDead
	}
	return s.Store.Append(ctx, a)
}

func (s *droppable) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if s.lost.Load() {
		return spool.Lease{}, errDead
	}
	return s.Store.Claim(ctx, c)
}

func (s *droppable) Renew(ctx context.Context, l spool.Lease) error {
	if s.lost.Load() {
		return errDead
	}
	return s.Store.Renew(ctx, l)
}

func (s *droppable) Release(ctx context.Context, l spool.Lease) error {
	if s.lost.Load() {
		return errDead
	}
	return s.Store.Release(ctx, l)
}

func newSoakNode(path string) (*soakNode, error) {
	store, err := sqlitestore.Open(path, &sqlitestore.Options{Sync: sqlitestore.SyncNormal})
	if err != nil {
		return nil, err
	}
	n := &soakNode{store: &droppable{Store: store}}
	n.logs = spool.NewLogs(n.store, nil)
	return n, nil
}

func (n *soakNode) end() error {
	var err error
	if n.r != nil {
		_ = n.r.Close()
		err = <-n.done
	}
	return errors.Join(err, n.logs.Close(), n.store.Close())
}

// soakNodes are the processes that run.
type soakNodes struct {
	t    *testing.T
	path string
	rnd  *rand.Rand
	list []*soakNode
	n    int
}

func (s *soakNodes) start() {
	n, err := newSoakNode(s.path)
	if err == nil {
		n.r, err = runner.New(n.logs, []*agent.Agent{soakAgent()}, &runner.Options{LeaseTTL: 4 * time.Second, MaxRecoveries: 1000,
			Observer: runner.Observer{Failed: func(string, error) {}}}) // they are lost and superseded all the time
	}
	if err != nil {
		s.t.Fatal(err)
	}
	n.done = make(chan error, 1)
	go func() { n.done <- n.r.Run(context.Background()) }()
	s.list, s.n = append(s.list, n), s.n+1
}

// replace closes or loses a node and starts another.
func (s *soakNodes) replace() {
	i := s.rnd.IntN(len(s.list))
	n := s.list[i]
	s.list = append(s.list[:i], s.list[i+1:]...)
	if s.rnd.IntN(2) == 0 {
		n.store.lost.Store(true)
	}
	s.start()
	if err := n.end(); err != nil {
		s.t.Error(err)
	}
}

func (s *soakNodes) end() {
	for _, n := range s.list {
		if err := n.end(); err != nil {
			s.t.Error(err)
		}
	}
}

// soakAgent streams, works, asks and hands out calls.
func soakAgent() *agent.Agent {
	retry := tool.Options{Recovery: tool.RecoverRetry}
	work := func(ctx tool.Context, in struct {
		Ms int `json:"ms"`
	}) (map[string]int, error) {
		if err := ctx.Progress(tool.Progress{Label: "working"}); err != nil {
			return nil, err
		}
		err := tool.UpdateState(ctx, func(s *worked) error {
			if s.Done == nil {
				s.Done = map[string]int{}
			}
			s.Done[ctx.Call().ID]++
			return nil
		})
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(in.Ms) * time.Millisecond):
			return map[string]int{"ms": in.Ms}, ctx.Emit("worked", in, nil)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	gated := retry
	gated.Approval = true
	say := func(text string, n int) scripted.Step {
		return scripted.Step{Parts: append(scripted.Reasoning("so it is"), scripted.Text(text+" "+fmt.Sprint(n))...)}
	}
	streams := func(c scripted.Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			for i := range 60 {
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				if !yield(model.TextDelta{ID: "t", Delta: fmt.Sprintf("w%d ", i)}, nil) {
					return
				}
			}
			yield(model.Finish{Reason: "stop"}, nil)
		}
	}
	return &agent.Agent{Name: "demo",
		Tools: []tool.Tool{tool.With(tool.New("work", "", work), retry), tool.With(tool.New("gated", "", work), gated), tool.Client[struct{}]("locate", "")},
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"stream": streams,
			"tools": scripted.Steps(
				scripted.Say(scripted.Text("one "), scripted.Calls(call("a", "work", `{"ms":30}`), call("b", "work", `{"ms":80}`))),
				scripted.Say(scripted.Calls(call("a", "work", `{"ms":20}`))), say("done", 1)),
			"ask": scripted.Steps(
				scripted.Say(scripted.Text("may I? "), scripted.Calls(call("a", "gated", `{"ms":10}`), call("b", "gated", `{"ms":20}`), call("c", "work", `{"ms":150}`))),
				say("done", 2)),
			"hand": scripted.Steps(
				scripted.Say(scripted.Calls(call("a", "locate", `{}`), call("b", "work", `{"ms":100}`), call("c", "gated", `{"ms":5}`))),
				scripted.Say(scripted.Calls(call("a", "locate", `{}`))), say("done", 3)),
		}})}
}

// soakUser talks to one session after the other, reads along, and does as it
// likes.
type soakUser struct {
	logs  *spool.Logs
	rnd   *rand.Rand
	tally *soakTally

	g    *spool.Log
	seen []chunk.Record
	open bool // a run is
	n    int  // commands
}

// session has a conversation of one or two turns and compares what was seen.
func (u *soakUser) session(ctx context.Context, session string) error {
	var err error
	if u.g, err = u.logs.Log(session); err != nil {
		return err
	}
	u.seen, u.n = nil, 0
	for range 1 + u.rnd.IntN(2) {
		scene := []string{"stream", "tools", "ask", "hand"}[u.rnd.IntN(4)]
		u.n++
		if err := u.command(ctx, say(fmt.Sprint("u", u.n), scene)); err != nil {
			return err
		}
		if err := u.turn(ctx); err != nil {
			return err
		}
	}
	u.tally.sessions.Add(1)
	return u.compare(ctx, session)
}

// turn reads until nothing goes on and nothing waits. The connection may be lost
// at any record.
func (u *soakUser) turn(ctx context.Context) error {
	stopAt := -1
	if u.rnd.IntN(3) == 0 {
		stopAt = len(u.seen) + u.rnd.IntN(60)
	}
	for {
		cut := false
		var after uint64
		if n := len(u.seen); n > 0 {
			after = u.seen[n-1].Seq
		}
		for r, err := range u.g.Records(ctx, spool.ReadOptions{After: spool.Cursor{Seq: after}}) {
			if err != nil {
				return fmt.Errorf("reading after %d: %w", after, err)
			}
			u.seen = append(u.seen, r)
			if err := u.react(ctx, r); err != nil {
				return err
			}
			if stopAt >= 0 && len(u.seen) >= stopAt {
				stopAt = -1
				if err := u.stop(ctx); err != nil {
					return err
				}
			}
			if cut = u.rnd.IntN(80) == 0; cut {
				break
			}
		}
		if cut {
			continue
		}
		var answers []chunk.Chunk
		rests := false
		err := u.g.View(ctx, func(f *fold.Fold) error {
			pending := f.Pending()
			for _, t := range pending {
				answers = append(answers, u.answer(t.CallID, t.Approval))
			}
			rests = !f.Live() && len(pending) == 0 && f.Seq == u.last()
			return nil
		})
		switch {
		case err != nil:
			return err
		case rests:
			return nil
		case len(answers) > 0 && u.rnd.IntN(6) == 0:
			if err := u.stop(ctx); err != nil {
				return err
			}
		case len(answers) > 0:
			if err := u.command(ctx, answers...); err != nil {
				return err
			}
		}
	}
}

func (u *soakUser) last() uint64 {
	if len(u.seen) == 0 {
		return 0
	}
	return u.seen[len(u.seen)-1].Seq
}

// react answers some questions at once, sometimes both ways.
func (u *soakUser) react(ctx context.Context, r chunk.Record) error {
	var answers []chunk.Chunk
	switch r.Type {
	case chunk.TypeRunStarted, chunk.TypeRunFinished, chunk.TypeRunSuspended, chunk.TypeExecutorSuperseded, chunk.TypeToolApprovalRequest, chunk.TypeToolStart:
	default:
		return nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return err
	}
	switch c := c.(type) {
	case *chunk.RunStarted:
		u.open = true
		u.tally.runs.Add(1)
	case *chunk.RunFinished:
		u.open = false
		if c.Outcome == chunk.OutcomeStopped {
			u.tally.stopped.Add(1)
		}
		if c.Outcome == chunk.OutcomeFailed {
			return fmt.Errorf("run %s failed: %s", c.RunID, c.Error)
		}
	case *chunk.RunSuspended:
		u.open = false
		u.tally.pauses.Add(1)
	case *chunk.ExecutorSuperseded:
		u.tally.takeovers.Add(1)
	case *chunk.ToolApprovalRequest:
		if u.rnd.IntN(2) == 0 {
			answers = append(answers, u.answer(c.ToolCallID, &chunk.Approval{ID: c.ApprovalID}))
		}
	case *chunk.ToolStart:
		if c.Client && u.rnd.IntN(2) == 0 {
			answers = append(answers, u.answer(c.ToolCallID, nil))
		}
	}
	if len(answers) > 0 && u.rnd.IntN(4) == 0 {
		if d, ok := answers[0].(*chunk.ToolApprovalResponse); ok {
			u.n++
			answers = append(answers, &chunk.ToolApprovalResponse{CommandID: fmt.Sprint("c", u.n), ApprovalID: d.ApprovalID, Approved: !d.Approved})
		}
	}
	if len(answers) == 0 {
		return nil
	}
	if u.open {
		u.tally.early.Add(1)
	}
	return u.command(ctx, answers...)
}

func (u *soakUser) answer(callID string, approval *chunk.Approval) chunk.Chunk {
	u.n++
	id := fmt.Sprint("c", u.n)
	switch {
	case approval != nil:
		return &chunk.ToolApprovalResponse{CommandID: id, ApprovalID: approval.ID, Approved: u.rnd.IntN(3) > 0}
	case u.rnd.IntN(5) == 0:
		return &chunk.ToolResultSubmitted{CommandID: id, ToolCallID: callID, Error: "no permission"}
	}
	return &chunk.ToolResultSubmitted{CommandID: id, ToolCallID: callID, Result: json.RawMessage(`{"lat":52.5}`)}
}

func (u *soakUser) stop(ctx context.Context) error {
	u.n++
	return u.command(ctx, &chunk.StopRequested{CommandID: fmt.Sprint("c", u.n)})
}

func (u *soakUser) command(ctx context.Context, chunks ...chunk.Chunk) error {
	_, err := u.g.Command(ctx, spool.Row{}, chunks...)
	return err
}

// compare holds what was seen against the log and the folds of it.
func (u *soakUser) compare(ctx context.Context, session string) error {
	all, kept := fold.New(session), fold.New(session)
	for i, r := range u.seen {
		if r.Seq != uint64(i)+1 {
			return fmt.Errorf("record %d has the sequence %d", i+1, r.Seq)
		}
		if err := all.Apply(r); err != nil {
			return err
		}
		if r.Class == chunk.Kept {
			if err := kept.Apply(r); err != nil {
				return err
			}
		}
	}
	kept.Seq = all.Seq
	want := mustJSON(all)
	if got := mustJSON(kept); got != want {
		return fmt.Errorf("kept records say something else:\n%s\n%s", got, want)
	}
	wantMessages := mustJSON(all.Snapshot(fold.SnapshotOptions{}).Messages)
	err := u.g.View(ctx, func(f *fold.Fold) error {
		if got := mustJSON(f); got != want {
			return fmt.Errorf("the log folds into something else than what was read:\n%s\n%s", got, want)
		}
		if got := mustJSON(f.Snapshot(fold.SnapshotOptions{}).Messages); got != wantMessages {
			return fmt.Errorf("the snapshot holds other messages:\n%s\n%s", got, wantMessages)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range all.Messages {
		for _, p := range m.Parts {
			if p.Open || p.Tool != nil && !p.Tool.State.Done() {
				return fmt.Errorf("left open: %s", mustJSON(p))
			}
		}
	}
	if all.Status != chunk.StatusEnded {
		return fmt.Errorf("it ended as %s %s", all.Status, all.Reason)
	}
	u.tally.folds.Store(session, sha256.Sum256([]byte(want)))
	return nil
}

// story is what happened in the session, to find out why.
func (u *soakUser) story() string { return kinds(u.seen) }
