package runner_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
)

// relay executes the session's runs until ctx ends, each phase by another owner.
func (w *world) relay(ctx context.Context, a *agent.Agent, observer engine.Observer) error {
	for {
		lease, err := w.logs.Claim(ctx, spool.Claim{Owner: w.logs.NewID(), TTL: time.Minute, Session: "s"})
		if errors.Is(err, spool.ErrNothingDue) {
			err = w.logs.AwaitDue(ctx, spool.Claim{Owner: "relay", TTL: time.Minute, Session: "s"})
			if err == nil {
				continue
			}
		}
		if err == nil {
			err = w.leg(ctx, lease, a, observer)
		}
		if err == nil {
			err = w.store.(spool.Leaser).Release(ctx, lease)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// leg does one piece of what a claimed session needs.
func (w *world) leg(ctx context.Context, lease spool.Lease, a *agent.Agent, observer engine.Observer) error {
	e, err := engine.New(engine.Options{Logs: w.logs, Lease: lease, Agent: a, Observer: observer})
	if err != nil {
		return err
	}
	defer e.Close()
	p, err := e.Plan(ctx)
	if err != nil {
		return err
	}
	open := e.Begin
	switch p.Next {
	case engine.Rest:
		_, err := e.Rest(ctx, p)
		return err
	case engine.Recover:
		open = e.Recover
	case engine.Settle:
		return e.Settle(ctx, p)
	case engine.Expire:
		return e.Expire(ctx)
	}
	run, err := open(ctx, p)
	for over := false; err == nil && !over; {
		if phase := run.Next(); phase != fold.PhaseNone {
			run.Phase(phase)
			over, err = run.HandOver()
			continue
		}
		over, err = run.End()
	}
	return err
}

// A conversation whose every phase has another owner comes out like one with a single
// owner: nobody is told of a take-over, no recovery is counted, and nothing is done twice.
func TestHandOverAtEveryPhase(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.title(), func(t *testing.T) {
			t.Parallel()
			peace := undisturbed(t, s)
			inWorld(t, func(w *world) {
				var e effects
				var handed, recovered atomic.Int64
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() {
					done <- w.relay(ctx, s.on(w.logs, e.add), engine.Observer{
						RunHandedOver: func(agent.RunInfo) { handed.Add(1) }, RunRecovered: func(agent.RunInfo) { recovered.Add(1) }})
				}()
				defer func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}()
				w.say("s", "u1", s.name)
				w.hasten(s)
				f := w.finish(s)
				if got := s.outcome(f); got != peace.want {
					t.Errorf("got  %s\nwant %s", got, peace.want)
				}
				if got := e.calls(); !maps.Equal(got, peace.done) {
					t.Errorf("effects %v, want %v", got, peace.done)
				}
				log := w.settled("s")
				checkLog(t, log)
				if handed.Load() == 0 || recovered.Load() != 0 || strings.Contains(kinds(log), "superseded") {
					t.Errorf("handed over %d times, recovered %d times: %s", handed.Load(), recovered.Load(), kinds(log))
				}
			})
		})
	}
}

// twoCalls is an agent whose turn has two calls of a minute, one after the other.
func twoCalls() *agent.Agent {
	return &agent.Agent{Name: "demo", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
		"go": then(scripted.Say(scripted.Calls(call("a", "work", "{}"))), scripted.Say(scripted.Calls(call("b", "work", "{}")))),
	}}), Tools: []tool.Tool{tool.New("work", "", func(ctx tool.Context, _ struct{}) (string, error) {
		select {
		case <-time.After(time.Minute):
			return "worked", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})}}
}

// A runner that drains hands its runs over at their next phase. The next one goes on at
// once, also if it would end the runs of lost owners.
func TestDrainHandsOver(t *testing.T) {
	inWorld(t, func(w *world) {
		var handed, recovered, finished atomic.Int64
		count := runner.Observer{RunHandedOver: func(agent.RunInfo) { handed.Add(1) }, RunRecovered: func(agent.RunInfo) { recovered.Add(1) },
			RunFinished: func(agent.RunInfo, error) { finished.Add(1) }}
		_, stop := w.start(twoCalls(), &runner.Options{DrainGrace: 10 * time.Minute, Observer: count})
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, nil)
		synctest.Wait()
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("draining took %v", took)
		}
		records := w.records("s")
		last := w.decode(records[len(records)-1])
		head, err := w.log("s").Head(w.t.Context())
		if mark, ok := last.(*chunk.ExecutorHandedOver); !ok || err != nil || mark.Epoch != head.Epoch || mark.RunID == "" || head.Status != chunk.StatusActive {
			t.Errorf("the last record is %s, head %+v, %v", mustJSON(last), head, err)
		}
		w.start(twoCalls(), &runner.Options{FailLost: true, Observer: count})
		f := w.fold("s")
		if took := time.Since(begun); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		if log := kinds(w.settled("s")); f.Reason != "completed" || strings.Contains(log, "superseded") || handed.Load() != 1 || recovered.Load() != 0 || finished.Load() != 1 {
			t.Errorf("%s, handed over %d times, recovered %d, finished %d: %s", f.Reason, handed.Load(), recovered.Load(), finished.Load(), log)
		}
	})
}

// Only the owner that the run was handed to goes on without a notice. If that one dies,
// the next owner says so, and counts it.
func TestHandedOverAndLost(t *testing.T) {
	inWorld(t, func(w *world) {
		_, stop := w.start(twoCalls(), &runner.Options{DrainGrace: -1})
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, nil)
		stop()
		second, store := w.second("second")
		second.start(twoCalls(), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
		w.until("s", chunk.TypeToolStart, func(c chunk.Chunk) bool { return c.(*chunk.ToolStart).ToolCallID == "b" })
		store.die()
		w.start(twoCalls(), nil)
		f := w.fold("s")
		if got := strings.Count(kinds(w.settled("s")), "executor_superseded"); f.Reason != "completed" || got != 1 {
			t.Errorf("%s, %d notices", f.Reason, got)
		}
	})
}

// A stop that comes while nobody has the run ends it like any other.
func TestHandedOverAndStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		_, stop := w.start(twoCalls(), &runner.Options{DrainGrace: -1})
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, nil)
		stop()
		w.stop("s", "x1")
		w.start(twoCalls(), nil)
		w.wantStopped("s")
		if log := kinds(w.settled("s")); strings.Contains(log, "superseded") {
			t.Error(log)
		}
	})
}
