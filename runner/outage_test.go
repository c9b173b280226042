package runner_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// away says when a store is away, for how long, and how.
type away struct {
	at     int           // from this append of an owner on
	lasts  time.Duration // 0: never
	hangs  bool          // calls hang, or they fail
	stored bool          // that append is stored, but not answered
}

func (a away) String() string {
	return fmt.Sprintf("away at append %d for %v (hangs: %v, stored: %v)", a.at, a.lasts, a.hangs, a.stored)
}

// distant is a store that is away once.
type distant struct {
	*storetest.Outage
	away
	mu      sync.Mutex
	appends int
}

func (d *distant) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if a.Epoch == 0 {
		return d.Outage.Append(ctx, a)
	}
	d.mu.Lock()
	d.appends++
	now := d.appends == d.at && d.lasts > 0
	d.mu.Unlock()
	if !now {
		return d.Outage.Append(ctx, a)
	}
	begin := func() {
		d.Begin(d.hangs)
		time.AfterFunc(d.lasts, d.End)
	}
	if !d.stored {
		begin()
		return d.Outage.Append(ctx, a)
	}
	res, err := d.Engine.Append(ctx, a)
	begin()
	if lost := d.Reach(ctx); lost != nil {
		return spool.Appended{}, lost
	}
	return res, err
}

// played is what must be the same, wherever the store was away.
type played struct {
	outcome  string
	effects  map[string]int
	requests int64
	appends  int
	log      []chunk.Record
}

// throughOutage plays a scenario on two processes whose store is away.
func throughOutage(t *testing.T, s scenario, a away) (p played) {
	inWorld(t, func(w *world) {
		store := &distant{Outage: storetest.NewOutage(w.store.(*memstore.Store)), away: a}
		var e effects
		var requests atomic.Int64
		for _, name := range []string{"first", "second"} {
			process := w.on(store, name)
			o := &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}}
			o.Observer.ModelStarted = func(agent.RunInfo, agent.ModelCall) { requests.Add(1) }
			process.start(s.on(w.logs, e.add), o)
		}
		w.say("s", "u1", s.name)
		w.hasten(s)
		f := w.finish(s)
		store.mu.Lock()
		defer store.mu.Unlock()
		p = played{s.outcome(f), e.calls(), requests.Load(), store.appends, w.settled("s")}
		checkLog(t, p.log)
	})
	return p
}

// A store that is away at any append of an owner, for as long as a failover takes or
// longer than a lease lasts, costs a pause and nothing else: no owner is lost, no call is
// made again, and the provider is asked for nothing twice.
func TestOutageAtEveryAppend(t *testing.T) {
	t.Parallel()
	lengths := []time.Duration{time.Second, 5 * time.Second, 20 * time.Second, time.Minute}
	stride := 61 * matrix.Stride(t, 3) // of all points and outages
	if os.Getenv(envChaos) != "" {
		stride = 1
	}
	for _, s := range append(scenarios(), hasty()...) {
		t.Run(s.title(), func(t *testing.T) {
			t.Parallel()
			want := throughOutage(t, s, away{})
			check := func(a away) {
				got := throughOutage(t, s, a)
				where := fmt.Sprintf("%s\n%s", a, kinds(got.log))
				if got.outcome != want.outcome {
					t.Errorf("%s:\n%s\nundisturbed:\n%s", where, got.outcome, want.outcome)
				}
				if !maps.Equal(got.effects, want.effects) || got.requests != want.requests {
					t.Errorf("%s: effects %v and %d requests, want %v and %d", where, got.effects, got.requests, want.effects, want.requests)
				}
				if strings.Contains(kinds(got.log), string(chunk.TypeExecutorSuperseded)) {
					t.Errorf("%s: the owner was lost", where)
				}
			}
			for at := 1; at <= want.appends; at++ {
				for i, d := range lengths {
					for how := range 4 {
						if (at*16+i*4+how)%stride == 0 {
							check(away{at, d, how&1 > 0, how&2 > 0})
						}
					}
				}
			}
		})
	}
}

// unrenewed is a store that takes appends, but no renewals.
type unrenewed struct {
	*memstore.Store
	refuses atomic.Bool
	renewed atomic.Int64
}

func (s *unrenewed) Renew(ctx context.Context, l spool.Lease) error {
	if s.renewed.Add(1); s.refuses.Load() {
		return errors.New("not now")
	}
	return s.Store.Renew(ctx, l)
}

// An owner that cannot renew its lease calls no tool and asks no model any more, and goes
// on with the answer that it hears. It does the rest when its lease is certain again.
func TestOwnerThatCannotRenewDispatchesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		var asked, called atomic.Int64
		late := func(c scripted.Call) iter.Seq2[model.Part, error] {
			if c.Round > 0 {
				return scripted.Steps(scripted.Say(scripted.Text("done")))(scripted.Call{})
			}
			return func(yield func(model.Part, error) bool) {
				for part, err := range sayFor(25, time.Second)(c) {
					if !yield(part, err) {
						return
					}
				}
				yield(model.ToolCallEnd{ID: "a", Name: "get_weather", Arguments: `{"city":"Bonn"}`}, nil)
			}
		}
		store := &unrenewed{Store: w.store.(*memstore.Store)}
		store.refuses.Store(true)
		o := &runner.Options{}
		o.Observer.ModelStarted = func(agent.RunInfo, agent.ModelCall) { asked.Add(1) }
		o.Observer.ToolStarted = func(agent.RunInfo, agent.ToolCall) { called.Add(1) }
		w.on(store, "first").start(demo(map[string]scripted.Scene{"late": late}), o)
		w.say("s", "u1", "late")
		time.Sleep(5 * time.Minute)
		if got := w.peek().Messages[1].Text(); !strings.Contains(got, "w24 ") || asked.Load() != 1 || called.Load() != 0 {
			t.Errorf("%d requests, %d calls, and heard is %q", asked.Load(), called.Load(), got)
		}
		store.refuses.Store(false)
		f := w.fold("s")
		if f.Reason != "completed" || asked.Load() != 2 || called.Load() != 1 || strings.Contains(kinds(w.settled("s")), string(chunk.TypeExecutorSuperseded)) {
			t.Errorf("%s with %d requests and %d calls: %s", f.Reason, asked.Load(), called.Load(), kinds(w.settled("s")))
		}
	})
}

// An owner that alone cannot reach the store loses its run to another one, a TTL later, and
// ends when it learns of that.
func TestOwnerThatIsCutOff(t *testing.T) {
	inWorld(t, func(w *world) {
		store := storetest.NewOutage(w.store.(*memstore.Store))
		failures := make(chan error, 10)
		o := &runner.Options{Observer: runner.Observer{Failed: func(session string, err error) {
			if session != "" {
				failures <- err
			}
		}}}
		w.on(store, "first").start(demo(nil), o)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		store.Begin(true)
		w.on(w.store, "second").start(demo(nil), nil)
		f := w.fold("s")
		if log := kinds(w.settled("s")); f.Reason != "completed" || strings.Count(log, string(chunk.TypeExecutorSuperseded)) != 1 || !strings.HasSuffix(f.Messages[1].Text(), "w99 ") {
			t.Errorf("%s, %s: %q", f.Reason, log, f.Messages[1].Text())
		}
		if len(failures) > 0 {
			t.Errorf("the owner has ended while it could know nothing: %v", <-failures)
		}
		before := w.records("s")
		store.End()
		if err := <-failures; !errors.Is(err, spool.ErrSuperseded) {
			t.Errorf("the owner ended with %v", err)
		}
		if after := w.records("s"); len(after) != len(before) {
			t.Errorf("it has written: %s", kinds(after[len(before):]))
		}
	})
}

// An owner learns from any head that another one has its session, before it renews or
// appends.
func TestOwnerLearnsFromHeads(t *testing.T) {
	inWorld(t, func(w *world) {
		store := &unrenewed{Store: w.store.(*memstore.Store)}
		failures := make(chan error, 10)
		_, stop := w.on(store, "first").start(demo(nil), &runner.Options{LeaseTTL: time.Hour, Observer: runner.Observer{Failed: func(_ string, err error) { failures <- err }}})
		w.say("s", "u1", "silent")
		w.until("s", chunk.TypeStepStarted, nil)
		if _, err := w.logs.Claim(w.t.Context(), spool.Claim{Owner: "thief", TTL: time.Minute, Session: "s", Force: true}); err != nil {
			t.Fatal(err)
		}
		if err := <-failures; !errors.Is(err, spool.ErrSuperseded) || store.renewed.Load() > 0 {
			t.Errorf("%v after %d renewals", err, store.renewed.Load())
		}
		stop()
		time.Sleep(time.Minute) // until the model, which is deaf, has ended
	})
}
