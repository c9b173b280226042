package fold

import (
	"slices"

	"github.com/spool-run/spool/chunk"
)

// rewindTo forgets the messages after the one with this id, and all for "".
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

// historyReplaced gives the session other messages or state. A series of records
// takes effect with its last one.
func (f *Fold) historyReplaced(_ chunk.Record, c *chunk.HistoryReplaced) {
	whole, complete := f.pairs.join(c)
	if !complete {
		return
	}
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
		f.keepState(whole.State)
	}
	f.judge(c.CommandID, Verdict{State: VerdictAccepted})
}

// rollBack makes the session's messages and state what they were at a checkpoint. The
// last turn's pause, failure or end since then does not matter any more.
func (f *Fold) rollBack(whole *chunk.HistoryReplaced) Verdict {
	at := f.Checkpoint(whole.CheckpointID)
	if f.awaiting() != nil { // only a stop ends the wait, also for children
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
	f.keepState(whole.State)
	f.Status, f.Reason, f.Error = chunk.StatusEnded, "", nil
	f.CheckpointID, f.Answers = at.ID, nil
	f.pairs.restored = at.ID
	return Verdict{State: VerdictAccepted}
}

// replaceMessages gives the session another history. It retires the calls that only
// the history before had, and returns their ids.
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

// forget notes the companions that these calls began. The history does not hold the
// calls any more.
func (f *Fold) forget(calls []string) {
	for _, c := range f.Children {
		c.Forgotten = c.Forgotten || c.Mode != "" && c.Ended == 0 && slices.Contains(calls, c.CallID)
	}
}
