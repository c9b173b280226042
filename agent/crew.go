package agent

import (
	"context"
	"encoding/json"
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

// Leave ends what the run's companions do, and waits for that. Whoever called
// Step or Recover calls it when no step follows.
func (r *Run) Leave() {
	if r.crew == nil {
		return
	}
	r.crew.cancel(errLeft)
	_ = r.crew.wait()
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

// work has a child do what it was told, unless it is at it. A child that was
// terminated does nothing: then it returns nil.
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

// shift is work, in whatever goroutine: a panic is the run's error.
func (c *child) shift(alive, late context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = c.parent.crashed(v)
		}
	}()
	return c.work(alive, late)
}

// terminate ends a child's shift for good and waits for that.
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

// takeUp sets companions to work that another process, or an earlier run, has left
// with something to do, that were paused with it, or that got an answer meanwhile.
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

// rest waits until no companion has anything left to do but to wait for answers.
func (a *Agent) rest(ctx context.Context, r *Run) error {
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

// join lets a run end or pause only when its companions have nothing more to do.
// If one of them waits for an answer, the run waits for the child.
func (a *Agent) join(ctx context.Context, r *Run, result Result, err error) (Result, error) {
	if err != nil || !result.over() || result.Suspended == chunk.SuspendedInterrupted || result.Outcome == chunk.OutcomeSteered {
		return result, err
	}
	if err := a.rest(ctx, r); err != nil {
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

// accompany makes a call of a companion tool. As delegate, it returns the call's
// outcome or what keeps it from having one.
func (s *step) accompany(ctx context.Context, op companionOp, c *call) (result json.RawMessage, failed, ends error) {
	in, command := inputOf(c), commandOf(c.effectID)
	if op == opList {
		return s.listChildren(ctx)
	}
	session := in.ChildID
	if op == opSpawn {
		session = c.child
		if session == "" {
			return nil, errors.New("there is no agent of that name"), nil
		}
	}
	status, of := childStatus{}, (*Agent)(nil)
	told, latest := false, ""
	err := s.run.Log.View(ctx, func(f *fold.Fold) error {
		kid := f.Child(session)
		if kid == nil || kid == f || kid.Mode == "" || !slices.Contains(f.Children, kid) {
			return nil
		}
		if k := s.agent.companion(kid.AgentType); k != nil {
			of, status = k.Agent, statusOf(kid)
		}
		told = kid.Verdict(command).State != fold.VerdictUnknown
		if t := kid.LastTurn(); t != nil {
			latest = t.ID
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, nil, err
	case of == nil:
		return nil, errNoChild, nil
	case (op == opSpawn || op == opSend) && depth(session) > s.run.maxDepth:
		return nil, tooDeep(s.run.maxDepth), nil
	case op == opTerminate:
		return s.terminate(ctx, c, session, status)
	case status.Status == "terminated" && (op == opSend || op == opWait) && !told:
		return nil, errChildEnded, nil
	}
	kid := s.child(of, session)
	if status.Status == "terminated" && told {
		return s.finding(ctx, kid, command)
	}
	switch op {
	case opSpawn, opSend:
		text := in.Task
		if op == opSend {
			text = in.Message
		}
		if err := kid.tell(ctx, command, text); err != nil {
			return nil, nil, err
		}
		shift := s.run.crew.work(kid)
		if shift == nil {
			return nil, errChildEnded, nil
		}
		if status.Mode == chunk.ChildBackground {
			result, err := json.Marshal(childStatus{ChildID: session, Status: "working"})
			return result, err, nil
		}
		if err := wait(ctx, shift); err != nil {
			return nil, nil, err
		}
		return s.finding(ctx, kid, command)
	case opWait:
		if status.Status == "working" || status.Status == "waiting" {
			shift := s.run.crew.work(kid)
			if shift == nil {
				return nil, errChildEnded, nil
			}
			if err := wait(ctx, shift); err != nil {
				return nil, nil, err
			}
		}
		return s.finding(ctx, kid, "")
	}
	if latest == "" || status.Status == "working" || status.Status == "waiting" {
		result, err = json.Marshal(status)
		return result, err, nil
	}
	status.Result, err = kid.result(ctx, latest)
	if err != nil {
		status.Error = err.Error()
	}
	result, err = json.Marshal(status)
	return result, err, nil
}

// wait waits until a child has done its shift.
func wait(ctx context.Context, s *shift) error {
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finding is what a child has answered to a message, or last.
func (s *step) finding(ctx context.Context, kid *child, command string) (result json.RawMessage, failed, ends error) {
	if command == "" {
		err := kid.log.View(ctx, func(f *fold.Fold) error {
			if t := f.LastTurn(); t != nil {
				command = t.ID
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	answer, err := kid.result(ctx, command)
	if err != nil {
		return nil, err, nil
	}
	result, err = json.Marshal(childStatus{ChildID: kid.session, Result: answer})
	return result, err, nil
}

func (s *step) listChildren(ctx context.Context) (result json.RawMessage, failed, ends error) {
	list := []childStatus{}
	ends = s.run.Log.View(ctx, func(f *fold.Fold) error {
		for _, c := range f.Children {
			if c.Mode != "" {
				list = append(list, statusOf(c))
			}
		}
		return nil
	})
	result, failed = json.Marshal(list)
	return result, failed, ends
}

// terminate ends a child: what it does is stopped and settled, and it says no
// more.
func (s *step) terminate(ctx context.Context, c *call, session string, status childStatus) (result json.RawMessage, failed, ends error) {
	s.run.crew.terminate(session)
	if err := s.run.Log.Flush(ctx); err != nil {
		return nil, nil, err
	}
	var chunks []chunk.Chunk
	err := s.run.Log.View(ctx, func(f *fold.Fold) error {
		chunks = f.Owed().EndChild(session, c.id, "the child was terminated")
		return nil
	})
	if err == nil && len(chunks) > 0 {
		err = s.run.Log.Append(ctx, chunks...)
	}
	if err != nil {
		return nil, nil, err
	}
	result, err = json.Marshal(childStatus{ChildID: session, Agent: status.Agent, Status: "terminated"})
	return result, err, nil
}
