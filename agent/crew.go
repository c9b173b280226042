package agent

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// crew is the companions that are at work while a run lives.
type crew struct {
	mu     sync.Mutex
	ctx    context.Context // the run's: they go on from one step to the next
	cancel context.CancelCauseFunc
	shifts map[string]*shift // by session
	breaks bool              // they are to pause at their next step boundaries
	ended  map[string]bool   // sessions of children that were terminated
}

// shift is a child at work, until it has nothing more to do.
type shift struct {
	done  chan struct{}
	again bool  // it has been told more
	err   error // once done: errChildWaits, or what ends the run
	stop  context.CancelCauseFunc
}

// begin notes what the whole run needs of its agent, and what it has used.
func (a *Agent) begin(ctx context.Context, r *Run) error {
	if r.crew != nil {
		return nil
	}
	if r.maxDepth == 0 {
		if r.maxDepth = a.MaxDepth; r.maxDepth == 0 {
			r.maxDepth = defaultMaxDepth
		}
	}
	r.budget = a.TokenBudget
	err := r.Log.View(ctx, func(f *fold.Fold) error {
		if run := f.OpenRun(); run != nil {
			r.Info.Usage = run.Usage
			r.used.Store(tokens(f.Used()))
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.crew = &crew{shifts: map[string]*shift{}, ended: map[string]bool{}}
	r.crew.ctx, r.crew.cancel = context.WithCancelCause(ctx)
	_, err = a.takeUp(ctx, r)
	return err
}

// leave ends what the run's companions do, and waits for that.
func (r *Run) leave() {
	if r.crew == nil {
		return
	}
	r.crew.cancel(errLeft)
	_ = r.crew.wait()
}

// idle reports whether nobody is at work.
func (w *crew) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.shifts {
		select {
		case <-s.done:
		default:
			return false
		}
	}
	return true
}

// pause lets the companions at work come to their next step boundaries, pauses
// them there, and waits for that.
func (w *crew) pause() error {
	w.mu.Lock()
	w.breaks = true
	w.mu.Unlock()
	return w.wait()
}

// pauses reports whether the companions are to pause.
func (w *crew) pauses() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.breaks
}

func (w *crew) wait() error {
	w.mu.Lock()
	var all []*shift
	for _, s := range w.shifts {
		all = append(all, s)
	}
	w.mu.Unlock()
	var first error
	for _, s := range all {
		<-s.done
		if s.err != nil && !errors.Is(s.err, errChildWaits) {
			first = s.err
		}
	}
	return first
}

// work has a child do what it was told, in a shift of its own, or in the one that it is
// at. It returns nil if the child was terminated.
func (w *crew) work(kid *child) *shift {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended[kid.session] {
		return nil
	}
	if s := w.shifts[kid.session]; s != nil {
		select {
		case <-s.done:
		default:
			s.again = true
			return s
		}
	}
	late, stop := context.WithCancelCause(w.ctx)
	s := &shift{done: make(chan struct{}), stop: stop}
	w.shifts[kid.session] = s
	kid.parent.Seams.Go(func() {
		defer stop(nil)
		for {
			err := kid.shift(w.ctx, late)
			w.mu.Lock()
			if !s.again || err != nil || late.Err() != nil {
				s.err = err
				close(s.done)
				w.mu.Unlock()
				return
			}
			s.again = false
			w.mu.Unlock()
		}
	})
	return s
}

// shift is work that turns a panic into the run's error.
func (c *child) shift(alive, late context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.parent.crashed(v)
		}
	}()
	return c.work(alive, late)
}

// terminate ends a child's shift permanently and waits for that.
func (w *crew) terminate(session string) {
	w.mu.Lock()
	w.ended[session] = true
	s := w.shifts[session]
	w.mu.Unlock()
	if s != nil {
		s.stop(ErrStopped)
		<-s.done
	}
}

// takeUp sets companions to work: those that another process or an earlier run has
// left with something to do, those that were paused with the run, and those that got
// an answer meanwhile. It reports whether there are some.
func (a *Agent) takeUp(ctx context.Context, r *Run) (some bool, err error) {
	if len(a.Companions) == 0 {
		return false, nil
	}
	var kids, paused []*child
	err = r.Log.View(ctx, func(f *fold.Fold) error {
		for _, c := range f.Children {
			k := a.companion(c.AgentType)
			if k == nil || c.Mode == "" || c.Ended > 0 {
				continue
			}
			kid := (&step{agent: a, run: r}).child(k.Agent, c.Session)
			switch {
			case c.Break() == nil:
				if c.Live() && !c.Asks() {
					kids = append(kids, kid)
				}
			case f.Interrupt == nil: // else the run is to pause, too
				kids, paused = append(kids, kid), append(paused, kid)
			}
		}
		return nil
	})
	for _, kid := range paused { // before anybody can tell it more
		if err == nil {
			err = kid.goOn(ctx)
		}
	}
	if err != nil {
		return false, err
	}
	for _, kid := range kids {
		r.crew.work(kid)
	}
	return len(kids) > 0, nil
}

// awaitCompanions waits until no companion has anything left to do but to wait for
// answers.
func (a *Agent) awaitCompanions(ctx context.Context, r *Run) error {
	for some := true; some && r.crew != nil; {
		err := r.crew.wait()
		if err == nil {
			some, err = a.takeUp(ctx, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// join waits for the companions of a run that is about to end or to pause for
// answers. If one of them waits for an answer, the run waits for that child.
func (a *Agent) join(ctx context.Context, r *Run, result Result, err error) (Result, error) {
	if err != nil || !result.Over() || result.Suspended == chunk.SuspendedInterrupted || result.Outcome == chunk.OutcomeSteered {
		return result, err
	}
	if err := a.awaitCompanions(ctx, r); err != nil {
		return Result{}, err
	}
	var waiting []string
	err = r.Log.View(ctx, func(f *fold.Fold) error {
		for _, c := range f.Children {
			if c.Mode != "" && c.Ended == 0 && len(c.PendingCalls()) > 0 && !slices.Contains(result.Children, c.Session) {
				waiting = append(waiting, c.Session)
			}
		}
		return nil
	})
	if err != nil || len(waiting) == 0 {
		return result, err
	}
	if result.Done {
		result = Result{}
	}
	result.Suspended, result.Children = chunk.SuspendedChildren, append(result.Children, waiting...)
	return result, nil
}

// wait waits until the child has done its shift, and returns how that ended.
func (s *shift) wait(ctx context.Context) error {
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
