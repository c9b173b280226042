package fold

import (
	"slices"
	"time"

	"github.com/spool-run/spool/chunk"
)

// This file has what is to be read of the open run and its step.

// OpenRun returns the run that is open, or nil.
func (f *Fold) OpenRun() *Run { return f.open.run }

// Spent returns how long the open run has taken by now, with the runs that it took
// up. Pauses do not count. It returns 0 if no run is open.
func (f *Fold) Spent(now time.Time) time.Duration {
	if f.open.run == nil {
		return 0
	}
	spent := now.Sub(time.UnixMilli(f.open.run.StartTime))
	for _, run := range f.LastTurn().before(f.open.run.ID) {
		spent += time.Duration(run.EndTime-run.StartTime) * time.Millisecond
	}
	return max(spent, 0)
}

// Used returns what the open run has used by now, with the runs that it took up
// and the children that worked for them.
func (f *Fold) Used() chunk.Usage {
	var used chunk.Usage
	if f.open.run == nil {
		return used
	}
	for _, run := range slices.Concat(f.LastTurn().before(f.open.run.ID), []*Run{f.open.run}) {
		used = used.Add(run.Usage).Add(f.usedBelow(run.ID))
	}
	return used
}

// Phase returns where the open run stands.
func (f *Fold) Phase() Phase { return f.open.phase }

// Shown reports whether the open model phase has shown anything, or changed the state.
// A phase that has must be discarded before it is done again.
func (f *Fold) Shown() bool {
	m := f.current
	return f.open.phase == PhaseModel && (len(m.message.Parts) > m.stepAt+1 || len(m.undo) > 0 || len(f.staging.patches) > 0)
}

// Answer returns the model's cursor of the open phase's answer, or "" if it has none.
// With the cursor the answer can be heard again: see [chunk.AnswerStarted].
func (f *Fold) Answer() string { return f.open.cursor }

// Said returns what the open step holds so far, in order.
func (f *Fold) Said() []chunk.Part {
	if m := f.current; f.open.stepID != "" && m != nil && m.stepAt >= 0 {
		return slices.Clone(m.message.Parts[m.stepAt+1:])
	}
	return nil
}

// Streamed reports whether the open run has streamed something that no
// assistant_message holds.
func (f *Fold) Streamed() bool {
	return slices.Contains(f.current.streamed, true)
}

// StepInfo is the open run's current step, or the last one that it committed.
type StepInfo struct {
	Number int
	ID     string // "" once it is committed
	Finish string // why the model stopped
	More   bool   // the provider has more to say
	Fatal  string // the error of a call that ends the run, if one does
}

// Step returns the current step of the open run, or the last one.
func (f *Fold) Step() StepInfo {
	return StepInfo{Number: f.open.step, ID: f.open.stepID, Finish: f.open.finish, More: f.open.more, Fatal: f.open.fatal}
}

// Failure returns the error with which the open run is about to fail, or nil. Only its
// run_finished is missing then.
func (f *Fold) Failure() *chunk.ErrorChunk { return f.open.failure }

// HandedOver reports whether the open run was handed over to the owner with this epoch.
// An owner that comes later cannot know what the one before it has done, and so takes the
// run over like any other.
func (f *Fold) HandedOver(epoch uint64) bool {
	return f.open.run != nil && f.open.handed > 0 && f.open.handed+1 == epoch
}

// Emitted returns the events without an id that a call of the open step has
// emitted.
func (f *Fold) Emitted(callID string) []*chunk.Custom { return f.open.emitted[callID] }

// Call returns a call of the last turn, or nil. It belongs to the fold.
func (f *Fold) Call(id string) *chunk.ToolPart {
	if f.current != nil {
		if i := f.current.findTool(id); i >= 0 {
			return f.current.message.Parts[i].Tool
		}
	}
	return nil
}

// Boundary says what the open run must do at a step boundary: end, because another
// message steers it ([chunk.OutcomeSteered]), or pause, because it was interrupted. If
// both are true, the message wins.
func (f *Fold) Boundary() (steered, interrupted bool) {
	return f.open.run != nil && f.takesPlace(f.open.run, chunk.BusySteer), f.open.run != nil && f.Interrupt != nil
}

// takesPlace reports whether a message that came while the run was open asks for its
// place, in one of these ways.
func (f *Fold) takesPlace(run *Run, how ...chunk.WhenBusy) bool {
	return slices.ContainsFunc(f.Waiting, func(w *Command) bool {
		return w.Seq > run.Start && slices.Contains(how, w.WhenBusy)
	})
}
