package fold

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// Child returns the fold of a child agent, of whatever generation, by its
// session id; nil if there is none. With the fold's own id it is the fold.
//
// A child's Seq is that of its own last record; the position that belongs to it,
// and that its [Fold.Snapshot] names, is the root's.
func (f *Fold) Child(session string) *Fold {
	for f != nil && session != f.Session {
		f = f.toward(session)
	}
	return f
}

// toward returns the child that is an agent or one of its ancestors.
func (f *Fold) toward(session string) *Fold {
	rest, ok := strings.CutPrefix(session, f.Session)
	if !ok || rest == "" || rest[0] != '.' {
		return nil
	}
	number, _, _ := strings.Cut(rest[1:], ".")
	id := session[:len(f.Session)+1+len(number)]
	if n, err := strconv.Atoi(number); err == nil && n > 0 && n <= len(f.Children) && f.Children[n-1].Session == id {
		return f.Children[n-1]
	}
	if i := slices.IndexFunc(f.Children, func(c *Fold) bool { return c.Session == id }); i >= 0 {
		return f.Children[i]
	}
	return nil
}

// ChildOf returns the child that a call began, or nil.
func (f *Fold) ChildOf(callID string) *Fold {
	if i := slices.IndexFunc(f.Children, func(c *Fold) bool { return c.CallID == callID }); i >= 0 {
		return f.Children[i]
	}
	return nil
}

// NextChild returns the session id of the next child.
func (f *Fold) NextChild() string { return fmt.Sprintf("%s.%d", f.Session, len(f.Children)+1) }

// NextRun returns the id of a child's next run, which belongs to a run of its
// parent's.
func (f *Fold) NextRun(parentRun string) string { return f.runAfter(parentRun, 0) }

func (f *Fold) runAfter(parentRun string, n int) string {
	for _, t := range f.Turns {
		n += len(t.Runs)
	}
	return fmt.Sprintf("%s%s-r%d", parentRun, f.Session[strings.LastIndexByte(f.Session, '.'):], n+1)
}

// usedBelow returns what descendants have used in runs that belong to a run of the
// fold's agent or of one above it.
func (f *Fold) usedBelow(run string) chunk.Usage {
	var used chunk.Usage
	for _, c := range f.Children {
		for _, t := range c.Turns {
			for _, r := range t.Runs {
				if strings.HasPrefix(r.ID, run+".") { // see runAfter
					used = used.Add(r.Usage)
				}
			}
		}
		used = used.Add(c.usedBelow(run))
	}
	return used
}

// TotalUsage is Usage and that of all children.
func (f *Fold) TotalUsage() chunk.Usage {
	sum := f.Usage
	for _, c := range f.Children {
		sum = sum.Add(c.TotalUsage())
	}
	return sum
}

// descends reports whether an agent is a descendant of the fold's.
func (f *Fold) descends(agent string) bool {
	return len(agent) > len(f.Session) && agent[len(f.Session)] == '.' && strings.HasPrefix(agent, f.Session) &&
		chunk.RootID(agent) == chunk.RootID(f.Session)
}

// applyBelow folds a record of a descendant.
func (f *Fold) applyBelow(r chunk.Record, c chunk.Chunk, agent string) {
	child := f.Child(agent)
	if !chunk.IsCommand(r.Type) {
		if child != nil {
			child.ApplyChunk(r, c)
			if r.Type == chunk.TypeStepCommitted { // whoever takes over often gets on
				for up := child.parent; up != nil; up = up.parent {
					if up.run != nil {
						up.run.Recoveries = 0
					}
				}
			}
		}
		return
	}
	id := chunk.CommandID(c)
	if f.Verdict(id).State != VerdictUnknown {
		return
	}
	if child == nil {
		f.judge(id, Verdict{State: VerdictRefused, Code: RefusedUnknown})
		return
	}
	child.ApplyChunk(r, c)
	if t := r.Type; t != chunk.TypeToolApprovalResponse && t != chunk.TypeToolResultSubmitted && t != chunk.TypeStopRequested ||
		child.Verdict(id).State != VerdictAccepted {
		return
	}
	for up := child.parent; up != nil; up = up.parent {
		if r.Type != chunk.TypeStopRequested {
			up.Answers = append(up.Answers, id)
			if up.run != nil {
				up.Verdicts[id] = Verdict{State: VerdictAccepted, RunID: up.run.ID, From: r.Seq}
			}
		}
		up.last = &Command{ID: id, Type: r.Type, Seq: r.Seq, Mode: modeOf(r.Type)}
		up.childrenAnswered()
	}
}

func modeOf(answer chunk.Type) string {
	if answer == chunk.TypeToolResultSubmitted {
		return chunk.ModeClientToolResult
	}
	return chunk.ModeApproval
}

// childrenAnswered lets a turn that waits for children go on when nothing in the
// subtree waits for an answer any more.
func (f *Fold) childrenAnswered() {
	if run := f.awaiting(); run != nil && run.Suspended == chunk.SuspendedChildren && f.Continue == nil && len(f.Pending()) == 0 {
		f.Continue = f.last
		if f.Continue == nil { // nothing has been asked at all
			f.Continue = &Command{ID: run.ID, Type: chunk.TypeRunSuspended, Seq: run.End, Mode: chunk.ModeApproval}
		}
	}
}

// adopt notes a child that began.
func (f *Fold) adopt(c *chunk.SubAgentStart, seq uint64) {
	number, ok := strings.CutPrefix(c.SubSessionID, f.Session+".")
	if n, err := strconv.Atoi(number); !ok || err != nil || n <= 0 || f.Child(c.SubSessionID) != nil {
		return
	}
	child := New(c.SubSessionID)
	child.AgentType, child.CallID, child.Mode, child.Began, child.parent = c.SubAgentType, c.CallID, c.Mode, seq, f
	f.Children = append(f.Children, child)
}

// Position is the sequence up to which the log was folded, the root's and a
// child's alike.
func (f *Fold) Position() uint64 {
	for f.parent != nil {
		f = f.parent
	}
	return f.Seq
}

// PendingCall is a call that a paused turn waits for, and whose it is.
type PendingCall struct {
	Agent   string // session id: the root's or a child's
	Expires int64  // when it stops waiting, Unix milliseconds; 0: never
	*chunk.ToolPart
}

// PendingCalls returns the calls that wait for answers, of the paused turn and
// of those of children, as they stand.
func (f *Fold) PendingCalls() []PendingCall { return f.pendingCalls(0) }

func (f *Fold) pendingCalls(expires int64) []PendingCall {
	if f.parent != nil && (f.Continue != nil || f.Forgotten) {
		return nil // it has its answers, or is to stop
	}
	var calls []PendingCall
	if run := f.awaiting(); run != nil {
		expires = earlier(expires, run.Expires)
		for _, p := range f.current.message.Parts {
			if t := p.Tool; t != nil && slices.Contains(run.Pending, t.CallID) && t.Waits() {
				calls = append(calls, PendingCall{f.Session, expires, t})
			}
		}
	}
	for _, c := range f.Children {
		calls = append(calls, c.pendingCalls(expires)...)
	}
	return calls
}

// earlier returns the earlier of two times of which 0 is never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// FindCall returns the first call, of the session's own or of a descendant's,
// for which match holds, and whose it is.
func (f *Fold) FindCall(match func(t *chunk.ToolPart) bool) (agent string, t *chunk.ToolPart) {
	for _, m := range f.Messages {
		for i := range m.Parts {
			if t := m.Parts[i].Tool; t != nil && match(t) {
				return f.Session, t
			}
		}
	}
	for _, c := range f.Children {
		if agent, t := c.FindCall(match); t != nil {
			return agent, t
		}
	}
	return "", nil
}

// EndChild returns what ends a child of the open run's agent for good, whatever it
// does: nothing of an unknown one, or one that has ended. callID is the call that
// ends it.
func (f *Fold) EndChild(session, callID, why string) []chunk.Chunk {
	i := slices.IndexFunc(f.Children, func(c *Fold) bool { return c.Session == session })
	if i < 0 || f.run == nil || f.Children[i].Ended > 0 {
		return nil
	}
	c := f.Children[i]
	chunks := c.windUp(f, why)
	if c.Mode != "" {
		chunks = append(chunks, &chunk.SubAgentEnd{Base: f.base(), SubAgentType: c.AgentType, SubSessionID: session, CallID: callID, Error: why})
	}
	return chunks
}

// windUp returns what ends whatever a child still does, deepest first: its open
// run, or else its pause, then what it was told and has not begun. Parent is the
// parent with the run that ends them.
func (f *Fold) windUp(parent *Fold, why string) []chunk.Chunk {
	var chunks []chunk.Chunk
	runs := 0
	begin := func(turnID, messageID, mode string, commands []string) *Run {
		run := &Run{ID: f.runAfter(parent.run.ID, runs), TurnID: turnID, AgentType: f.AgentType, Mode: mode}
		runs++
		chunks = append(chunks, &chunk.RunStarted{Base: chunk.Base{AgentID: f.Session, AgentType: f.AgentType, RunID: run.ID},
			TurnID: turnID, MessageID: messageID, Mode: mode, Commands: commands})
		return run
	}
	end := func(run *Run) {
		chunks = append(chunks, &chunk.RunFinished{Base: chunk.Base{AgentID: f.Session, AgentType: f.AgentType, RunID: run.ID},
			Outcome: chunk.OutcomeStopped, FinishReason: "other"})
	}
	closing := *f // as it is once the run that ends the pause has begun
	waits := f.awaiting()
	if waits == nil {
		waits = f.Break()
	}
	if closing.run == nil && waits != nil {
		closing.run = begin(f.LastTurn().ID, f.LastTurn().MessageID, chunk.ModeStop, f.Answers)
		closing.step, closing.stepID = waits.Step, waits.StepID
	}
	if closing.run != nil {
		chunks = append(chunks, closing.Unsettled(why)...)
		end(closing.run)
	} else {
		closing.run = parent.run
		for _, c := range f.Children {
			chunks = append(chunks, c.windUp(&closing, why)...)
		}
	}
	for _, w := range f.Waiting {
		id := f.runAfter(parent.run.ID, runs)
		end(begin(w.ID, id+"-m", chunk.ModeStop, []string{w.ID}))
	}
	if f.Ended == 0 && f.Mode == "" {
		chunks = append(chunks, &chunk.SubAgentEnd{Base: parent.base(), SubAgentType: f.AgentType, SubSessionID: f.Session, CallID: f.CallID, Error: why})
	}
	return chunks
}
