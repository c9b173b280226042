package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/tool"
)

// What a hook does in a tool phase is tagged with an owner, as what a call does
// is with the call: when the hook is called again after a crash, what it did the
// last time is taken back first. What is called before the model needs no owner:
// its phase is discarded as a whole.
const (
	ownerPhase = ""
	ownerRun   = "hook-run"
	ownerModel = "hook-model"
	ownerStep  = "hook-step"
)

func ownerBefore(callID string) string { return "hook-before:" + callID }
func ownerAfter(callID string) string  { return "hook-after:" + callID }

// hooks returns all that apply, in their order.
func (s *step) hooks() []*Hooks {
	all := slices.Clone(s.run.Inherited)
	for _, h := range []*Hooks{s.agent.Hooks, s.run.Hooks} {
		if h != nil {
			all = append(all, h)
		}
	}
	return all
}

// inherit returns the hooks of an agent's children: what it has inherited, and its
// own.
func (a *Agent) inherit(r *Run) []*Hooks {
	inherited := slices.Clone(r.Inherited)
	if a.Hooks != nil {
		inherited = append(inherited, a.Hooks)
	}
	return inherited
}

// hookHost is a hook's side of the log.
type hookHost struct{ *host }

// Emit implements [tool.Host].
func (h hookHost) Emit(ctx context.Context, c chunk.Chunk) error {
	switch c := c.(type) {
	case *chunk.Custom:
		if c.ToolCallID != "" {
			c.ToolCallID = h.call.id
		}
	case *chunk.ToolEnd:
		return spool.ErrUnsupported.Because("a hook cannot set a preliminary result")
	}
	return h.host.Emit(ctx, c)
}

// hookOwner returns the host for the hooks of an owner. What they did before a crash is
// taken back, and what they emitted is not emitted again.
func (s *step) hookOwner(ctx context.Context, owner string) (*host, error) {
	if s.state == nil {
		if err := s.run.Log.Flush(ctx); err != nil {
			return nil, err
		}
	}
	state, err := s.openState(ctx)
	if err != nil {
		return nil, err
	}
	h := &host{step: s, call: &call{id: owner}, state: state}
	if owner == ownerPhase {
		return h, nil
	}
	err = s.run.Log.View(ctx, func(f *fold.Fold) error {
		h.said = slices.Clone(f.Emitted(owner))
		return nil
	})
	if err == nil {
		err = h.takeBack(ctx)
	}
	return h, err
}

// callHooks calls what pick finds in each set of hooks. With a nil host, what they
// do belongs to owner.
func (s *step) callHooks(ctx context.Context, h *host, owner, name string, pick func(*Hooks) func(HookContext) error) error {
	var calls []func(HookContext) error
	for _, hooks := range s.hooks() {
		if fn := pick(hooks); fn != nil {
			calls = append(calls, fn)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	if h == nil {
		var err error
		if h, err = s.hookOwner(ctx, owner); err != nil {
			return err
		}
		defer h.shut()
	}
	id := h.call.id
	if id == ownerPhase {
		id = "hook"
	}
	info := s.run.Info
	c := HookContext{Agent: s.agent.Name, Run: info, Step: s.number,
		Context: tool.NewContext(ctx, tool.Call{Session: info.Session, RunID: info.RunID, Step: s.number, ID: id, Name: h.call.name, EffectID: h.call.effectID}, hookHost{h})}
	for _, fn := range calls {
		if err := s.callHook(c, name, fn); err != nil {
			return err
		}
	}
	return nil
}

// shut ends what the host may be used for.
func (h *host) shut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}

func (s *step) callHook(c HookContext, name string, fn func(HookContext) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked("a hook panicked", v, "hook", name)
			err = errors.New("a hook panicked")
		}
	}()
	return fn(c)
}

// panicked tells the logger of a panic, of which the session's log must not say more
// than that there was one.
func (s *step) panicked(msg string, v any, args ...any) { s.run.panicked(msg, v, args...) }

func (r *Run) panicked(msg string, v any, args ...any) {
	if log := r.Seams.Logger; log != nil {
		args = append(args, "session", r.Info.Session, "run", r.Info.RunID, "panic", redact.Text(fmt.Sprint(v)), "stack", string(debug.Stack()))
		log.Error(msg, args...)
	}
}

// crashed logs that the run's model or its agent's own code panicked, and returns
// the run's error.
func (r *Run) crashed(v any) error {
	r.panicked("the agent panicked", v)
	return errPanicked
}

// failed tells the logger the cause of a failure, which the session's log must not
// hold.
func (r *Run) failed(msg string, info RunInfo, err error) {
	if log := r.Seams.Logger; log != nil {
		log.Warn(msg, "session", info.Session, "run", info.RunID, "code", info.Code, "error", redact.Text(err.Error()))
	}
}

// hookFailed returns the error with which a hook's error ends the run.
func (s *step) hookFailed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	err = foreign(err)
	_, limit := errors.AsType[*Limit](err)
	_, known := errors.AsType[*chunk.Error](err)
	_, provider := errors.AsType[*model.Error](err)
	if limit || known || provider {
		return err
	}
	return ErrHookFailed.With(s.run.Info.Session, err)
}

// beforeModel calls what comes before a model call, and returns the request as the
// hooks want it.
func (s *step) beforeModel(ctx context.Context, req *model.Request) (*model.Request, error) {
	if err := s.beforeRun(ctx, ownerPhase); err != nil {
		return nil, err
	}
	err := s.callHooks(ctx, nil, ownerPhase, "BeforeStep", func(k *Hooks) func(HookContext) error { return k.BeforeStep })
	if err != nil {
		return nil, s.hookFailed(ctx, err)
	}
	cloned := false
	err = s.callHooks(ctx, nil, ownerPhase, "BeforeModel", func(k *Hooks) func(HookContext) error {
		if k.BeforeModel == nil {
			return nil
		}
		if !cloned {
			req, cloned = cloneRequest(req), true
		}
		return func(h HookContext) error { return k.BeforeModel(h, req) }
	})
	return req, s.hookFailed(ctx, err)
}

// beforeRun calls BeforeRun once a run; again if it was called in a phase that is
// being discarded.
func (s *step) beforeRun(ctx context.Context, owner string) error {
	if s.run.begun != "" && s.run.begun != s.id {
		return nil
	}
	s.run.begun = s.id
	err := s.callHooks(ctx, nil, owner, "BeforeRun", func(k *Hooks) func(HookContext) error { return k.BeforeRun })
	return s.hookFailed(ctx, err)
}

// cloneRequest returns a copy that a hook can change at will.
func cloneRequest(r *model.Request) *model.Request {
	c := *r
	c.Messages = make([]chunk.Message, len(r.Messages))
	for i := range r.Messages {
		c.Messages[i] = r.Messages[i].Clone()
	}
	c.Tools = slices.Clone(r.Tools)
	if r.Temperature != nil {
		t := *r.Temperature
		c.Temperature = &t
	}
	return &c
}

func (s *step) afterModel(ctx context.Context, m ModelCall) error {
	a := Answer{Text: s.text.String(), FinishReason: s.finish, Usage: s.usage, Duration: m.Duration}
	for _, c := range s.calls {
		a.Calls = append(a.Calls, AnswerCall{c.id, c.name, c.args})
	}
	err := s.callHooks(ctx, nil, ownerModel, "AfterModel", func(k *Hooks) func(HookContext) error {
		if k.AfterModel == nil {
			return nil
		}
		return func(h HookContext) error { return k.AfterModel(h, a) }
	})
	return s.hookFailed(ctx, err)
}

func (s *step) afterStep(ctx context.Context, r Result) error {
	err := s.callHooks(ctx, nil, ownerStep, "AfterStep", func(k *Hooks) func(HookContext) error {
		if k.AfterStep == nil {
			return nil
		}
		return func(h HookContext) error { return k.AfterStep(h, r) }
	})
	return s.hookFailed(ctx, err)
}

// beforeTool calls the hooks before a call, once: afterwards its dispatch or its
// approval request is in the log. It returns the input as the hooks want it, or over
// if they gave the call its outcome.
func (s *step) beforeTool(ctx context.Context, c *call, input json.RawMessage) (changed json.RawMessage, over bool, err error) {
	t := &ToolCall{ID: c.id, Name: c.name, EffectID: c.effectID, Input: input}
	err = s.callHooks(ctx, nil, ownerBefore(c.id), "BeforeTool", func(k *Hooks) func(HookContext) error {
		if k.BeforeTool == nil {
			return nil
		}
		return func(h HookContext) error { return k.BeforeTool(h, t) }
	})
	return s.considered(ctx, c, t, input, err)
}

// beforeSubAgent is beforeTool for a call that starts another agent.
func (s *step) beforeSubAgent(ctx context.Context, c *call, t *SubAgentCall) (changed json.RawMessage, over bool, err error) {
	input := t.Input
	err = s.callHooks(ctx, nil, ownerBefore(c.id), "BeforeSubAgent", func(k *Hooks) func(HookContext) error {
		if k.BeforeSubAgent == nil {
			return nil
		}
		return func(h HookContext) error { return k.BeforeSubAgent(h, t) }
	})
	return s.considered(ctx, c, &t.ToolCall, input, err)
}

// considered takes what hooks have made of a call: another input, or its outcome.
func (s *step) considered(ctx context.Context, c *call, t *ToolCall, input json.RawMessage, err error) (json.RawMessage, bool, error) {
	if err == nil && t.Result != nil && !jsonenc.Valid(t.Result) {
		err = errHookResult
	}
	if err == nil && t.Result == nil && string(t.Input) != string(input) {
		c.args = string(t.Input)
		var refusal string
		if t.Input, refusal = s.checkCall(c); refusal != "" {
			err = errors.New("the input that a hook gave is not valid: " + refusal)
		}
	}
	if err == nil && t.Result == nil {
		return t.Input, false, nil
	}
	h := &host{step: s, call: c, state: s.state}
	_, err = h.finish(ctx, t.Result, err)
	return input, true, err
}

var errHookResult = errors.New("the result that a hook gave is not valid JSON")

// afterTool lets hooks replace a call's outcome.
func (h *host) afterTool(ctx context.Context, t *ToolCall) {
	t.ID, t.Name, t.EffectID, t.Input = h.call.id, h.call.name, h.call.effectID, json.RawMessage(h.call.args)
	h.after(ctx, "AfterTool", t, func(k *Hooks) func(HookContext) error {
		if k.AfterTool == nil {
			return nil
		}
		return func(c HookContext) error { return k.AfterTool(c, t) }
	})
}

// afterSubAgent is afterTool for a call that started another agent.
func (h *host) afterSubAgent(ctx context.Context, t *SubAgentCall) {
	h.after(ctx, "AfterSubAgent", &t.ToolCall, func(k *Hooks) func(HookContext) error {
		if k.AfterSubAgent == nil {
			return nil
		}
		return func(c HookContext) error { return k.AfterSubAgent(c, t) }
	})
}

func (h *host) after(ctx context.Context, name string, t *ToolCall, pick func(*Hooks) func(HookContext) error) {
	mine, owner := h, ""
	if t.Err != nil {
		// What the call did is taken back; what its hook does is not part of it.
		mine, owner = nil, ownerAfter(h.call.id)
	}
	if err := h.step.callHooks(ctx, mine, owner, name, pick); err != nil {
		t.Err = err
	}
	if t.Err == nil && len(t.Result) > 0 && !jsonenc.Valid(t.Result) {
		t.Err = errHookResult
	}
}
