package agent

import (
	"errors"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// ErrAnswered says that a run need not pause: all that it would wait for was answered
// meanwhile.
var ErrAnswered = errors.New("agent: nothing is missing any more")

// Suspension returns the chunks that pause the open run of a fold as a result says.
// expires is when the agent's limit ends the pause, in Unix milliseconds; 0: never. A
// pause does not wait for what was answered while other calls ran. If everything was,
// Suspension fails with [ErrAnswered].
func Suspension(f *fold.Fold, r Result, expires int64) ([]chunk.Chunk, error) {
	if r.Suspended == chunk.SuspendedInterrupted {
		return f.Owed().Interrupt(), nil
	}
	if r = missing(f, r); len(r.Waiting)+len(r.Children) == 0 {
		return nil, ErrAnswered
	}
	paused := &chunk.RunPaused{Reason: strings.TrimPrefix(r.Suspended, "awaiting_")}
	ids := make([]string, len(r.Waiting))
	for i, w := range r.Waiting {
		ids[i] = w.CallID
	}
	if len(r.Waiting) > 0 {
		paused.PendingToolCallID, paused.PendingToolName = ids[0], r.Waiting[0].Name
	} else if calls := f.PendingCalls(); len(calls) > 0 {
		paused.PendingToolCallID, paused.PendingToolName = calls[0].CallID, calls[0].Name
	}
	return append([]chunk.Chunk{paused}, f.Owed().Suspend(r.Suspended, ids, expires, r.Children...)...), nil
}

// missing leaves out what was answered.
func missing(f *fold.Fold, r Result) Result {
	calls, children := r.Waiting, r.Children
	r.Waiting, r.Children = nil, nil
	approval := false
	for _, w := range calls {
		if t := f.Call(w.CallID); t != nil && t.Waits() {
			r.Waiting = append(r.Waiting, w)
			approval = approval || t.Approval != nil
		}
	}
	for _, id := range children {
		if c := f.Child(id); c != nil && len(c.PendingCalls()) > 0 {
			r.Children = append(r.Children, id)
		}
	}
	return r.suspended(approval)
}
