package fold

import (
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

// openRun is the run that is open, and where it stands. What the last step said
// (finish, more, fatal) outlasts the run.
type openRun struct {
	run     *Run // nil if none is open
	step    int
	stepID  string // "" between steps
	began   uint64 // sequence of the step's step_started
	phase   Phase
	finish  string                     // finish reason of the step's model phase
	more    bool                       // the provider has more to say
	fatal   string                     // error of a call that ends the run
	cursor  string                     // the model's, of the answer in an open model phase
	emitted map[string][]*chunk.Custom // by call of the open step
	owed    string                     // the checkpoint that the last commit has named, until it is created
	failure *chunk.ErrorChunk          // the error with which the run is about to fail
	handed  uint64                     // epoch of the owner that has handed the run over
}

// begin opens a run.
func (o *openRun) begin(run *Run) { *o = openRun{run: run, began: o.began, more: o.more} }

// takeUp goes on with the step in which the turn's last run paused.
func (o *openRun) takeUp(last *Run) {
	o.step, o.more, o.finish = last.Step, last.More, last.Finish
	if last.awaits() && last.StepID != "" { // without a step it only waited for a child
		o.stepID, o.phase = last.StepID, PhaseTools
	}
}

// beginStep opens a step.
func (o *openRun) beginStep(number int, id string, seq uint64) {
	*o = openRun{run: o.run, step: number, stepID: id, began: seq, phase: PhaseModel, more: o.more}
}

// discardStep drops the open step. The next one has its number.
func (o *openRun) discardStep() {
	o.step, o.stepID, o.phase, o.cursor = max(o.step-1, 0), "", PhaseNone, ""
}

// commitStep closes the open step.
func (o *openRun) commitStep() {
	o.stepID, o.phase, o.cursor, o.emitted = "", PhaseNone, "", nil
}

// end closes the run.
func (o *openRun) end() {
	o.run, o.step, o.stepID, o.phase, o.cursor, o.failure = nil, 0, "", PhaseNone, "", nil
}

// runStarted opens a run. The first run of a turn opens the turn as well. The commands
// that the run answers take effect.
func (f *Fold) runStarted(r chunk.Record, c *chunk.RunStarted) {
	run := &Run{ID: c.RunID, TurnID: c.TurnID, AgentType: c.AgentType, Mode: c.Mode,
		Due: r.Seq, Start: r.Seq, StartTime: r.Time, Commands: c.Commands}
	from := f.answeredBy(run)
	turn, last := f.Turn(c.TurnID), (*Run)(nil)
	if turn != nil {
		last = turn.LastRun()
		if f.Continue != nil {
			run.Due = min(run.Due, f.Continue.Seq)
		}
		f.Continue, f.Answers = nil, nil
	} else {
		turn = &Turn{ID: c.TurnID, MessageID: c.MessageID, Opened: run.Due, From: from}
		f.Turns = append(f.Turns, turn)
		f.current = NewMessageFold(f.Session)
		f.Messages = append(f.Messages, f.current.Message())
	}
	turn.Runs = append(turn.Runs, run)
	f.open.begin(run)
	if last != nil {
		f.open.takeUp(last)
	}
	f.last, f.Rolled = nil, ""
	f.pairs.dropSeries()
	if f.Interrupt != nil { // it came before the run, and is for it
		f.Verdicts[f.Interrupt.ID] = Verdict{State: VerdictAccepted, RunID: run.ID}
	}
	f.Status, f.Reason, f.Error = chunk.StatusActive, "", nil
}

// answeredBy takes the commands that a run answers out of the inbox. It returns the
// checkpoint to which one of them has brought the history back.
func (f *Fold) answeredBy(run *Run) (from string) {
	for _, id := range run.Commands {
		if i := slices.IndexFunc(f.Waiting, func(w *Command) bool { return w.ID == id }); i >= 0 {
			w := f.Waiting[i]
			run.Due = min(run.Due, w.Seq)
			from = w.CheckpointID
			if w.Held {
				f.change(w)
			}
			if w.EditID != "" {
				f.Verdicts[w.EditID] = Verdict{State: VerdictAccepted, RunID: run.ID}
			}
			f.Waiting = slices.Delete(f.Waiting, i, i+1)
		}
		f.Verdicts[id] = Verdict{State: VerdictAccepted, RunID: run.ID}
	}
	return from
}

// stepStarted opens a step, and its model phase.
func (f *Fold) stepStarted(r chunk.Record, c *chunk.StepStarted) {
	f.open.beginStep(c.Step, c.StepID, r.Seq)
}

// answerStarted notes the model's cursor of the open phase's answer.
func (f *Fold) answerStarted(_ chunk.Record, c *chunk.AnswerStarted) {
	if f.open.phase == PhaseModel && c.StepID == f.open.stepID {
		f.open.cursor = c.Cursor
	}
}

// assistantMessage closes the model phase, and counts what it used.
func (f *Fold) assistantMessage(_ chunk.Record, c *chunk.AssistantMessage) {
	if o := &f.open; !c.More && o.phase == PhaseModel {
		o.phase, o.finish, o.more, o.cursor = PhaseTools, c.FinishReason, c.Unfinished, ""
	}
	if c.Usage != nil {
		f.Usage = f.Usage.Add(*c.Usage)
		if run := f.open.run; run != nil {
			run.Usage = run.Usage.Add(*c.Usage)
		}
	}
}

// toolEnd notes a failure that ends the run.
func (f *Fold) toolEnd(_ chunk.Record, c *chunk.ToolEnd) {
	if c.Fatal {
		f.open.fatal = c.Error
	}
}

// errorChunk notes the error with which the run fails.
func (f *Fold) errorChunk(_ chunk.Record, c *chunk.ErrorChunk) {
	if c.Fatal && f.open.run != nil {
		f.open.failure = c
	}
}

// custom notes an event that a call has emitted, so that the call does not emit it
// twice when it is made again.
func (f *Fold) custom(_ chunk.Record, c *chunk.Custom) {
	if c.ToolCallID == "" || c.ID != "" || c.Transient {
		return
	}
	if f.open.emitted == nil {
		f.open.emitted = map[string][]*chunk.Custom{}
	}
	f.open.emitted[c.ToolCallID] = append(f.open.emitted[c.ToolCallID], c)
}

// stepCommitted commits the open step.
func (f *Fold) stepCommitted(_ chunk.Record, c *chunk.StepCommitted) {
	if c.More || f.current == nil {
		return
	}
	if c.Partial {
		f.unstage(f.current.keepsPatch)
	}
	f.keepState(f.State)
	f.open.commitStep()
	f.Answers = nil // the open run has taken them
	if run := f.open.run; run != nil {
		run.Steps++
		run.Recoveries = 0
		f.open.owed = c.CheckpointID
	}
}

// stepDiscarded drops the open step.
func (f *Fold) stepDiscarded(chunk.Record, *chunk.StepDiscarded) {
	f.open.discardStep()
	f.unstage(func(chunk.StatePatch) bool { return false })
}

// checkpointCreated names the state as it stands.
func (f *Fold) checkpointCreated(r chunk.Record, c *chunk.CheckpointCreated) {
	f.Checkpoints = append(f.Checkpoints, Checkpoint{ID: c.CheckpointID, RunID: c.RunID, StepCount: c.StepCount,
		StepID: f.current.stepID(), Seq: r.Seq, MessageCount: len(f.Messages), Time: c.Timestamp})
	f.CheckpointID, f.open.owed = c.CheckpointID, ""
}

// runSuspended closes the open run, which pauses.
func (f *Fold) runSuspended(r chunk.Record, c *chunk.RunSuspended) {
	f.endRun(r, func(run *Run) {
		run.Suspended, run.Pending, run.Expires = c.Kind, c.ToolCallIDs, c.ExpiresAt
		run.Step, run.StepID, run.More, run.Finish = f.open.step, c.StepID, f.open.more, f.open.finish
		f.Status, f.Reason, f.Error = chunk.StatusPaused, c.Kind, nil
		f.unheeded(run)
	})
}

// runFinished closes the open run, which has ended.
func (f *Fold) runFinished(r chunk.Record, c *chunk.RunFinished) {
	f.endRun(r, func(run *Run) {
		run.Outcome, run.Code = c.Outcome, c.Code
		f.Answers = nil // to children that are stopped with it
		f.Status, f.Reason, f.Error = chunk.StatusEnded, string(c.Outcome), nil
		if c.Outcome == chunk.OutcomeFailed {
			f.Status = chunk.StatusFailed
			f.Error = &chunk.ErrorInfo{Error: c.Error, Code: c.Code, Recoverable: c.Recoverable}
		}
	})
}

// endRun closes the open run. how notes in which way it ended.
func (f *Fold) endRun(r chunk.Record, how func(*Run)) {
	run := f.open.run
	if run == nil {
		return
	}
	run.End, run.EndTime = r.Seq, r.Time
	how(run)
	if f.staging.patches != nil {
		f.keepState(f.State)
	}
	if f.Stop != nil && f.Stop.Seq < r.Seq && f.Continue == nil && !run.passes(f.Stop) {
		f.Stop = nil
	}
	if f.Interrupt != nil && !run.passes(f.Interrupt) {
		f.Interrupt = nil
	}
	f.open.end()
}

// passes reports whether a stop or an interrupt is not for this run but for the next.
// That is so if this run only ends a pause for a message, and the command came after
// the message and before the run.
func (r *Run) passes(c *Command) bool { return r.Mode == chunk.ModeSuperseded && c.Seq < r.Start }

// awaits reports whether a run is suspended until somebody answers.
func (r *Run) awaits() bool { return strings.HasPrefix(r.Suspended, "awaiting_") }

// streamResync notes where a branch comes from.
func (f *Fold) streamResync(r chunk.Record, c *chunk.StreamResync) {
	if c.Reason == "branch" && c.SourceSessionID != "" {
		f.Origin = &Origin{c.SourceSessionID, c.CheckpointID, c.CommandID, r.Seq}
	}
}

// executorHandedOver notes that the open run's owner leaves it to the next one.
func (f *Fold) executorHandedOver(_ chunk.Record, c *chunk.ExecutorHandedOver) {
	f.open.handed = c.Epoch
}

// executorSuperseded notes that another owner has taken the open run over.
func (f *Fold) executorSuperseded(chunk.Record, *chunk.ExecutorSuperseded) {
	if f.open.run != nil {
		f.open.run.Recoveries++
	}
	f.supersede()
}

// supersede notes that the log has another owner. What the old one has written of an
// unfinished series counts for nothing, in the session's message and in those of all
// children.
func (f *Fold) supersede() {
	if f.current != nil {
		f.current.dropSeries()
	}
	for _, child := range f.Children {
		child.supersede()
	}
}
