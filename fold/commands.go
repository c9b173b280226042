package fold

import "github.com/spool-run/spool/chunk"

// Command is a command that no run has acted on yet.
type Command struct {
	ID       string         `json:"id"`
	Type     chunk.Type     `json:"type"`
	Seq      uint64         `json:"seq"`
	WhenBusy chunk.WhenBusy `json:"whenBusy,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Mode     string         `json:"mode,omitempty"` // of the run that it opens, if it is not start

	// What it will do to the history, if it could not do so at once.
	Held    bool           `json:"held,omitempty"`
	Rewind  *string        `json:"rewind,omitempty"` // the message after which to forget
	EditID  string         `json:"editId,omitempty"` // command id of the history_rewound or resume_requested that came with a user message
	Message *chunk.Message `json:"message,omitempty"`

	CheckpointID string `json:"checkpointId,omitempty"` // to which it has brought the history back
}

// VerdictState is what became of a command.
type VerdictState string

const (
	VerdictUnknown  VerdictState = ""         // the log holds no such command
	VerdictWaiting  VerdictState = "waiting"  // it will open a run
	VerdictAccepted VerdictState = "accepted" // it took effect
	VerdictRefused  VerdictState = "refused"
)

// Verdict is the log's answer to a command. It is given to the first command of an
// id, and repeats get the same one.
type Verdict struct {
	State VerdictState `json:"state"`
	RunID string       `json:"runId,omitempty"` // accepted: the run that answers it, if one does
	Code  string       `json:"code,omitempty"`  // refused: why, an error code
	// From is set for an answer that came while the run RunID was open. The run's
	// records after this sequence are what came of the answer.
	From uint64 `json:"from,omitempty"`
}

// The codes of a refused command.
const (
	RefusedBusy          = "busy"
	RefusedNothingToStop = "nothing_to_stop"
	RefusedUnknown       = "unknown_message"
	RefusedNotPending    = "nothing_to_continue"

	RefusedNothingToInterrupt = "nothing_to_interrupt"
	RefusedNothingToResume    = "nothing_to_resume"
	RefusedCheckpoint         = "no_such_checkpoint"
)

// Verdict returns what became of a command, of the session's own or of a
// child's.
func (f *Fold) Verdict(commandID string) Verdict {
	v, known := f.Verdicts[commandID]
	for i := 0; !known && i < len(f.Children); i++ {
		v = f.Children[i].Verdict(commandID)
		known = v.State != VerdictUnknown
	}
	return v
}

// userMessage opens a turn. A history_rewound or a resume_requested right before it
// makes one command with it, and takes effect with it.
func (f *Fold) userMessage(r chunk.Record, c *chunk.UserMessage) {
	w := &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, WhenBusy: c.WhenBusy, Message: &c.Message}
	if w.Message.Time == 0 {
		w.Message.Time = c.Timestamp
	}
	switch edit, resume := f.pairs.takeOpener(); {
	case edit != nil:
		w.Seq, w.WhenBusy, w.Rewind, w.EditID = r.Seq-1, edit.WhenBusy, &edit.AfterMessageID, edit.CommandID
		f.judge(edit.CommandID, f.openTurn(w))
	case resume != nil:
		w.Seq, w.Mode, w.CheckpointID, w.EditID = r.Seq-1, resume.Mode, resume.CheckpointID, resume.CommandID
		f.Asked[resume.CommandID] = DigestWith(Digest(resume), c)
		f.judge(resume.CommandID, f.openTurn(w))
	default:
		f.openTurn(w)
	}
}

// historyRewound forgets messages: at once and to answer again (regenerate), or with
// the user message that follows (edit).
func (f *Fold) historyRewound(r chunk.Record, c *chunk.HistoryRewound) {
	if c.Trigger == "edit" {
		f.pairs.edit = c // the user message of the same append completes it
		return
	}
	f.openTurn(&Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, WhenBusy: c.WhenBusy, Rewind: &c.AfterMessageID})
}

// judge gives a command its verdict, unless a command of its id has one already. It
// returns the verdict that counts.
func (f *Fold) judge(id string, v Verdict) Verdict {
	if first, repeated := f.Verdicts[id]; repeated {
		return first
	}
	f.Verdicts[id] = v
	return v
}

// openTurn takes a command that opens a turn. While a run is open, the command is
// refused or held, as it asks for.
func (f *Fold) openTurn(w *Command) Verdict {
	if v, repeated := f.Verdicts[w.ID]; repeated {
		return v
	}
	if w.Rewind != nil && *w.Rewind != "" && f.Message(*w.Rewind) == nil {
		return f.judge(w.ID, Verdict{State: VerdictRefused, Code: RefusedUnknown})
	}
	busy := f.Live()
	if busy && (w.WhenBusy == "" || w.WhenBusy == chunk.BusyReject) {
		return f.judge(w.ID, Verdict{State: VerdictRefused, Code: RefusedBusy})
	}
	w.Held = busy
	if f.awaiting() != nil && f.Continue == nil {
		// Nobody has answered what the paused turn waits for. A run gives that up
		// before the new turn begins.
		f.Continue = &Command{ID: w.ID, Type: w.Type, Seq: w.Seq, Mode: chunk.ModeSuperseded}
		w.Held = true
	}
	if !w.Held {
		f.change(w)
	}
	f.Waiting = append(f.Waiting, w)
	return f.judge(w.ID, Verdict{State: VerdictWaiting})
}

// change lets a command take effect on the history.
func (f *Fold) change(w *Command) {
	if w.Rewind != nil {
		f.rewindTo(*w.Rewind)
	}
	if w.Message != nil {
		f.Messages = append(f.Messages, w.Message)
	}
}

// stopRequested notes a stop for the open run, or ends a pause.
func (f *Fold) stopRequested(r chunk.Record, c *chunk.StopRequested) {
	if _, repeated := f.Verdicts[c.CommandID]; repeated {
		return
	}
	if run := f.awaiting(); run != nil && f.Continue == nil && (c.Target == "" || c.Target == run.ID) {
		f.Stop = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Reason: c.Reason}
		f.Continue = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Mode: chunk.ModeStop}
		f.judge(c.CommandID, Verdict{State: VerdictAccepted, RunID: run.ID})
		return
	}
	if !f.Live() || (c.Target != "" && (f.open.run == nil || f.open.run.ID != c.Target)) {
		f.judge(c.CommandID, Verdict{State: VerdictRefused, Code: RefusedNothingToStop})
		return
	}
	v := Verdict{State: VerdictAccepted}
	if f.open.run != nil {
		v.RunID = f.open.run.ID
	}
	if f.Stop == nil {
		f.Stop = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Reason: c.Reason}
	}
	f.judge(c.CommandID, v)
}

// interruptRequested notes an interrupt for the open run, or for the one that is
// about to begin.
func (f *Fold) interruptRequested(r chunk.Record, c *chunk.InterruptRequested) {
	if _, repeated := f.Verdicts[c.CommandID]; repeated {
		return
	}
	if !f.Live() || f.open.run != nil && f.open.run.Mode == chunk.ModeExternal || c.Target != "" && (f.open.run == nil || f.open.run.ID != c.Target) {
		f.judge(c.CommandID, Verdict{State: VerdictRefused, Code: RefusedNothingToInterrupt})
		return
	}
	if f.Interrupt == nil {
		f.Interrupt = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Reason: c.Reason}
	}
	v := Verdict{State: VerdictAccepted}
	if f.open.run != nil {
		v.RunID = f.open.run.ID
	}
	f.judge(c.CommandID, v)
}

// resumeRequested lets an interrupted run go on, or opens a turn with the history as
// it stands.
func (f *Fold) resumeRequested(r chunk.Record, c *chunk.ResumeRequested) {
	restored := f.pairs.takeRestored()
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
		f.pairs.resume = c // the user message of the same append completes it
	case c.NoRun:
		f.judge(c.CommandID, Verdict{State: VerdictAccepted})
		f.Rolled = c.CommandID
	default:
		f.openTurn(&Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Mode: c.Mode, CheckpointID: c.CheckpointID})
	}
}

// Opener returns the id of the first command that begins a turn, or "".
func Opener(chunks []chunk.Chunk) string {
	for _, c := range chunks {
		switch c := c.(type) {
		case *chunk.UserMessage:
			return c.CommandID
		case *chunk.HistoryRewound:
			return c.CommandID
		case *chunk.ResumeRequested:
			if c.Mode != chunk.ModeContinue && !c.NoRun {
				return c.CommandID
			}
		}
	}
	return ""
}
