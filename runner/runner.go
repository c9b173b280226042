// Package runner executes runs. Its loop claims the sessions that have something to do,
// folds their logs, executes the commands in them, and releases the sessions. A run
// belongs to its session, not to the request that started it. It ends when it is done or
// when a stop command ends it. If its owner dies, another runner recovers it.
package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/internal/redact"
)

// Options are a runner's settings. The zero value works.
type Options struct {
	// Owner names this runner in its claims. "": a new id.
	Owner string
	// LeaseTTL is how long a session stays claimed after its owner was last
	// heard of. 0: 30 s.
	LeaseTTL time.Duration
	// MaxConcurrent bounds the sessions served at the same time. 0: 256.
	MaxConcurrent int
	// StopGrace is the time that the model and the tools of a stopped run have to
	// return. After it, the run ends without them. 0: 2 s.
	StopGrace time.Duration
	// Linger is how long a delta of a run waits for more of its block before it is
	// appended, at most 50 ms. Deltas that come while an append is under way become one
	// record anyway. Negative: each delta is a record of its own.
	Linger time.Duration
	// DrainGrace is how long open runs have, after Run's context ended, to end or to come
	// to their next phase, where they are handed over to the runner that claims their
	// session next. Those that are in the middle of a phase then are cut off. That runner
	// goes on with an answer that the provider produces in the background, and recovers the
	// others. 0: no time, negative: as long as they need.
	DrainGrace time.Duration
	// Retention says how long sessions keep the trace of their turns. Of all runners of a
	// store one sweeps at a time, with its own settings: give all the same.
	Retention Retention
	// FailLost makes runs fail with [CodeExecutorLost] if their owner was lost. The
	// partial answer is kept. Without FailLost, such runs are recovered and continue.
	FailLost bool
	// MaxRecoveries is how many times in a row a run is recovered without completing a
	// step. After that it fails, as with FailLost. 0: 5.
	MaxRecoveries int
	// Hooks are called in every run, after those of its agent.
	Hooks *agent.Hooks
	// Observer is called on every event of a run. Events also go to the logs' logger,
	// and to Metrics if it is set.
	Observer Observer
	Metrics  *Metrics

	Annotations
}

const defaultMax = 256

// CodeExecutorLost is the code of a run that failed because its process was lost. One
// whose producer was lost has [stream.CodeProducerLost].
const CodeExecutorLost = engine.CodeExecutorLost

// Why a run's context ends.
var (
	errDetached = errors.New("runner: the runner closed")
	errLeft     = errors.New("runner: the run is over")
)

// Runner executes the runs of a store's sessions.
type Runner struct {
	logs    *spool.Logs
	leaser  spool.Leaser
	sweeper *sweeper
	agents  []*agent.Agent
	o       Options
	tell    Observer // everyone who is to be told

	annotations atomic.Pointer[Annotations]

	slots  chan struct{}
	wg     sync.WaitGroup
	once   sync.Once
	drain  chan struct{}   // closed when no new run may start
	ctx    context.Context // of all runs: the runner's own, no request's
	cancel context.CancelCauseFunc
}

// New returns a runner of these agents; the first one serves sessions that name
// none. It fails if there is no agent, one of them is not usable, or the store
// has no leases, or cannot delete by age what the policy of the logs wants deleted.
func New(logs *spool.Logs, agents []*agent.Agent, o *Options) (*Runner, error) {
	r := &Runner{logs: logs, agents: agents, drain: make(chan struct{})}
	if o != nil {
		r.o = *o
	}
	if len(agents) == 0 {
		return nil, errors.New("runner: there is no agent")
	}
	for i, a := range agents {
		if err := a.Check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(agents[:i], func(b *agent.Agent) bool { return b.Name == a.Name }) {
			return nil, fmt.Errorf("runner: two agents are called %q", a.Name)
		}
	}
	leaser, ok := logs.Store().(spool.Leaser)
	if !ok {
		return nil, spool.ErrUnsupported.Because("the store does not support leases, so runs cannot be executed on it")
	}
	r.leaser = leaser
	r.Annotate(r.o.Annotations)
	if r.o.Owner == "" {
		r.o.Owner = logs.NewID()
	}
	if r.o.LeaseTTL <= 0 {
		r.o.LeaseTTL = spool.DefaultLeaseTTL
	}
	if r.o.MaxConcurrent <= 0 {
		r.o.MaxConcurrent = defaultMax
	}
	var err error
	if r.sweeper, err = newSweeper(logs, r.o.Retention, r.o.Metrics, func(err error) { r.failed("", err) }); err != nil {
		return nil, err
	}
	told := []Observer{logged(logs.Logger(), logs.Now)}
	if r.o.Metrics != nil {
		told = append(told, r.o.Metrics.observer())
	}
	r.tell = all(append(told, r.o.Observer)...)
	r.slots = make(chan struct{}, r.o.MaxConcurrent)
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

// Run claims sessions and serves them until ctx ends, then drains, see
// [Options.DrainGrace]. It returns nil, or [spool.ErrClosed] when the store was
// closed under it. Call it once.
func (r *Runner) Run(ctx context.Context) error {
	swept, stop := context.WithCancel(ctx)
	r.wg.Add(1)
	r.logs.Go(func() { defer r.wg.Done(); _ = r.sweeper.run(swept) })
	err := r.claimLoop(ctx)
	stop()
	if r.o.DrainGrace != 0 {
		r.stopStarting()
		done := make(chan struct{})
		r.logs.Go(func() { r.wg.Wait(); close(done) })
		var over <-chan time.Time
		if r.o.DrainGrace > 0 {
			t := time.NewTimer(r.o.DrainGrace)
			defer t.Stop()
			over = t.C
		}
		select {
		case <-done:
		case <-over:
		case <-r.ctx.Done():
		}
	}
	_ = r.Close()
	return err
}

// Close leaves open runs to the runner that claims their sessions next. It returns when
// this runner has stopped.
func (r *Runner) Close() error {
	r.stopStarting()
	r.cancel(errDetached)
	r.wg.Wait()
	return nil
}

func (r *Runner) stopStarting() { r.once.Do(func() { close(r.drain) }) }

func (r *Runner) draining() bool {
	select {
	case <-r.drain:
		return true
	default:
		return false
	}
}

func (r *Runner) claimLoop(ctx context.Context) error {
	claim := spool.Claim{Owner: r.o.Owner, TTL: r.o.LeaseTTL, InProcess: true}
	for _, a := range r.agents {
		claim.Agents = append(claim.Agents, a.Name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)() // Close ends the loop too
	misses := 0
	for {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		lease, err := r.claim(ctx, claim)
		if err == nil {
			misses = 0
			if ctx.Err() != nil {
				r.stopStarting()
			}
			r.wg.Add(1)
			r.logs.Go(func() {
				defer func() { <-r.slots; r.wg.Done() }()
				r.serve(lease)
			})
			continue
		}
		<-r.slots
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, spool.ErrClosed):
			return err
		case errors.Is(err, spool.ErrNothingDue):
			begun := time.Now()
			if err = r.logs.AwaitDue(ctx, claim); err == nil && time.Since(begun) > 20*time.Millisecond {
				misses = 0
				continue
			}
		}
		// Another runner was faster, or the store cannot be reached. That must not
		// make this a busy loop.
		if err != nil && ctx.Err() == nil {
			r.failed("", err)
		}
		if misses++; err != nil || misses > 2 {
			_ = r.logs.Sleep(ctx, min(10*time.Millisecond<<min(misses, 9), 2*time.Second))
		}
	}
}

// claimEnds is how long a claim may take after its runner was told to stop.
const claimEnds = 2 * time.Second

// claim claims a session. A claim that is under way when ctx ends is not cancelled at once:
// the store might grant it, and nobody would serve the session until that lease expires. A
// runner that drains releases it.
func (r *Runner) claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	if ctx.Err() != nil {
		return spool.Lease{}, ctx.Err()
	}
	try, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		t := time.NewTimer(claimEnds)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-try.Done():
		}
	})()
	return r.logs.Claim(try, c)
}

func (r *Runner) failed(session string, err error) {
	if r.o.Observer.Failed != nil {
		r.o.Observer.Failed(session, err)
		return
	}
	r.logs.Logger().Warn("a session cannot be served", "session", session, "error", redact.Text(err.Error()))
}

// agent returns the agent that a session's row names.
func (r *Runner) agent(name string) (*agent.Agent, error) {
	if a := named(r.agents, name); a != nil {
		return r.annotated(a), nil
	}
	return nil, fmt.Errorf("runner: there is no agent %q here", name)
}

// named returns the agent of that name, the first one for "", or nil.
func named(agents []*agent.Agent, name string) *agent.Agent {
	for _, a := range agents {
		if name == "" || a.Name == name {
			return a
		}
	}
	return nil
}
