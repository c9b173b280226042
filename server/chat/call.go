package chat

import (
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// locate finds the call that an answer is for, among the calls of the fold's agent and
// of all agents below it. It returns the fold of the call's agent, and the answer with
// that agent and the call's own id. The fold's own agent names its calls by their ids;
// the calls of agents below it have the ids of [chunk.ChildCallID]. Approvals have ids
// of their own.
func locate(f *fold.Fold, a wire.Answer) (owner *fold.Fold, t *chunk.ToolPart, found wire.Answer) {
	if a.ApprovalID != "" {
		a.Agent, t = f.FindCall(func(t *chunk.ToolPart) bool { return t.Approval != nil && t.Approval.ID == a.ApprovalID })
		return f.Child(a.Agent), t, a
	}
	if a.Agent == "" {
		a.Agent, a.CallID = chunk.SplitCallID(f.Session, a.CallID)
	}
	owner = f.Child(a.Agent)
	if owner == nil {
		return nil, nil, a
	}
	for _, m := range slices.Backward(owner.Messages) {
		for i := range m.Parts {
			if t := m.Parts[i].Tool; t != nil && t.CallID == a.CallID {
				return owner, t, a
			}
		}
	}
	return owner, nil, a
}

// asks reports whether a call waits for this kind of answer now: its agent's run is
// paused, or has asked for the answer and still executes other calls. An output is no
// substitute for a decision.
func asks(owner *fold.Fold, t *chunk.ToolPart, a wire.Answer) bool {
	open := owner.OpenRun() != nil
	return (open || owner.Status == chunk.StatusPaused) && t.Takes(a.ApprovalID != "", open)
}

// waitsFor is asks for a call that may not exist, or may wait for a child instead.
func waitsFor(owner *fold.Fold, t *chunk.ToolPart, a wire.Answer) bool {
	return owner != nil && t != nil && asks(owner, t, a) &&
		(a.ApprovalID != "" || owner.OpenRun() != nil || owner.Reason != chunk.SuspendedChildren ||
			slices.ContainsFunc(owner.PendingCalls(), func(c fold.PendingCall) bool { return c.Agent == owner.Session && c.CallID == t.CallID }))
}

// fits checks a client's result against the schema of the call's tool, if the agent is
// known here.
func (d *Deps) fits(owner *fold.Fold, t *chunk.ToolPart, a wire.Answer) error {
	if a.ApprovalID != "" || a.Error != "" {
		return nil
	}
	name := owner.AgentType
	if turn := owner.LastTurn(); name == "" && turn != nil {
		name = turn.LastRun().AgentType
	}
	for _, known := range d.Agents {
		if of := known.Find(name); of != nil {
			if err := of.CheckResult(t.Name, a.Output); err != nil {
				return ErrResultInvalid.Because("the result of "+t.Name+" does not match the tool's schema: "+err.Error()).With(owner.Session, nil)
			}
			return nil
		}
	}
	return nil
}
