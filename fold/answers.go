package fold

import (
	"slices"

	"github.com/spool-run/spool/chunk"
)

// toolApprovalResponse takes a decision on a call.
func (f *Fold) toolApprovalResponse(r chunk.Record, c *chunk.ToolApprovalResponse) {
	f.answer(r, c, func() { f.current.toolApprovalResponse(r.Seq, c) })
}

// toolResultSubmitted takes the outcome of a call that the client executes.
func (f *Fold) toolResultSubmitted(r chunk.Record, c *chunk.ToolResultSubmitted) {
	f.answer(r, c, func() { f.current.toolResultSubmitted(r.Seq, c) })
}

// answer gives an answer its verdict, and applies it to the message if a call waits
// for it. The run may still be open, because other calls of the step are not done.
// Then the answer is the open run's, unless the run has to pause for others.
func (f *Fold) answer(r chunk.Record, c chunk.Chunk, apply func()) {
	id := chunk.CommandID(c)
	if _, repeated := f.Verdicts[id]; repeated {
		return
	}
	if f.current == nil || f.Forgotten || f.open.run == nil && f.Status != chunk.StatusPaused || !f.takes(c) {
		f.judge(id, Verdict{State: VerdictRefused, Code: RefusedNotPending})
		return
	}
	if f.current.hears(c) {
		apply()
	}
	v := Verdict{State: VerdictAccepted}
	if f.open.run != nil {
		v.RunID, v.From = f.open.run.ID, r.Seq
	}
	f.judge(id, v)
	f.answered(r, id)
}

// takes reports whether a call waits for this answer. A call that waits for a child
// does not.
func (f *Fold) takes(c chunk.Chunk) bool {
	call := f.current.Answered(c, f.open.run != nil)
	if run := f.awaiting(); run != nil && run.Suspended == chunk.SuspendedChildren && c.ChunkType() == chunk.TypeToolResultSubmitted {
		return call != "" && slices.Contains(run.Pending, call)
	}
	return call != ""
}

// Answered returns the id of the call that an answer is for, or "" if no call waits
// for such an answer. open says whether the turn's run is open. The answer is not
// applied.
func (m *MessageFold) Answered(c chunk.Chunk, open bool) string {
	for _, p := range m.message.Parts {
		t := p.Tool
		if t == nil {
			continue
		}
		switch c := c.(type) {
		case *chunk.ToolApprovalResponse:
			if t.Approval != nil && t.Approval.ID == c.ApprovalID && t.Takes(true, open) {
				return t.CallID
			}
		case *chunk.ToolResultSubmitted:
			if t.CallID == c.ToolCallID && t.Takes(false, open) {
				return t.CallID
			}
		}
	}
	return ""
}

// awaiting returns the run that waits for answers, or nil.
func (f *Fold) awaiting() *Run {
	if t := f.LastTurn(); f.Status == chunk.StatusPaused && t != nil && t.LastRun().awaits() {
		return t.LastRun()
	}
	return nil
}

// PendingCall is a call that a paused turn waits for, and the agent that made it.
type PendingCall struct {
	Agent   string // session id: the root's or a child's
	Expires int64  // when it stops waiting, Unix milliseconds; 0: never
	*chunk.ToolPart
}

// PendingCalls returns the calls of the paused turn that still wait for answers, and
// those of paused children.
func (f *Fold) PendingCalls() []PendingCall { return f.pendingCalls(0) }

func (f *Fold) pendingCalls(expires int64) []PendingCall {
	if f.parent != nil && (f.Continue != nil || f.Forgotten) {
		return nil // the child has its answers, or will be stopped
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

// earlier returns the earlier of two times. 0 means never.
func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Pending returns the calls of [Fold.PendingCalls] alone.
func (f *Fold) Pending() []*chunk.ToolPart {
	var calls []*chunk.ToolPart
	for _, c := range f.PendingCalls() {
		calls = append(calls, c.ToolPart)
	}
	return calls
}

// Expires returns when the paused turn stops waiting, in Unix milliseconds; 0
// for never.
func (f *Fold) Expires() int64 {
	run := f.awaiting()
	switch {
	case run == nil || f.Continue != nil:
		return 0
	case run.Suspended != chunk.SuspendedChildren:
		return run.Expires
	}
	var expires int64
	for _, c := range f.PendingCalls() {
		expires = earlier(expires, c.Expires)
	}
	return expires
}

// answered notes an accepted answer. The turn goes on when no answer is missing any
// more.
func (f *Fold) answered(r chunk.Record, id string) {
	f.Answers = append(f.Answers, id)
	f.last = &Command{ID: id, Type: r.Type, Seq: r.Seq, Mode: modeOf(r.Type)}
	f.childrenAnswered()
	f.allAnswered()
}

// allAnswered lets the paused turn go on if none of its calls waits any more.
func (f *Fold) allAnswered() {
	run := f.awaiting()
	if run == nil || len(run.Pending) == 0 || f.last == nil || f.Continue != nil || len(f.Pending()) > 0 {
		return
	}
	mode := chunk.ModeApproval
	if run.Suspended == chunk.SuspendedClientTool {
		mode = chunk.ModeClientToolResult
	}
	f.Continue = &Command{ID: f.last.ID, Type: f.last.Type, Seq: f.last.Seq, Mode: mode}
}

// unheeded looks for commands that asked the run to end while it was about to pause:
// they end the pause instead. Answers that came before the pause count as answers to
// it.
func (f *Fold) unheeded(run *Run) {
	for _, id := range f.Answers { // the open run did not act on them
		if f.Verdicts[id].From != 0 {
			f.Verdicts[id] = Verdict{State: VerdictAccepted}
		}
	}
	if f.Stop != nil && (run.awaits() || run.Suspended == chunk.SuspendedInterrupted) {
		f.Continue = &Command{ID: f.Stop.ID, Type: f.Stop.Type, Seq: f.Stop.Seq, Mode: chunk.ModeStop}
		return
	}
	if !run.awaits() {
		return
	}
	for _, w := range f.Waiting {
		if (w.WhenBusy == chunk.BusyInterrupt || w.WhenBusy == chunk.BusySteer) && w.Seq > run.Start {
			f.Continue = &Command{ID: w.ID, Type: w.Type, Seq: w.Seq, Mode: chunk.ModeSuperseded}
			return
		}
	}
	f.childrenAnswered() // all answers may have come before the pause
	f.allAnswered()
}

// modeOf returns the mode of a run that goes on with an answer.
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
		if f.Continue == nil { // no child has asked anything
			f.Continue = &Command{ID: run.ID, Type: chunk.TypeRunSuspended, Seq: run.End, Mode: chunk.ModeApproval}
		}
	}
}
