package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/tool"
)

// childGrace is what the model and the tools of a child that has run out of time
// get to come to an end.
const childGrace = 2 * time.Second

// childLog is a child's part of the session's log. It can be shut on what the
// child has left behind.
type childLog struct {
	Log                // the parent's
	session, agentType string

	mu     sync.RWMutex
	closed bool
}

func (l *childLog) Append(ctx context.Context, chunks ...spool.Chunk) error {
	for _, c := range chunks {
		if b := c.ChunkBase(); b.AgentID == "" {
			b.AgentID, b.AgentType = l.session, l.agentType
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return errChildLeft
	}
	return l.Log.Append(ctx, chunks...)
}

func (l *childLog) View(ctx context.Context, fn func(*spool.Fold) error) error {
	return l.Log.View(ctx, func(f *spool.Fold) error {
		if f = f.Child(l.session); f == nil {
			return spool.ErrNotFound.Because("there is no such child").With(l.session, nil)
		}
		return fn(f)
	})
}

func (l *childLog) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// child is a child agent while its parent's run is served.
type child struct {
	agent   *Agent
	session string
	parent  *Run
	log     *childLog
}

func (r *Run) child(a *Agent, session string) *child {
	return &child{agent: a, session: session, parent: r, log: &childLog{Log: r.Log, session: session, agentType: a.Name}}
}

// tell gives the child a message, once for a command id.
func (c *child) tell(ctx context.Context, command, text string) error {
	told := false
	err := c.log.View(ctx, func(f *spool.Fold) error {
		told = f.Verdict(command).State != spool.VerdictUnknown
		return nil
	})
	if err != nil || told {
		return err
	}
	err = c.log.Append(ctx, &spool.UserMessage{CommandID: command, WhenBusy: spool.BusyQueue, Message: spool.Message{
		ID: command, Role: spool.RoleUser, Parts: []spool.Part{{Type: spool.PartText, Text: text}}}})
	if err != nil {
		return err
	}
	return c.log.Flush(ctx)
}

// commandOf returns the id of the command that a call gives to a child.
func commandOf(effectID string) string {
	if spool.CheckID(effectID) == nil {
		return effectID
	}
	sum := sha256.Sum256([]byte(effectID))
	return "call-" + hex.EncodeToString(sum[:])
}

// childPlan is what a child's fold asks for.
type childPlan struct {
	info     RunInfo
	commands []string
	first    []spool.Chunk // to write before anything else
	begin    bool          // a run, else one is open
	goesOn   bool          // where the log has left it
	over     bool          // it is only to be ended
	waits    bool          // for answers
	rests    bool          // there is nothing to do
}

func (c *child) plan(ctx context.Context) (p childPlan, err error) {
	err = c.log.View(ctx, func(f *spool.Fold) error {
		p.info.Session = c.session
		if run := f.OpenRun(); run != nil {
			p.info.RunID, p.info.TurnID, p.info.Mode = run.ID, run.TurnID, run.Mode
			p.info.MessageID, p.goesOn = f.Turn(run.TurnID).MessageID, true
			p.over = f.Stop != nil || run.Mode == spool.ModeStop
			if f.Shown() && !p.over && !c.agent.Reattaches(f) {
				p.first = f.Discard("crash_recovery")
			}
			return nil
		}
		p.info.RunID = f.NextRun(c.parent.Info.RunID)
		switch {
		case f.Continue != nil:
			turn := f.LastTurn()
			p.begin, p.goesOn, p.commands = true, true, append(p.commands, f.Answers...)
			p.info.TurnID, p.info.MessageID, p.info.Mode = turn.ID, turn.MessageID, f.Continue.Mode
			if p.over = p.info.Mode == spool.ModeStop || p.info.Mode == spool.ModeSuperseded; p.over {
				p.commands = append(p.commands, f.Continue.ID)
				return nil
			}
			resumed := &spool.RunResumed{FromStepCount: turn.LastRun().Step, Mode: p.info.Mode}
			if n := len(f.Checkpoints); n > 0 {
				id := f.Checkpoints[n-1].ID
				resumed.FromCheckpointID = &id
			}
			p.first = []spool.Chunk{resumed}
		case f.Asks():
			p.waits = true
		case len(f.Waiting) > 0:
			w := f.Waiting[0]
			p.begin, p.commands = true, []string{w.ID}
			p.info.TurnID, p.info.MessageID, p.info.Mode = w.ID, p.info.RunID+"-m", "start"
		default:
			p.rests = true
		}
		return nil
	})
	return p, err
}

// work brings the child to rest: until it has nothing more to do (nil) or waits
// for an answer (errChildWaits). Any other error is the parent's: its run is over
// or its log takes no more. late is a context that ends with alive too, and when
// the child is to be stopped.
func (c *child) work(alive, late context.Context) error {
	for {
		if err := c.log.Flush(alive); err != nil {
			return err
		}
		p, err := c.plan(alive)
		switch {
		case err != nil:
			return err
		case p.rests:
			return nil
		case p.waits:
			return errChildWaits
		}
		if err := c.execute(alive, late, p); err != nil {
			return err
		}
	}
}

// execute brings one run to its end, or to its next pause.
func (c *child) execute(alive, late context.Context, p childPlan) error {
	if p.begin {
		p.first = append([]spool.Chunk{c.agent.Start(alive, p.info, p.commands)}, p.first...)
	}
	for _, chunk := range p.first {
		chunk.ChunkBase().RunID = p.info.RunID
	}
	if err := c.log.Append(alive, p.first...); err != nil {
		return err
	}
	run := &Run{Info: p.info, Log: c.log, Seams: c.parent.Seams, maxDepth: c.parent.maxDepth}
	result, info, err := Result{}, p.info, errChildStopped
	if !p.over {
		result, info, err = c.steps(alive, late, run, p.goesOn)
	}
	if err == nil && result.Suspended != "" {
		err = c.suspend(alive, info, result)
		if err == nil {
			return nil
		}
	}
	if alive.Err() != nil {
		return context.Cause(alive) // whoever settles the parent's run settles the child's
	}
	info.Outcome, info.FinishReason = result.Outcome, result.FinishReason
	var failure spool.ErrorInfo
	switch {
	case err == nil:
	case errors.Is(err, spool.ErrSuperseded), errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrUnavailable):
		return err
	case errors.Is(err, errChildStopped), late.Err() != nil:
		info.Outcome, info.FinishReason = spool.OutcomeStopped, "other"
	default:
		info.Outcome, info.FinishReason = spool.OutcomeFailed, "error"
		failure = Describe(err)
	}
	end := c.agent.Finish(alive, info)
	end.Error, end.Code, end.Recoverable = failure.Error, failure.Code, failure.Recoverable
	return c.settle(alive, end)
}

// settle ends the open run as the fold says.
func (c *child) settle(ctx context.Context, end *spool.RunFinished) error {
	if err := c.log.Flush(ctx); err != nil {
		return err
	}
	why := end.Error
	if why == "" {
		why = "the run was " + string(end.Outcome)
	}
	var chunks []spool.Chunk
	err := c.log.View(ctx, func(f *spool.Fold) error {
		chunks = f.Unsettled(why)
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.log.Append(ctx, append(chunks, end)...); err != nil {
		return err
	}
	return c.log.Flush(ctx)
}

// suspend pauses the open run, unless it was asked to end.
func (c *child) suspend(ctx context.Context, info RunInfo, result Result) error {
	var expires int64
	if c.agent.WaitLimit > 0 {
		expires = c.parent.Seams.Now().Add(c.agent.WaitLimit).UnixMilli()
	}
	var chunks []spool.Chunk
	err := c.log.View(ctx, func(f *spool.Fold) error {
		if f.Stop != nil {
			return errChildStopped
		}
		chunks = Suspension(f, result, expires)
		return nil
	})
	if err != nil {
		return err
	}
	for _, chunk := range chunks {
		chunk.ChunkBase().RunID = info.RunID
	}
	if err := c.log.Append(ctx, chunks...); err != nil {
		return err
	}
	return c.log.Flush(ctx)
}

// steps runs the child's steps until it is done, waits, fails or is stopped.
func (c *child) steps(alive, late context.Context, run *Run, goesOn bool) (Result, RunInfo, error) {
	type end struct {
		result Result
		info   RunInfo
		err    error
	}
	begun := run.Info
	done := make(chan end, 1)
	run.Seams.Go(func() {
		result, err := c.drive(late, run, goesOn)
		done <- end{result, run.Info, err}
	})
	var e end
	select {
	case e = <-done:
	case <-late.Done():
		if alive.Err() != nil { // how long that may take is the parent's business
			e = <-done
			break
		}
		grace := time.NewTimer(childGrace)
		defer grace.Stop()
		select {
		case e = <-done:
		case <-grace.C:
			// What ignores its context is left behind, and writes nothing any more.
			c.log.shut()
			c.log = &childLog{Log: c.log.Log, session: c.session, agentType: c.agent.Name}
			return Result{}, begun, context.Cause(late)
		}
	}
	if e.err != nil && late.Err() != nil {
		e.err = context.Cause(late)
	}
	return e.result, e.info, e.err
}

// drive runs steps. A panic of the model fails the child, not the process.
func (c *child) drive(ctx context.Context, run *Run, goesOn bool) (result Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			if log := run.Seams.Logger; log != nil {
				log.Error("the agent panicked", "session", c.session, "panic", v, "stack", string(debug.Stack()))
			}
			err = fmt.Errorf("the agent panicked: %v", v)
		}
	}()
	next := c.agent.Step
	if goesOn {
		next = c.agent.Recover
	}
	for {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		err := c.log.View(ctx, func(f *spool.Fold) error {
			if f.Stop != nil {
				return errChildStopped
			}
			return nil
		})
		if err != nil {
			return Result{}, err
		}
		result, err = next(ctx, run)
		if err != nil || result.Done || result.Suspended != "" {
			return result, err
		}
		next = c.agent.Step
	}
}

// result returns what came of a message that the child was told, and is done
// with.
func (c *child) result(ctx context.Context, command string) (json.RawMessage, error) {
	var (
		result json.RawMessage
		parts  []spool.Part
		failed error
	)
	err := c.log.View(ctx, func(f *spool.Fold) error {
		turn := f.Turn(command)
		if turn == nil {
			return spool.ErrNotFound.Because("the child was not told").With(c.session, nil)
		}
		switch turn.LastRun().Outcome {
		case spool.OutcomeCompleted:
		case spool.OutcomeFailed:
			failed = errors.New("the agent failed")
			if f.Error != nil {
				failed = fmt.Errorf("the agent failed: %s", f.Error.Error)
			}
		case spool.OutcomeLimit:
			failed = errors.New("the agent reached its limit before it was done")
		default:
			failed = errors.New("the agent was stopped")
		}
		if m := f.Message(turn.MessageID); m != nil {
			parts = m.Clone().Parts
		}
		return nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	resolve := func(v json.RawMessage) (json.RawMessage, error) { return c.log.Blob(ctx, v) }
	text := ""
	for _, p := range parts {
		switch {
		case p.Type == spool.PartStep:
			text = ""
		case p.Type == spool.PartData && p.Name == "output":
			if result, err = resolve(p.Data); err != nil {
				return nil, err
			}
		case p.Type == spool.PartText:
			if p, err = p.Whole(resolve); err != nil {
				return nil, err
			}
			text += p.Text
		}
	}
	if c.agent.Output != nil && result != nil {
		return result, nil
	}
	return json.Marshal(text)
}

// runChild makes a call that is a child's, and reports once, as run does.
func (h *host) runChild(alive context.Context, outcomes chan<- error) {
	c := h.call
	s := subAgentOf(h.step.agent.tool(c.name))
	late, cancel := alive, context.CancelFunc(func() {})
	limit := h.step.agent.tool(c.name).Spec().Timeout
	if limit > 0 {
		late, cancel = context.WithTimeoutCause(alive, limit, errTimeout)
	}
	defer cancel()
	result, err, ends := h.step.delegate(alive, late, s, c)
	switch {
	case errors.Is(ends, errChildWaits):
		c.waits = true
		outcomes <- nil
		return
	case ends != nil:
		outcomes <- ends
		return
	case err != nil && late.Err() != nil && alive.Err() == nil:
		err = fmt.Errorf("timed out after %v", limit.Round(time.Millisecond))
	}
	if err != nil && s.o.Fatal {
		err = tool.Fatal(err)
	}
	_, ends = h.finish(alive, result, err)
	outcomes <- ends
}

// delegate has a child do what a call asks, or go on with it. It returns the
// call's outcome, or what keeps it from having one.
func (s *step) delegate(alive, late context.Context, sub *subAgent, c *call) (result json.RawMessage, failed, ends error) {
	if depth(c.child) > s.run.maxDepth {
		return nil, fmt.Errorf("agents may be nested %d deep, not deeper", s.run.maxDepth), nil
	}
	text, err := promptOf(sub, json.RawMessage(c.args))
	if err != nil {
		return nil, err, nil
	}
	kid, command := s.run.child(sub.child, c.child), commandOf(c.effectID)
	if err := kid.tell(alive, command, text); err != nil {
		return nil, nil, err
	}
	if err := kid.work(alive, late); err != nil {
		return nil, nil, err
	}
	result, err = kid.result(alive, command)
	return result, err, nil
}

func promptOf(sub *subAgent, input json.RawMessage) (text string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the prompt of %s panicked: %v", sub.child.Name, v)
		}
	}()
	return sub.prompt(input), nil
}

// children looks up which of the step's calls have a child.
func (s *step) children(ctx context.Context) error {
	return s.run.Log.View(ctx, func(f *spool.Fold) error {
		s.nextChild = len(f.Children) + 1
		for _, c := range s.calls {
			if kid := f.ChildOf(c.id); kid != nil {
				c.child, c.childMode = kid.Session, kid.Mode
			}
		}
		return nil
	})
}

// beget begins the child of a call, if it is an agent's and has none yet. That
// is done in the order of the calls, so that the children's numbers are theirs.
func (s *step) beget(ctx context.Context, c *call) error {
	sub := subAgentOf(s.agent.tool(c.name))
	if sub == nil || c.child != "" {
		return nil
	}
	c.child = fmt.Sprintf("%s.%d", s.run.Info.Session, s.nextChild)
	s.nextChild++
	return s.append(ctx, &spool.SubAgentStart{SubAgentType: sub.child.Name, SubSessionID: c.child, CallID: c.id})
}

// over returns what ends a call's child with the call.
func (c *call) over(s *step, result json.RawMessage, failed string) []spool.Chunk {
	if c.child == "" || c.childMode != "" {
		return nil
	}
	end := &spool.SubAgentEnd{SubSessionID: c.child, CallID: c.id, Result: result, Error: failed}
	if sub := subAgentOf(s.agent.tool(c.name)); sub != nil {
		end.SubAgentType = sub.child.Name
	}
	return []spool.Chunk{end}
}
