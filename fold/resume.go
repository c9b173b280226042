package fold

import (
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// Interrupted returns the run that an interrupt has paused and that can still go
// on, or nil.
func (f *Fold) Interrupted() *Run {
	run := f.Break()
	if run == nil || f.Live() || f.Message(f.LastTurn().MessageID) == nil {
		return nil
	}
	return run
}

// Break returns the run in which the fold's last turn was interrupted, if nothing
// has followed it but what waits.
func (f *Fold) Break() *Run {
	if t := f.LastTurn(); f.Status == chunk.StatusPaused && t != nil && t.LastRun().Suspended == chunk.SuspendedInterrupted {
		return t.LastRun()
	}
	return nil
}

// Boundary says what the open run must do at a step boundary: end, because
// another message steers it ([chunk.OutcomeSteered]), or pause, because it was
// interrupted. What steers wins: the session goes on with it either way.
func (f *Fold) Boundary() (steered, interrupted bool) {
	return f.run != nil && f.takesPlace(f.run, chunk.BusySteer), f.run != nil && f.Interrupt != nil
}

// takesPlace reports whether a message that came while the run was open asks it
// to make room.
func (f *Fold) takesPlace(run *Run, how ...chunk.WhenBusy) bool {
	return slices.ContainsFunc(f.Waiting, func(w *Command) bool {
		return w.Seq > run.Start && slices.Contains(how, w.WhenBusy)
	})
}

// Interrupting returns the chunks that pause the open run at a step boundary. A
// step that was begun there and has said nothing is dropped.
func (f *Fold) Interrupting() []chunk.Chunk {
	var chunks []chunk.Chunk
	base, step := f.base(), f.step
	if f.phase == PhaseModel {
		chunks = append(chunks, &chunk.StepDiscarded{Base: base, StepID: f.stepID, Reason: chunk.SuspendedInterrupted})
		step--
	}
	base.Step = max(step, 0)
	said := &chunk.RunInterrupted{Base: base}
	suspended := &chunk.RunSuspended{Base: base, Kind: chunk.SuspendedInterrupted, Data: f.current.uncommitted()}
	if f.Interrupt != nil {
		said.Reason = f.Interrupt.Reason
	}
	if c := f.TurnCheckpoint(f.Turn(f.run.TurnID)); c != nil {
		said.CheckpointID, suspended.CheckpointID = &c.ID, c.ID
	}
	return append(chunks, said, suspended)
}

// Owed returns what comes before all else in the open run: the checkpoint that it
// has named in its last commit and did not come to create, and what ends the
// companions that the history has forgotten. Whoever begins a run or takes one over
// writes it.
func (f *Fold) Owed() []chunk.Chunk {
	if f.run == nil {
		return nil
	}
	var owed []chunk.Chunk
	if f.owed != "" {
		owed = append(owed, &chunk.CheckpointCreated{Base: f.base(), CheckpointID: f.owed, StepCount: f.step})
	}
	for _, c := range f.Children {
		if c.Forgotten {
			owed = append(owed, f.EndChild(c.Session, c.CallID, "the session went back to before it began")...)
		}
	}
	return owed
}

// forget notes the companions whose calls the history does not hold any more: it
// went back to before they began.
func (f *Fold) forget(calls []string) {
	for _, c := range f.Children {
		c.Forgotten = c.Forgotten || c.Mode != "" && c.Ended == 0 && slices.Contains(calls, c.CallID)
	}
}

// Checkpoint returns a checkpoint by its id, or nil. Those that a rollback or an
// edit has left behind are still there.
func (f *Fold) Checkpoint(id string) *Checkpoint {
	return f.lastCheckpoint(func(c Checkpoint) bool { return c.ID == id })
}

// TurnCheckpoint returns the turn's latest checkpoint, or nil.
func (f *Fold) TurnCheckpoint(t *Turn) *Checkpoint {
	return f.lastCheckpoint(func(c Checkpoint) bool {
		return slices.ContainsFunc(t.Runs, func(r *Run) bool { return r.ID == c.RunID })
	})
}

func (f *Fold) lastCheckpoint(match func(Checkpoint) bool) *Checkpoint {
	for i := len(f.Checkpoints) - 1; i >= 0; i-- {
		if match(f.Checkpoints[i]) {
			return &f.Checkpoints[i]
		}
	}
	return nil
}

func (f *Fold) requestInterrupt(r chunk.Record, c *chunk.InterruptRequested) {
	if _, repeated := f.Verdicts[c.CommandID]; repeated {
		return
	}
	if !f.Live() || f.run != nil && f.run.Mode == chunk.ModeExternal || c.Target != "" && (f.run == nil || f.run.ID != c.Target) {
		f.judge(c.CommandID, Verdict{State: VerdictRefused, Code: RefusedNothingToInterrupt})
		return
	}
	if f.Interrupt == nil {
		f.Interrupt = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Reason: c.Reason}
	}
	v := Verdict{State: VerdictAccepted}
	if f.run != nil {
		v.RunID = f.run.ID
	}
	f.judge(c.CommandID, v)
}

// heed names the run that an interrupt from before its start is about.
func (f *Fold) heed(run *Run) {
	if f.Interrupt != nil {
		f.Verdicts[f.Interrupt.ID] = Verdict{State: VerdictAccepted, RunID: run.ID}
	}
}

func (f *Fold) requestResume(r chunk.Record, c *chunk.ResumeRequested) {
	restored := f.restored
	f.restored = ""
	if _, repeated := f.Verdicts[c.CommandID]; repeated {
		return
	}
	refuse := func(code string) {
		if f.Live() || f.awaiting() != nil {
			code = RefusedBusy
		}
		f.judge(c.CommandID, Verdict{State: VerdictRefused, Code: code})
	}
	switch run := f.Interrupted(); {
	case c.Mode == chunk.ModeContinue && (run == nil || c.Target != "" && c.Target != run.ID):
		refuse(RefusedNothingToResume)
	case c.Mode == chunk.ModeContinue:
		f.Continue = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Mode: chunk.ModeContinue}
		f.judge(c.CommandID, Verdict{State: VerdictWaiting})
	case c.CheckpointID != restored:
		refuse(RefusedCheckpoint)
	case c.WithMessage:
		f.resuming = c // the user message of the same append completes it
	case c.NoRun:
		f.judge(c.CommandID, Verdict{State: VerdictAccepted})
		f.Rolled = c.CommandID
	default:
		f.open(&Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Mode: c.Mode, CheckpointID: c.CheckpointID})
	}
}

// rollBack makes the log's content at a checkpoint its content now, and gives up
// whatever the session was about since.
func (f *Fold) rollBack(whole *chunk.HistoryReplaced) Verdict {
	at := f.Checkpoint(whole.CheckpointID)
	if f.awaiting() != nil { // children may wait, too: a stop ends that
		return Verdict{State: VerdictRefused, Code: RefusedBusy}
	}
	if at == nil || whole.Messages == nil {
		return Verdict{State: VerdictRefused, Code: RefusedCheckpoint}
	}
	messages := make([]*chunk.Message, len(*whole.Messages))
	for i := range *whole.Messages {
		messages[i] = &(*whole.Messages)[i]
	}
	for _, t := range f.Turns {
		if before := f.Message(t.MessageID); before != nil {
			i := slices.IndexFunc(messages, func(m *chunk.Message) bool { return m.ID == t.MessageID })
			if i < 0 || len(messages[i].Parts) != len(before.Parts) {
				t.Rolled = f.Seq
			}
		}
	}
	f.forget(f.replaceMessages(messages))
	f.State, f.committed, f.staged = whole.State, whole.State, nil
	f.Status, f.Reason, f.Error = chunk.StatusEnded, "", nil
	f.CheckpointID, f.Answers = at.ID, nil
	f.restored = at.ID
	return Verdict{State: VerdictAccepted}
}

// replaceMessages gives the session another history, and retires the calls that
// are not in it and were in the one before, which it returns.
func (f *Fold) replaceMessages(messages []*chunk.Message) (retired []string) {
	before := len(f.Retired)
	ids := map[string]bool{}
	for _, id := range f.Retired {
		ids[id] = true
	}
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Tool != nil {
				ids[p.Tool.CallID] = true
			}
		}
	}
	for _, m := range f.Messages {
		for _, p := range m.Parts {
			if p.Tool != nil && !ids[p.Tool.CallID] {
				ids[p.Tool.CallID] = true
				f.Retired = append(f.Retired, p.Tool.CallID)
			}
		}
	}
	f.Messages = messages
	return f.Retired[before:]
}

// Content returns the fold's messages and state as the history_replaced series
// that brings a session back to a checkpoint, whose fold this is. The last one,
// and with it the resume_requested that follows, is what counts.
func (f *Fold) Content(commandID, checkpointID string) []*chunk.HistoryReplaced {
	var series []*chunk.HistoryReplaced
	room := 0
	record := func() *chunk.HistoryReplaced {
		c := &chunk.HistoryReplaced{CommandID: commandID, CheckpointID: checkpointID, Index: len(series), Messages: &[]chunk.Message{}, More: true}
		series, room = append(series, c), settleBytes
		return c
	}
	c := record()
	for _, m := range f.Messages {
		head := m.Clone()
		lists, goesOn := splitSeries(head.Parts)
		for i, parts := range lists {
			size := messageBytes + len(jsonenc.Must(m.Metadata))
			for _, p := range parts {
				size += partBytes(p)
			}
			if i > 0 || size > room && len(*c.Messages) > 0 {
				c = record()
			}
			piece := chunk.Message{ID: m.ID, Role: m.Role, Parts: parts}
			if i == 0 {
				piece.TurnID, piece.Time, piece.Metadata = m.TurnID, m.Time, m.Metadata
			} else {
				c.GoesOn = goesOn[i]
			}
			*c.Messages = append(*c.Messages, piece)
			room -= size
		}
	}
	if len(f.State) > room && len(f.State) > settleBytes/2 {
		c = record()
	}
	c.State, c.More = f.State, false
	return series
}

// messageBytes estimates what a message is beside its parts.
const messageBytes = 1 << 10

// joinMessages appends the messages of a history_replaced that goes on.
func joinMessages(list, more []chunk.Message, goesOn bool) []chunk.Message {
	if n := len(list); n > 0 && len(more) > 0 && list[n-1].ID == more[0].ID {
		last, rest := &list[n-1], more[0].Parts
		if k := len(last.Parts); goesOn && k > 0 && len(rest) > 0 {
			p := &last.Parts[k-1]
			p.Text += rest[0].Text
			p.ProviderMetadata = rest[0].ProviderMetadata
			rest = rest[1:]
		}
		last.Parts, more = append(last.Parts, rest...), more[1:]
	}
	return append(list, more...)
}

// Goes reports whether a model would be called if a run began with the history as
// it stands: it ends in what a user said, or in calls whose outcomes the model
// has not been told.
func (f *Fold) Goes() bool {
	if len(f.Messages) == 0 {
		return false
	}
	m := f.Messages[len(f.Messages)-1]
	if m.Role == chunk.RoleUser || f.more {
		return true
	}
	for i := len(m.Parts) - 1; i >= 0 && m.Parts[i].Type != chunk.PartStep; i-- {
		if t := m.Parts[i].Tool; t != nil && !t.ProviderExecuted {
			return true
		}
	}
	return false
}
