package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/tool"
)

// runTools brings the step's calls to their outcomes, all at once, and returns
// those that must wait for an answer. Dispatches are committed before any tool
// runs. Calls that have an outcome are not made again.
func (s *step) runTools(ctx context.Context) (waiting []*call, err error) {
	if s.fatal != "" {
		return nil, ErrToolFatal.With(s.run.Info.Session, errors.New(s.fatal))
	}
	state, err := s.openState(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.children(ctx); err != nil {
		return nil, err
	}
	var dispatched []*call
	for _, c := range s.calls {
		verdict, err := s.prepare(ctx, c)
		if err != nil {
			return nil, err
		}
		switch verdict {
		case callRuns:
			dispatched = append(dispatched, c)
		case callLeaves, callAsks, callWaits:
			waiting = append(waiting, c)
		}
	}
	if err := s.run.Log.Flush(ctx); err != nil || len(dispatched) == 0 {
		return waiting, err
	}
	if err := s.run.ready(ctx); err != nil {
		return waiting, err
	}
	err = s.dispatch(ctx, dispatched, state)
	for _, c := range dispatched {
		if c.waitsFor != "" {
			waiting = append(waiting, c)
		}
	}
	return waiting, err
}

// verdict is what is to be done about a call.
type verdict int

const (
	callOver   verdict = iota // nothing: it has its outcome
	callRuns                  // it runs now
	callLeaves                // it is handed to the client
	callAsks                  // a human must approve it first
	callWaits                 // it has been handed out, or approval was asked for
	callLost                  // its outcome is unknown and stays so
)

// prepare decides what is to be done about a call, and writes it into the log.
func (s *step) prepare(ctx context.Context, c *call) (verdict, error) {
	if c.providerExecuted || c.part != nil && c.part.State.Done() {
		return callOver, nil
	}
	input, refusal := s.checkCall(c)
	if refusal != "" {
		return callOver, s.append(ctx, &chunk.ToolInputError{ToolCallID: c.id, ToolName: c.name, Input: input, Error: refusal})
	}
	if c.part == nil || c.part.Approval == nil && c.part.State != chunk.ToolExecuting {
		changed, over, err := s.beforeCall(ctx, c, input)
		if err != nil || over {
			return callOver, err
		}
		input = changed
	}
	v := s.consider(c, input)
	return v, s.record(ctx, c, v, input)
}

// consider decides about a call that has no outcome and whose input is valid.
func (s *step) consider(c *call, input json.RawMessage) verdict {
	spec := s.tool(c.name).Spec()
	var approval *chunk.Approval
	begun := false
	if c.part != nil {
		approval, begun = c.part.Approval, c.part.State == chunk.ToolExecuting
	}
	c.client = spec.Client
	switch {
	case spec.Client && begun:
		return callWaits
	case spec.Client:
		return callLeaves
	case begun && (spec.Recovery == tool.RecoverRetry || subAgentOf(s.tool(c.name)) != nil):
		return callRuns
	case begun && spec.Recovery == tool.RecoverAsk:
		return callAsks
	case begun:
		return callLost
	case approval == nil && needsApproval(spec, input):
		return callAsks
	case approval != nil && approval.Approved == nil:
		return callWaits
	}
	return callRuns
}

// record writes what a verdict means for a call.
func (s *step) record(ctx context.Context, c *call, v verdict, input json.RawMessage) error {
	switch v {
	case callLost:
		h := &host{step: s, call: c, state: s.state}
		_, err := h.finish(ctx, nil, errLost)
		return err
	case callAsks:
		return s.append(ctx, &chunk.ToolApprovalRequest{ApprovalID: s.run.Seams.NewID(), ToolCallID: c.id, ToolName: c.name, Input: input})
	case callRuns, callLeaves:
		if c.child == "" { // else it was begun before, and goes on
			err := s.append(ctx, &chunk.ToolStart{ToolCallID: c.id, ToolName: c.name, Arguments: input, EffectID: c.effectID, Client: v == callLeaves})
			if err != nil {
				return err
			}
		}
		if v == callRuns {
			return s.beget(ctx, c)
		}
	}
	return nil
}

// needsApproval asks the tool's policy. If that panics, the call needs approval.
func needsApproval(spec tool.Spec, input json.RawMessage) (needed bool) {
	if spec.NeedsApproval == nil {
		return false
	}
	defer func() {
		if recover() != nil {
			needed = true
		}
	}()
	return spec.NeedsApproval(input)
}

var errLost = errors.New("the outcome of this call is unknown: the process that made it was lost")

// openState returns the state as the step's calls and hooks see it.
func (s *step) openState(ctx context.Context) (*stepState, error) {
	if s.state != nil {
		return s.state, nil
	}
	state := &stepState{emitted: map[string][]*chunk.Custom{}}
	err := s.run.Log.View(ctx, func(f *fold.Fold) error {
		committed, patches := f.Staged()
		state.base, state.current = slices.Clone(committed), slices.Clone(f.State)
		for _, p := range patches {
			state.staged = append(state.staged, staged{p.ToolCallID, p.Patches})
		}
		for _, c := range s.calls {
			state.emitted[c.id] = slices.Clone(f.Emitted(c.id))
		}
		return nil
	})
	s.state = state
	return state, err
}

// checkCall returns a call's input, or why it cannot run, in words for the model.
func (s *step) checkCall(c *call) (input json.RawMessage, refusal string) {
	if strings.TrimSpace(c.args) == "" {
		c.args = "{}"
	}
	input = json.RawMessage(c.args)
	if !jsonenc.Valid(input) {
		return nil, "the arguments are not valid JSON, or nested too deep"
	}
	t := s.tool(c.name)
	if t == nil {
		names := make([]string, 0, len(s.tools))
		for _, t := range s.allTools() {
			names = append(names, t.Spec().Name)
		}
		return input, fmt.Sprintf("there is no tool %q; there are: %s", c.name, strings.Join(names, ", "))
	}
	if err := s.check(t, input); err != nil {
		return input, shown(err.Error())
	}
	return input, ""
}

// check asks the tool. If that panics, the call is refused.
func (s *step) check(t tool.Tool, input json.RawMessage) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked("a tool's check panicked", v, "tool", t.Spec().Name)
			err = errors.New("the tool panicked")
		}
	}()
	return tool.Check(t, input)
}

func (s *step) dispatch(ctx context.Context, calls []*call, state *stepState) error {
	hosts := make([]*host, len(calls))
	for i, c := range calls {
		hosts[i] = &host{step: s, call: c, state: state, said: state.emitted[c.id]}
		if err := hosts[i].takeBack(ctx); err != nil { // what it did the last time
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcomes := make(chan error, len(calls))
	for _, h := range hosts {
		s.run.Seams.Go(func() { h.run(ctx, outcomes) })
	}
	var first error
	for range calls {
		err := <-outcomes
		if err != nil && first == nil {
			first = err
			cancel(err) // the others need not go on
		}
	}
	if first == nil && ctx.Err() != nil {
		first = context.Cause(ctx)
	}
	return first
}

var _ tool.Host = (*host)(nil)

// host is a running call's side of the log.
type host struct {
	step  *step
	call  *call
	state *stepState

	mu   sync.Mutex
	done bool            // the call has come back, or took too long
	left bool            // it failed or took too long: it can emit nothing more
	over bool            // its outcome is in the log
	said []*chunk.Custom // events that it emitted before a crash and has not repeated yet
}

// comesBack notes that the call has come back, or took too long, and reports whether
// that is the first time.
func (h *host) comesBack(failed bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.done
	h.done, h.left = true, h.left || first && failed
	return first
}

// run makes the call and reports once: nil when its outcome is in the log, or
// what ends the run.
func (h *host) run(ctx context.Context, outcomes chan<- error) {
	if involves(h.step.tool(h.call.name)) {
		h.runChild(ctx, outcomes)
		return
	}
	t := h.step.tool(h.call.name)
	limit := t.Spec().Timeout
	if limit == 0 {
		limit = h.step.agent.ToolTimeout
	}
	callCtx, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		callCtx, cancel = h.step.run.Seams.within(ctx, limit, errTimeout)
	}
	defer cancel()
	begun, ended := h.step.run.Seams.Now(), h.step.toolCalled(h.call)
	finish := func(result json.RawMessage, err error) {
		if !h.comesBack(err != nil) {
			return
		}
		if errors.Is(context.Cause(callCtx), errTimeout) && err != nil {
			err = fmt.Errorf("timed out after %v", limit.Round(time.Millisecond))
		}
		t := &ToolCall{Result: result, Err: err, Duration: h.step.run.Seams.Now().Sub(begun)}
		if err == nil || !cancelled(ctx) {
			outcome := context.WithoutCancel(ctx)
			if err != nil {
				if err := h.takeBack(outcome); err != nil {
					outcomes <- err
					return
				}
			}
			h.afterTool(outcome, t)
		}
		_, err = h.finish(ctx, t.Result, t.Err)
		ended(t.Err)
		outcomes <- err
	}
	// A tool that ignores its context does not hold up the step.
	stop := context.AfterFunc(callCtx, func() {
		if errors.Is(context.Cause(callCtx), errTimeout) {
			finish(nil, errTimeout)
		}
	})
	defer stop()
	info := &h.step.run.Info
	result, err := h.callTool(tool.NewContext(callCtx, tool.Call{
		Session: info.Session, RunID: info.RunID, Step: h.step.number,
		ID: h.call.id, Name: h.call.name, EffectID: h.call.effectID,
	}, h), t, json.RawMessage(h.call.args))
	finish(result, err)
}

var errTimeout = errors.New("agent: the tool took too long")

func (h *host) callTool(ctx tool.Context, t tool.Tool, input json.RawMessage) (result json.RawMessage, err error) {
	defer func() {
		if v := recover(); v != nil {
			h.step.panicked("a tool panicked", v, "tool", h.call.name)
			result, err = nil, errors.New("the tool panicked")
		}
	}()
	result, err = t.Call(ctx, input)
	if err == nil && len(result) > 0 && !jsonenc.Valid(result) {
		err = errors.New("the tool's result is not valid JSON, or nested too deep")
	}
	return result, err
}

// finish writes the outcome, once. What a cancelled call says of its
// cancellation is no outcome: settling the run gives it one.
func (h *host) finish(ctx context.Context, result json.RawMessage, err error) (done bool, ends error) {
	// The state's lock comes first, as in Update.
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return false, nil
	}
	h.over = true
	if err != nil && cancelled(ctx) {
		return true, context.Cause(ctx)
	}
	// The outcome of work that was done is written even if the run is being
	// stopped.
	ctx = context.WithoutCancel(ctx)
	failed := err
	if err == nil {
		err = h.step.append(ctx, append(h.call.over(h.step, result, ""),
			&chunk.ToolEnd{ToolCallID: h.call.id, ToolName: h.call.name, Result: result, Success: true})...)
		if !errors.Is(err, chunk.ErrTooLarge) && !errors.Is(err, chunk.ErrInvalidChunk) {
			return true, err
		}
		failed = fmt.Errorf("the tool's result cannot be kept: %w", err)
	}
	if err := h.takeBackLocked(ctx); err != nil {
		return true, err
	}
	fatal := tool.IsFatal(failed)
	text := shown(failed.Error())
	err = h.step.append(ctx, append(h.call.over(h.step, nil, text),
		&chunk.ToolEnd{ToolCallID: h.call.id, ToolName: h.call.name, Error: text, Fatal: fatal})...)
	if err == nil && fatal {
		err = ErrToolFatal.With(h.step.run.Info.Session, foreign(failed))
	}
	return true, err
}

// cancelled reports whether the calls of a step are no longer wanted. When one of them
// ends the run by a fatal error, the others still get their outcomes.
func cancelled(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, ErrToolFatal)
}

func (h *host) takeBack(ctx context.Context) error {
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	return h.takeBackLocked(ctx)
}

// takeBackLocked undoes what the failed call did to the state, by a patch that
// everyone sees. The patch belongs to the same call, so that settling the run
// drops both or none.
func (h *host) takeBackLocked(ctx context.Context) error {
	s := h.state
	n := len(s.staged)
	s.staged = slices.DeleteFunc(s.staged, func(st staged) bool { return st.callID == h.call.id })
	if len(s.staged) == n {
		return nil
	}
	without := s.base
	for _, st := range s.staged {
		without = chunk.ReplayState(without, st.ops)
	}
	if without == nil {
		without = json.RawMessage("{}")
	}
	ops, err := tool.Diff(s.current, without)
	if err != nil || len(ops) == 0 {
		return err
	}
	s.current = without
	return h.step.append(ctx, &chunk.StatePatch{Patches: ops, ToolCallID: h.call.id})
}

// Emit implements [tool.Host].
func (h *host) Emit(ctx context.Context, c chunk.Chunk) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.left {
		return tool.ErrCallOver
	}
	if e, ok := c.(*chunk.Custom); ok && len(h.said) > 0 {
		i := slices.IndexFunc(h.said, func(s *chunk.Custom) bool {
			if s.EventName != e.EventName || e.ID != "" || e.Transient {
				return false
			}
			data, err := h.step.run.Log.Blob(ctx, s.Data) // it may be stored as something else
			return err == nil && bytes.Equal(data, e.Data)
		})
		if i >= 0 {
			h.said = slices.Delete(h.said, i, i+1)
			return nil
		}
	}
	return h.step.append(ctx, c)
}

// State implements [tool.Host].
func (h *host) State() json.RawMessage {
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	return h.state.current
}

// Update implements [tool.Host].
func (h *host) Update(ctx context.Context, change func(json.RawMessage) (json.RawMessage, error)) error {
	h.state.mu.Lock()
	defer h.state.mu.Unlock()
	next, err := change(h.state.current)
	if err != nil {
		return err
	}
	ops, err := tool.Diff(h.state.current, next)
	if err != nil || len(ops) == 0 {
		return err
	}
	// Under the state's lock, so that patches are recorded in the order in which
	// they were made.
	if err := h.Emit(ctx, &chunk.StatePatch{Patches: ops, ToolCallID: h.call.id}); err != nil {
		return err
	}
	h.state.current = next
	h.state.staged = append(h.state.staged, staged{h.call.id, ops})
	return nil
}

// stepState is the session's state as the step's calls see it: what is
// committed, and on top what they have staged.
type stepState struct {
	mu      sync.Mutex
	base    json.RawMessage
	current json.RawMessage
	staged  []staged
	emitted map[string][]*chunk.Custom // by call: what it has said before
}

type staged struct {
	callID string
	ops    []chunk.PatchOperation
}
