package runner

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/commandid"
)

// Input is what a turn begins with.
type Input struct {
	// Session is the one to go on with or to create; "": a new one.
	Session string
	// Agent is the agent type that answers in a session that is created; "": any.
	Agent string
	// Principal is whose session it is if Execute creates it; "": nobody's.
	Principal string
	// Message is what the user says. An empty ID gets one, and an empty Role is
	// the user's.
	Message chunk.Message
	// Messages and State take the place of the session's history and custom state;
	// nil leaves them as they are. System messages are left out: the agent has its
	// own.
	Messages []chunk.Message
	State    json.RawMessage
	// WhenBusy says what to do while a run is open; "": fail with [spool.ErrBusy],
	// as an input with Messages or State always does.
	WhenBusy chunk.WhenBusy
	// CommandID makes Execute idempotent: with the same one again it returns the
	// same turn, and another message with that id fails. "": a new one.
	CommandID string
}

// Text is the input of a message that is only text.
func Text(text string) Input {
	return Input{Message: chunk.Message{Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
}

// Execute begins a turn and returns at once; whichever runner serves the session
// runs it, in this process or another. It fails with [spool.ErrBusy],
// [spool.ErrQuota], [chunk.ErrIDConflict] if the command's id, or an assistant message, has the id already,
// [chunk.ErrInvalidChunk] for a message that is not the user's, and as
// [spool.Log.Command] does.
func Execute(ctx context.Context, logs *spool.Logs, in Input) (*Handle, error) {
	if in.Session == "" {
		in.Session = logs.NewID()
	}
	if in.CommandID == "" {
		in.CommandID = logs.NewID()
	}
	if err := chunk.CheckSessionID(in.Session); err != nil {
		return nil, err
	}
	g, err := logs.Log(in.Session)
	if err != nil {
		return nil, err
	}
	h := &Handle{g: g, command: in.CommandID}
	chunks := in.chunks()
	said := chunks[len(chunks)-1].(*chunk.UserMessage)
	if v, err := h.asked(ctx, said); v.State == fold.VerdictUnknown && (err == nil || errors.Is(err, spool.ErrNotFound)) {
		if _, err := g.Command(ctx, spool.Row{Agent: in.Agent, Principal: in.Principal}, chunks...); err != nil {
			return nil, err
		}
	}
	v, err := h.asked(ctx, said)
	if err == nil && v.State == fold.VerdictRefused {
		err = refused(v.Code, in.Session)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

func refused(code, session string) error {
	if code == fold.RefusedBusy {
		return spool.ErrBusy.With(session, nil)
	}
	return chunk.ErrInvalid.Because("the log refused the message: "+code).With(session, nil)
}

// chunks returns the commands: what replaces the history, and the message.
func (in *Input) chunks() []chunk.Chunk {
	m := in.Message.Clone()
	if m.ID == "" {
		m.ID = in.CommandID
	}
	if m.Role == "" {
		m.Role = chunk.RoleUser
	}
	said := &chunk.UserMessage{CommandID: in.CommandID, Message: m, WhenBusy: in.WhenBusy}
	if in.Messages == nil && in.State == nil {
		return []chunk.Chunk{said}
	}
	r := &chunk.HistoryReplaced{CommandID: commandid.New("replace", in.CommandID), State: in.State}
	if in.Messages != nil {
		kept := []chunk.Message{}
		for i, m := range in.Messages {
			if m = m.Clone(); m.ID == "" {
				m.ID = in.CommandID + "-" + strconv.Itoa(i)
			}
			if m.Role != chunk.RoleSystem {
				kept = append(kept, m)
			}
		}
		r.Messages = &kept
	}
	said.WhenBusy = chunk.BusyReject // so that both are taken, or neither is
	return []chunk.Chunk{r, said}
}

// Handle is a turn that was begun. It holds nothing open and need not be closed.
type Handle struct {
	g       *spool.Log
	command string
}

// SessionID is the turn's session.
func (h *Handle) SessionID() string { return h.g.Session() }

// Result is the state of a turn in which nothing runs.
type Result struct {
	Status  chunk.Status    // ended, failed or paused
	Reason  string          // the outcome, or what it waits for
	RunID   string          // of the turn's last run
	Output  json.RawMessage // nil without a structured answer
	Message chunk.Message   // what was said; see [chunk.Part.Whole] for large parts
	State   json.RawMessage
	Usage   chunk.Usage // of all runs of the turn
}

// Stream returns the session's records after the sequence fromOffset, to the point where
// nothing runs any more. Use it as often as needed. From 0, where trace was trimmed, it
// returns what remains: a record with Seq 0 and of type [chunk.TypeTraceOmitted], then
// the kept records up to the trace floor, then all. An offset inside trimmed trace is
// [spool.ErrTrimmed].
func (h *Handle) Stream(ctx context.Context, fromOffset uint64) iter.Seq2[chunk.Record, error] {
	return func(yield func(chunk.Record, error) bool) {
		head, err := h.g.Head(ctx)
		if err != nil {
			yield(chunk.Record{}, err)
			return
		}
		after := spool.Cursor{Seq: fromOffset}
		if fromOffset > 0 {
			after.Incarnation = head.Incarnation
		}
		h.g.Records(ctx, spool.ReadOptions{After: after})(yield)
	}
}

// Result waits until the turn has ended, failed or paused. The error of a run that
// failed is a [*chunk.RunError], beside its result. A message that the log gave up
// before any run answered it is [spool.ErrNotFound].
func (h *Handle) Result(ctx context.Context) (*Result, error) {
	var result *Result
	var failed error
	err := h.g.Until(ctx, spool.Head{}, func(f *fold.Fold) (spool.Look, error) {
		v := f.Verdict(h.command)
		run := f.Run(v.RunID)
		switch {
		case run == nil && v.State == fold.VerdictWaiting:
			return spool.Surely, nil
		case run == nil:
			return spool.Seen, spool.ErrNotFound.Because("no run answers this message").With(f.Session, nil)
		}
		if result, failed = resultOf(f, f.Turn(run.TurnID)); result == nil {
			return spool.Surely, nil
		}
		return spool.Seen, nil
	})
	if err != nil {
		return nil, err
	}
	for _, v := range [...]*json.RawMessage{&result.Output, &result.State} {
		if *v, err = h.g.Blob(ctx, *v); err != nil {
			return nil, err
		}
	}
	return result, failed
}

// resultOf returns a turn's result, nil while it goes on.
func resultOf(f *fold.Fold, turn *fold.Turn) (*Result, error) {
	last := turn.LastRun()
	latest := turn == f.LastTurn()
	if last.End == 0 || latest && f.Continue != nil {
		return nil, nil
	}
	r := &Result{Status: chunk.StatusEnded, Reason: string(last.Outcome), RunID: last.ID, State: f.State}
	for _, run := range turn.Runs {
		r.Usage = r.Usage.Add(run.Usage)
	}
	if m := f.Message(turn.MessageID); m != nil {
		r.Message = m.Clone()
		r.Output = m.Output()
	}
	switch {
	case last.Suspended != "" && latest:
		r.Status, r.Reason = chunk.StatusPaused, last.Suspended
	case last.Outcome == chunk.OutcomeFailed:
		r.Status = chunk.StatusFailed
		e := &chunk.RunError{Code: last.Code, RunID: last.ID}
		if latest && f.Error != nil {
			e.Message, e.Retryable = f.Error.Error, f.Error.Recoverable
		}
		return r, e
	}
	return r, nil
}

// asked is verdict, for a message. It fails if the log has another command of its id, or an
// assistant message has the message's id.
func (h *Handle) asked(ctx context.Context, said *chunk.UserMessage) (v fold.Verdict, err error) {
	err = h.g.View(ctx, func(f *fold.Fold) error {
		v = f.Verdict(h.command)
		switch {
		case v.State == fold.VerdictUnknown && f.Assistant(said.Message.ID),
			f.Asked[h.command] != "" && f.Asked[h.command] != fold.Digest(said):
			return chunk.ErrIDConflict.With(f.Session, nil)
		}
		return nil
	})
	return v, err
}
