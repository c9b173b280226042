package fold

import (
	"slices"

	"github.com/spool-run/spool/chunk"
)

// Command is a command that waits.
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

// Verdict is the log's answer to a command. The first command of an id gets it;
// repeats of the id get the same.
type Verdict struct {
	State VerdictState `json:"state"`
	RunID string       `json:"runId,omitempty"` // accepted: the run that answers it, if one does
	Code  string       `json:"code,omitempty"`  // refused: why, an error code
	// From is set for an answer that came while RunID was open: that run's
	// records after this sequence answer it.
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

func (f *Fold) applyCommand(r chunk.Record, c chunk.Chunk) {
	switch c := c.(type) {
	case *chunk.UserMessage:
		rewind, resume := f.rewind, f.resuming
		f.rewind, f.resuming = nil, nil
		w := &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, WhenBusy: c.WhenBusy, Message: &c.Message}
		if w.Message.Time == 0 {
			w.Message.Time = c.Timestamp
		}
		if rewind != nil {
			w.Seq, w.WhenBusy, w.Rewind, w.EditID = r.Seq-1, rewind.WhenBusy, &rewind.AfterMessageID, rewind.CommandID
			f.judge(rewind.CommandID, f.open(w))
			return
		}
		if resume != nil {
			w.Seq, w.Mode, w.CheckpointID, w.EditID = r.Seq-1, resume.Mode, resume.CheckpointID, resume.CommandID
			f.judge(resume.CommandID, f.open(w))
			return
		}
		f.open(w)
	case *chunk.HistoryRewound:
		if c.Trigger == "edit" {
			f.rewind = c // the user message of the same append completes it
			return
		}
		f.open(&Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, WhenBusy: c.WhenBusy, Rewind: &c.AfterMessageID})
	case *chunk.HistoryReplaced:
		f.replace(c)
	case *chunk.StopRequested:
		f.requestStop(r, c)
	case *chunk.InterruptRequested:
		f.requestInterrupt(r, c)
	case *chunk.ResumeRequested:
		f.requestResume(r, c)
	case *chunk.ToolApprovalResponse, *chunk.ToolResultSubmitted:
		f.answer(r, c)
	}
}

// judge gives a command its verdict, unless one of its id has one.
func (f *Fold) judge(id string, v Verdict) Verdict {
	if first, repeated := f.Verdicts[id]; repeated {
		return first
	}
	f.Verdicts[id] = v
	return v
}

// open takes a command that opens a turn.
func (f *Fold) open(w *Command) Verdict {
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
		// Nobody answered: what the turn waits for is given up first.
		f.Continue = &Command{ID: w.ID, Type: w.Type, Seq: w.Seq, Mode: chunk.ModeSuperseded}
		w.Held = true
	}
	if !w.Held {
		f.change(w)
	}
	f.Waiting = append(f.Waiting, w)
	return f.judge(w.ID, Verdict{State: VerdictWaiting})
}

// takeEffect changes the history as a held command asks, when its run starts.
func (f *Fold) takeEffect(w *Command) {
	if w.Held {
		f.change(w)
	}
}

func (f *Fold) change(w *Command) {
	if w.Rewind != nil {
		f.rewindTo(*w.Rewind)
	}
	if w.Message != nil {
		f.Messages = append(f.Messages, w.Message)
	}
}

// rewindTo forgets the messages after one; "" forgets all.
func (f *Fold) rewindTo(id string) {
	keep := 0
	if id != "" {
		i := slices.IndexFunc(f.Messages, func(m *chunk.Message) bool { return m.ID == id })
		if i < 0 {
			return
		}
		keep = i + 1
	}
	f.forget(f.replaceMessages(slices.Clip(f.Messages[:keep])))
}

func (f *Fold) replace(c *chunk.HistoryReplaced) {
	whole := f.replacing[c.CommandID]
	switch {
	case whole != nil && c.Index <= whole.Index:
		return // somebody sends it again
	case whole == nil && c.Index == 0:
		whole = c
	case whole == nil || c.Index != whole.Index+1:
		delete(f.replacing, c.CommandID) // the series is not whole
		return
	default:
		if c.Messages != nil {
			if whole.Messages == nil {
				whole.Messages = &[]chunk.Message{}
			}
			joined := joinMessages(*whole.Messages, *c.Messages, c.GoesOn)
			whole.Messages = &joined
		}
		if c.State != nil {
			whole.State = c.State
		}
		whole.Index = c.Index
	}
	if c.More {
		if f.replacing == nil {
			f.replacing = map[string]*chunk.HistoryReplaced{}
		}
		f.replacing[c.CommandID] = whole
		return
	}
	delete(f.replacing, c.CommandID)
	if _, repeated := f.Verdicts[c.CommandID]; repeated {
		return
	}
	if f.Live() {
		f.judge(c.CommandID, Verdict{State: VerdictRefused, Code: RefusedBusy})
		return
	}
	f.Rolled = ""
	if whole.CheckpointID != "" {
		f.judge(c.CommandID, f.rollBack(whole))
		return
	}
	if whole.Messages != nil {
		messages := make([]*chunk.Message, 0, len(*whole.Messages))
		for _, m := range *whole.Messages {
			if m.Role != chunk.RoleSystem { // agents bring their own instructions
				messages = append(messages, &m)
			}
		}
		f.replaceMessages(messages)
	}
	if whole.State != nil {
		f.State, f.committed, f.staged = whole.State, whole.State, nil
	}
	f.judge(c.CommandID, Verdict{State: VerdictAccepted})
}

func (f *Fold) requestStop(r chunk.Record, c *chunk.StopRequested) {
	if _, repeated := f.Verdicts[c.CommandID]; repeated {
		return
	}
	if run := f.awaiting(); run != nil && f.Continue == nil && (c.Target == "" || c.Target == run.ID) {
		f.Stop = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Reason: c.Reason}
		f.Continue = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Mode: chunk.ModeStop}
		f.judge(c.CommandID, Verdict{State: VerdictAccepted, RunID: run.ID})
		return
	}
	if !f.Live() || (c.Target != "" && (f.run == nil || f.run.ID != c.Target)) {
		f.judge(c.CommandID, Verdict{State: VerdictRefused, Code: RefusedNothingToStop})
		return
	}
	v := Verdict{State: VerdictAccepted}
	if f.run != nil {
		v.RunID = f.run.ID
	}
	if f.Stop == nil {
		f.Stop = &Command{ID: c.CommandID, Type: r.Type, Seq: r.Seq, Reason: c.Reason}
	}
	f.judge(c.CommandID, v)
}

// answer takes a decision or a result for a call that waits for one. Its run may
// still be open, because other calls of the step are not done: then the answer
// is the open run's, unless that has to pause for others.
func (f *Fold) answer(r chunk.Record, c chunk.Chunk) {
	id := chunk.CommandID(c)
	if _, repeated := f.Verdicts[id]; repeated {
		return
	}
	if f.current == nil || f.Forgotten || f.run == nil && f.Status != chunk.StatusPaused || !f.takes(c) {
		f.judge(id, Verdict{State: VerdictRefused, Code: RefusedNotPending})
		return
	}
	f.current.Apply(r, c)
	v := Verdict{State: VerdictAccepted}
	if f.run != nil {
		v.RunID, v.From = f.run.ID, r.Seq
	}
	f.judge(id, v)
	f.answered(r, id)
}

// takes says whether a call waits for an answer, and not for a child instead.
func (f *Fold) takes(c chunk.Chunk) bool {
	call := f.current.Answered(c, f.run != nil)
	if run := f.awaiting(); run != nil && run.Suspended == chunk.SuspendedChildren && c.ChunkType() == chunk.TypeToolResultSubmitted {
		return call != "" && slices.Contains(run.Pending, call)
	}
	return call != ""
}

// Answered returns the id of the call that an answer is for, if that waits for
// such an answer; open says whether its run is. The answer is not applied.
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

// stage applies a patch to the state, to be kept when its step is committed. A
// patch that does not apply changes nothing, here as at every reader.
func (f *Fold) stage(c *chunk.StatePatch) {
	state, err := chunk.PatchState(f.State, c.Patches)
	if err != nil {
		return
	}
	if f.run == nil {
		f.State, f.committed = state, state
		return
	}
	f.State = state
	f.staged = append(f.staged, *c)
}

// unstage goes back to the committed state and applies the patches to keep.
func (f *Fold) unstage(keep func(chunk.StatePatch) bool) {
	f.staged = slices.DeleteFunc(f.staged, func(p chunk.StatePatch) bool { return !keep(p) })
	f.State = f.committed
	for _, p := range f.staged {
		f.State = chunk.ReplayState(f.State, p.Patches)
	}
}
