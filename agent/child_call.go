package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/tool"
)

// runChild makes a call that starts a child agent or is about one. It reports once,
// as run does.
func (h *host) runChild(alive context.Context, outcomes chan<- error) {
	c := h.call
	t := h.step.tool(c.name)
	sub := subAgentOf(t)
	late, cancel := alive, context.CancelFunc(func() {})
	limit := t.Spec().Timeout
	if limit > 0 {
		late, cancel = h.step.run.Seams.within(alive, limit, errTimeout)
	}
	defer cancel()
	begun, ended := h.step.run.Seams.Now(), h.step.toolCalled(c)
	var (
		out outcome
		err error
	)
	if sub != nil {
		out, err = h.step.delegate(alive, late, sub, c)
	} else {
		out, err = h.step.accompany(alive, t.(*companionTool).op, c)
	}
	switch {
	case errors.Is(err, errChildWaits):
		if c.waitsFor = c.child; c.child == "" {
			c.waitsFor = inputOf(c).ChildID
		}
		outcomes <- nil
		return
	case err != nil:
		outcomes <- err
		return
	case out.failed != nil && late.Err() != nil && alive.Err() == nil:
		out.failed = fmt.Errorf("timed out after %v", limit.Round(time.Millisecond))
	}
	if out.failed != nil && sub != nil && sub.o.Fatal {
		out.failed = tool.Fatal(out.failed)
	}
	made := &ToolCall{ID: c.id, Name: c.name, EffectID: c.effectID,
		Input: json.RawMessage(c.args), Result: out.result, Err: out.failed, Duration: h.step.run.Seams.Now().Sub(begun)}
	h.afterChild(alive, made)
	_, err = h.finish(alive, made.Result, made.Err)
	ended(made.Err)
	outcomes <- err
}

// afterChild lets hooks replace the outcome of a child's call, unless nobody wants
// it any more.
func (h *host) afterChild(ctx context.Context, made *ToolCall) {
	if made.Err != nil && cancelled(ctx) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	of, _ := h.step.begets(h.call)
	if of == nil {
		h.afterTool(ctx, made)
		return
	}
	started := &SubAgentCall{SubAgent: of.Name, Session: h.call.child, ToolCall: *made}
	h.afterSubAgent(ctx, started)
	*made = started.ToolCall
}

// delegate has a child do what a call asks, or go on with it. It returns the
// call's outcome, or as an error what keeps it from having one.
func (s *step) delegate(alive, late context.Context, sub *subAgent, c *call) (outcome, error) {
	if depth(c.child) > s.run.maxDepth {
		return outcome{failed: tooDeep(s.run.maxDepth)}, nil
	}
	text, err := s.promptOf(sub, json.RawMessage(c.args))
	if err != nil {
		return outcome{failed: err}, nil
	}
	kid, command := s.child(sub.child, c.child), commandOf(c.effectID)
	if err := kid.tell(alive, command, text); err != nil {
		return outcome{}, err
	}
	if err := kid.shift(alive, late); err != nil {
		return outcome{}, err
	}
	result, err := kid.result(alive, command)
	return outcome{result, err}, nil
}

func tooDeep(levels int) error { return fmt.Errorf("agents may be nested %d deep, not deeper", levels) }

func (s *step) promptOf(sub *subAgent, input json.RawMessage) (text string, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked("the prompt of a sub-agent panicked", v, "agent", sub.child.Name)
			err = fmt.Errorf("the prompt of %s panicked", sub.child.Name)
		}
	}()
	return sub.prompt(input), nil
}

// beforeCall is beforeTool, or beforeSubAgent for a call that starts an agent.
func (s *step) beforeCall(ctx context.Context, c *call, input json.RawMessage) (json.RawMessage, bool, error) {
	of, _ := s.begets(c)
	if of == nil {
		return s.beforeTool(ctx, c, input)
	}
	return s.beforeSubAgent(ctx, c, &SubAgentCall{SubAgent: of.Name, Session: s.childSession(),
		ToolCall: ToolCall{ID: c.id, Name: c.name, EffectID: c.effectID, Input: input}})
}

// childSession returns the session of the step's next child.
func (s *step) childSession() string { return fmt.Sprintf("%s.%d", s.run.Info.Session, s.nextChild) }

// children looks up which of the step's calls have a child.
func (s *step) children(ctx context.Context) error {
	return s.run.Log.View(ctx, func(f *fold.Fold) error {
		s.nextChild = len(f.Children) + 1
		for _, c := range s.calls {
			if kid := f.ChildOf(c.id); kid != nil {
				c.child, c.childMode = kid.Session, kid.Mode
			}
		}
		return nil
	})
}

// beget begins the child of a call that starts an agent, unless it has begun. It is
// called for one call after the other, so that the children are numbered in the
// order of the calls.
func (s *step) beget(ctx context.Context, c *call) error {
	of, mode := s.begets(c)
	if of == nil || c.child != "" {
		return nil
	}
	c.child, c.childMode = s.childSession(), mode
	s.nextChild++
	return s.append(ctx, &chunk.SubAgentStart{SubAgentType: of.Name, SubSessionID: c.child, CallID: c.id, Mode: mode})
}

// involves reports whether calls of a tool start an agent or are about one.
func involves(t tool.Tool) bool {
	_, companion := t.(*companionTool)
	return companion || subAgentOf(t) != nil
}

// over returns the record that ends a call's child with the call. A companion goes
// on after its call.
func (c *call) over(s *step, result json.RawMessage, failed string) []chunk.Chunk {
	if c.child == "" || c.childMode != "" {
		return nil
	}
	end := &chunk.SubAgentEnd{SubSessionID: c.child, CallID: c.id, Result: result, Error: failed}
	if of, _ := s.begets(c); of != nil {
		end.SubAgentType = of.Name
	}
	return []chunk.Chunk{end}
}
