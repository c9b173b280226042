package fold

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// Phase is where an open run stands.
type Phase string

const (
	PhaseNone  Phase = ""      // between steps
	PhaseModel Phase = "model" // the model answers
	PhaseTools Phase = "tools" // the model has answered; what it asked for is being done
)

// Phase returns where the open run stands.
func (f *Fold) Phase() Phase { return f.phase }

// Shown reports whether the open model phase has shown anything, or changed the
// state. What has not can simply be done again; anything else must be discarded
// first.
func (f *Fold) Shown() bool {
	m := f.current
	return f.phase == PhaseModel && (len(m.message.Parts) > m.stepAt+1 || len(m.undo) > 0 || len(f.staged) > 0)
}

// Answer returns the cursor with which the open model phase's answer can be taken
// up again where it is made, "" if there is none: see [chunk.AnswerStarted].
func (f *Fold) Answer() string { return f.cursor }

// Said returns what the open step holds so far, in order.
func (f *Fold) Said() []chunk.Part {
	if m := f.current; f.stepID != "" && m != nil && m.stepAt >= 0 {
		return slices.Clone(m.message.Parts[m.stepAt+1:])
	}
	return nil
}

// Discard returns the chunks that drop the open model phase, and tell readers so.
func (f *Fold) Discard(reason string) []chunk.Chunk {
	resync := &chunk.StreamResync{Base: f.base(), StepCount: max(f.step-1, 0), MessageCount: len(f.Messages),
		FromSequence: f.stepAt - 1, Reason: reason}
	resync.CheckpointID = f.CheckpointID
	return []chunk.Chunk{&chunk.StepDiscarded{Base: f.base(), StepID: f.stepID, Reason: reason}, resync}
}

// StepInfo is the open run's current step, or the last one that it committed.
type StepInfo struct {
	Number int
	ID     string // "" when it is committed
	Finish string // why the model stopped
	More   bool   // the provider has more to say
	Fatal  string // the error of a call that ends the run, if one does
}

// Step returns the current step of the open run, or the last one.
func (f *Fold) Step() StepInfo {
	return StepInfo{Number: f.step, ID: f.stepID, Finish: f.finish, More: f.more, Fatal: f.fatal}
}

// Emitted returns the events without an id that a call of the open step has
// emitted.
func (f *Fold) Emitted(callID string) []*chunk.Custom { return f.emitted[callID] }

// Staged returns the state as the last step left it, and the patches that the
// open step has made to it.
func (f *Fold) Staged() (committed json.RawMessage, patches []chunk.StatePatch) {
	return f.committed, slices.Clone(f.staged)
}

// enter notes what a record of the open run says of its phase.
func (f *Fold) enter(r chunk.Record, c chunk.Chunk) {
	switch c := c.(type) {
	case *chunk.StepStarted:
		f.owed = ""
		f.step, f.stepID, f.stepAt = c.Step, c.StepID, r.Seq
		f.phase, f.finish, f.fatal, f.cursor, f.emitted = PhaseModel, "", "", "", nil
	case *chunk.AnswerStarted:
		if f.phase == PhaseModel && c.StepID == f.stepID {
			f.cursor = c.Cursor
		}
	case *chunk.AssistantMessage:
		if !c.More && f.phase == PhaseModel {
			f.phase, f.finish, f.more, f.cursor = PhaseTools, c.FinishReason, c.Unfinished, ""
		}
	case *chunk.StepDiscarded:
		f.step, f.stepID, f.phase, f.cursor = max(f.step-1, 0), "", PhaseNone, ""
	case *chunk.ToolEnd:
		if c.Fatal {
			f.fatal = c.Error
		}
	case *chunk.Custom:
		if c.ToolCallID != "" && c.ID == "" && !c.Transient {
			if f.emitted == nil {
				f.emitted = map[string][]*chunk.Custom{}
			}
			f.emitted[c.ToolCallID] = append(f.emitted[c.ToolCallID], c)
		}
	case *chunk.ExecutorSuperseded:
		if f.run != nil {
			f.run.Recoveries++
		}
		f.supersede(r, c)
	}
}

// supersede tells the message and the folds of all children that their owner is
// another: what of a series the old one has written counts for nothing.
func (f *Fold) supersede(r chunk.Record, c *chunk.ExecutorSuperseded) {
	if f.current != nil {
		f.current.Apply(r, c)
	}
	for _, child := range f.Children {
		child.supersede(r, c)
	}
}

// goOn makes a new run take up the step in which the turn's last run paused.
func (f *Fold) goOn(last *Run) {
	f.step, f.more, f.finish = last.Step, last.More, last.Finish
	if last.awaits() && last.StepID != "" { // else it waited, done itself, for a child
		f.stepID, f.phase = last.StepID, PhaseTools
	}
}

// awaits reports whether a run is suspended until somebody answers.
func (r *Run) awaits() bool { return strings.HasPrefix(r.Suspended, "awaiting_") }

// awaiting returns the run that waits for answers, or nil.
func (f *Fold) awaiting() *Run {
	if t := f.LastTurn(); f.Status == chunk.StatusPaused && t != nil && t.LastRun().awaits() {
		return t.LastRun()
	}
	return nil
}

// Pending returns the calls that the paused turn waits for, as they stand, and
// those of children: see [Fold.PendingCalls].
func (f *Fold) Pending() []*chunk.ToolPart {
	var calls []*chunk.ToolPart
	for _, c := range f.PendingCalls() {
		calls = append(calls, c.ToolPart)
	}
	return calls
}

// Call returns a call of the last turn, or nil. It belongs to the fold.
func (f *Fold) Call(id string) *chunk.ToolPart {
	if f.current != nil {
		if i := f.current.findTool(id); i >= 0 {
			return f.current.message.Parts[i].Tool
		}
	}
	return nil
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

// answered notes an accepted answer. The last one that was missing lets the turn
// go on.
func (f *Fold) answered(r chunk.Record, id string) {
	f.Answers = append(f.Answers, id)
	f.last = &Command{ID: id, Type: r.Type, Seq: r.Seq, Mode: modeOf(r.Type)}
	f.childrenAnswered()
	f.allAnswered()
}

// allAnswered lets the paused turn go on if none of its own calls waits.
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

// unheeded lets what asked a run to end, and found it pausing, end the pause.
func (f *Fold) unheeded(run *Run) {
	for _, id := range f.Answers { // they did not prevent the pause: it is as if they came while it lasts
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
	f.childrenAnswered() // before it paused
	f.allAnswered()
}
