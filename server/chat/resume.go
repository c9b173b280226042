package chat

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/commandid"
	"github.com/spool-run/spool/wire"
)

// ResumeOptions say how a session is resumed.
type ResumeOptions struct {
	// Mode is [chunk.ModeContinue] (also ""), [chunk.ModeWithMessage],
	// [chunk.ModeRetry] or [chunk.ModeFromCheckpoint].
	Mode string
	// RunID is the interrupted run, for ModeContinue; "" for the one that there is.
	RunID string
	// CheckpointID is the checkpoint to rewind to, for ModeFromCheckpoint.
	CheckpointID string
	// Message opens the next turn. ModeWithMessage needs it, and ModeFromCheckpoint may
	// have it.
	Message *chunk.Message
	// CommandID is the caller's own idempotency key. "" derives a key from the request:
	// if the same request is repeated before anything else happens, it gets the same
	// result.
	CommandID string
}

// Check fills in the defaults and checks the options.
func (o *ResumeOptions) Check() error {
	switch o.Mode {
	case "":
		o.Mode = chunk.ModeContinue
	case chunk.ModeContinue, chunk.ModeWithMessage, chunk.ModeRetry, chunk.ModeFromCheckpoint:
	default:
		return wire.ErrMalformed.Because("mode must be continue, with_message, retry, from_checkpoint or branch")
	}
	switch {
	case o.CommandID != "" && chunk.CheckID(o.CommandID) != nil:
		return chunk.CheckID(o.CommandID)
	case o.RunID != "" && o.Mode != chunk.ModeContinue:
		return wire.ErrMalformed.Because("runId is only allowed in mode continue")
	case o.CheckpointID != "" && o.Mode != chunk.ModeFromCheckpoint:
		return wire.ErrMalformed.Because("checkpointId is only allowed in modes from_checkpoint and branch")
	case o.CheckpointID == "" && o.Mode == chunk.ModeFromCheckpoint:
		return wire.ErrMalformed.Because("mode from_checkpoint needs checkpointId")
	case o.Message == nil && o.Mode == chunk.ModeWithMessage:
		return ErrNoMessage.Because("mode with_message needs a message")
	case o.Message == nil:
		return nil
	case o.Mode == chunk.ModeContinue || o.Mode == chunk.ModeRetry:
		return wire.ErrMalformed.Because("mode " + o.Mode + " takes no message")
	case o.Message.Role != chunk.RoleUser:
		return wire.ErrMalformed.Because("the message's role must be user")
	case len(o.Message.Parts) == 0:
		return ErrNoMessage.Because("the message is empty")
	}
	return nil
}

// resumePatience is how long [Resume] waits for its run to begin.
const resumePatience = 2 * time.Second

// Resume continues a session. It returns when the run has begun, or when it is clear
// that there will be none. Errors: [spool.ErrNotFound] for an unknown session,
// [ErrNothingToResume], [ErrNoSuchCheckpoint], a [*BusyError], [spool.ErrQuota], [wire.ErrMalformed] and
// [ErrNoMessage] for invalid options, and the store's.
func Resume(ctx context.Context, d *Deps, session string, o ResumeOptions) (*Settled, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	g, err := d.visitRoot(ctx, session)
	if err != nil {
		return nil, err
	}
	var r resumption
	decide := func(f *fold.Fold) (err error) {
		r, err = d.resumption(f, o)
		return err
	}
	if err := g.View(ctx, decide); err != nil {
		return nil, err
	}
	if r.stop { // it waits for answers; that pause is ended first
		if err := g.CheckQuota(ctx, spool.Row{}); err != nil {
			return nil, err
		}
		if _, err := Stop(ctx, d, session, StopOptions{}); err != nil {
			return nil, err
		}
		if g, err = d.visitRoot(ctx, session); err != nil {
			return nil, err
		}
		if err := g.View(ctx, decide); err != nil {
			return nil, err
		}
		if r.stop {
			return nil, &BusyError{Session: session}
		}
	}
	switch {
	case r.repeated:
	case r.at != nil:
		err = r.rollBack(ctx, &g)
	default:
		err = g.command(ctx, spool.Row{}, r.chunks...)
	}
	if err != nil {
		return nil, err
	}
	s := &Settled{Session: session}
	_, err = s.await(ctx, g, resumePatience, func(f *fold.Fold) error {
		v := f.Verdict(r.id)
		if err := r.first(f); err != nil {
			return err // another request was first with its id
		}
		s.take(f)
		s.RunID = v.RunID
		s.pend(v.State == fold.VerdictWaiting)
		if v.State == fold.VerdictRefused {
			return refused(f, v.Code)
		}
		return nil
	})
	return s, err
}

// refused is the error of a resume whose command was refused.
func refused(f *fold.Fold, code string) error {
	switch code {
	case fold.RefusedBusy:
		return busy(f)
	case fold.RefusedNothingToResume:
		return nothingToResume(f)
	}
	return ErrRefused.Because("the command was refused: "+code).With(f.Session, nil)
}

// resumption says what a resume does.
type resumption struct {
	id       string // the command whose verdict counts
	repeated bool
	stop     bool // a stop must first end the pause
	chunks   []chunk.Chunk

	at     *fold.Checkpoint // of a rewind
	resume *chunk.ResumeRequested
	asks   []string // digests of a command that has a client's id, or a message's
}

// first fails with [chunk.ErrIDConflict] if the log has another command of this id.
func (r *resumption) first(f *fold.Fold) error {
	if r.asks == nil {
		return nil
	}
	_, err := known(f, r.id, r.asks...)
	return err
}

func (d *Deps) resumption(f *fold.Fold, o ResumeOptions) (resumption, error) {
	if o.CommandID = commandOf(f, o.CommandID); o.CommandID != "" {
		if repeated, err := known(f, o.CommandID, o.digests(f, o.CommandID)...); repeated {
			return resumption{id: o.CommandID, repeated: true}, err
		}
	}
	if o.Message != nil {
		if err := checkMessageID(f, o.Message.ID); err != nil {
			return resumption{}, err
		}
	}
	r, err := o.resumption(f)
	if err == nil && !r.repeated && !r.stop && (o.CommandID != "" || o.Message != nil) {
		r.asks = o.digests(f, r.id)
		if _, rewound := r.chunks[0].(*chunk.HistoryRewound); rewound {
			r.asks = []string{fold.Digest(r.chunks[0])}
		}
	}
	return r, err
}

func (o ResumeOptions) resumption(f *fold.Fold) (resumption, error) {
	switch o.Mode {
	case chunk.ModeWithMessage:
		return withMessage(f, o)
	case chunk.ModeRetry:
		return retry(f, o)
	case chunk.ModeFromCheckpoint:
		return fromCheckpoint(f, o)
	}
	return continued(f, o)
}

func continued(f *fold.Fold, o ResumeOptions) (resumption, error) {
	if run := f.Interrupted(); run != nil && (o.RunID == "" || o.RunID == run.ID) {
		r := resumption{id: cmp.Or(o.CommandID, "continue-"+hash(run.ID))}
		r.chunks = []chunk.Chunk{&chunk.ResumeRequested{CommandID: r.id, Mode: o.Mode, Target: run.ID}}
		return r, nil
	}
	if c := f.Continue; c != nil && c.Mode == chunk.ModeContinue {
		return resumption{id: c.ID, repeated: true}, nil
	}
	if t := f.LastTurn(); t != nil {
		for i := len(t.Runs) - 1; i > 0; i-- {
			run, before := t.Runs[i], t.Runs[i-1]
			if run.Mode == chunk.ModeContinue && len(run.Commands) > 0 && (o.RunID == before.ID || o.RunID == "" && i == len(t.Runs)-1) {
				return resumption{id: run.Commands[0], repeated: true}, nil
			}
		}
	}
	if f.Live() {
		return resumption{}, busy(f)
	}
	return resumption{}, nothingToResume(f)
}

func withMessage(f *fold.Fold, o ResumeOptions) (resumption, error) {
	r, m, err := numberedResume(f, o)
	if r.repeated {
		return r, err
	}
	if f.Live() {
		return r, busy(f)
	}
	if err := checkNewID(f, m.Message.ID); err != nil {
		return r, err
	}
	r.chunks = []chunk.Chunk{&chunk.ResumeRequested{CommandID: r.id, Mode: o.Mode, WithMessage: true}, m}
	return r, nil
}

func fromCheckpoint(f *fold.Fold, o ResumeOptions) (resumption, error) {
	at := f.Checkpoint(o.CheckpointID)
	if at == nil {
		return resumption{}, ErrNoSuchCheckpoint.With(f.Session, nil)
	}
	r, m, err := numberedResume(f, o)
	if r.repeated {
		return r, err
	}
	if f.Live() {
		return r, busy(f)
	}
	if r.stop = f.Asks(); r.stop {
		return r, nil
	}
	r.rollTo(at, o.Mode)
	if m != nil {
		r.resume.WithMessage = true
		r.chunks = append(r.chunks, m)
	}
	return r, nil
}

const retryID = "retry-"

// retry rewinds to the last checkpoint of a turn that broke off or, if it has none, to
// the user's message.
func retry(f *fold.Fold, o ResumeOptions) (resumption, error) {
	t, again := f.LastTurn(), latest(f)
	broken := f.Status == chunk.StatusFailed || f.Interrupted() != nil ||
		f.Status == chunk.StatusEnded && (f.Reason == string(chunk.OutcomeStopped) || f.Reason == string(chunk.OutcomeLimit))
	switch {
	case o.CommandID == "" && strings.HasPrefix(again, retryID) && commandid.Reserved(again) && (f.Live() || !broken):
		return resumption{id: again, repeated: true}, nil
	case f.Live():
		return resumption{}, busy(f)
	case !broken || t == nil:
		return resumption{}, nothingToResume(f)
	}
	r := resumption{id: cmp.Or(o.CommandID, retryID+hash(t.LastRun().ID))}
	i := slices.IndexFunc(f.Messages, func(m *chunk.Message) bool { return m.ID == t.MessageID })
	asked := i > 0 && f.Messages[i-1].Role == chunk.RoleUser
	at := f.TurnCheckpoint(t)
	if at == nil && !asked {
		at = f.Checkpoint(t.From) // the turn began there, without a message
	}
	if at != nil {
		r.rollTo(at, o.Mode)
		return r, nil
	}
	for i--; i >= 0 && f.Messages[i].Role != chunk.RoleUser; i-- {
	}
	if i < 0 {
		return resumption{}, nothingToResume(f)
	}
	r.chunks = []chunk.Chunk{&chunk.HistoryRewound{CommandID: r.id, AfterMessageID: f.Messages[i].ID, Trigger: "regenerate"}}
	return r, nil
}

// latest is the id of the command that opened the latest turn, or will.
func latest(f *fold.Fold) string {
	if n := len(f.Waiting); n > 0 {
		return f.Waiting[n-1].ID
	}
	if t := f.LastTurn(); t != nil && f.Rolled == "" {
		return t.ID
	}
	return f.Rolled
}

// numberedResume returns the command of a resume that opens a turn, and its message, if
// it has one. If neither the caller nor the message gives a key, the key is made from
// the request and from how often it was made before.
func numberedResume(f *fold.Fold, o ResumeOptions) (r resumption, message *chunk.UserMessage, err error) {
	content, named := "", false
	if o.Message != nil {
		content, named = messageContent(o.Message), o.Message.ID != ""
	}
	switch key := "resume-" + hash(o.Mode, o.CheckpointID, content); {
	case o.CommandID != "":
		r.id = o.CommandID
	case named:
		r.id = "resume-" + hash(o.Mode, o.CheckpointID, o.Message.ID)
		r.repeated, err = known(f, r.id, o.digests(f, r.id)...)
	default:
		last := ""
		for n := 1; r.id == ""; n++ {
			id := key + "-" + strconv.Itoa(n)
			if f.Verdict(id).State == fold.VerdictUnknown {
				r.id = id
				break
			}
			last = id
		}
		if v := f.Verdict(last); last != "" && (v.State == fold.VerdictWaiting || f.Rolled == last || v.RunID != "" && v.RunID == f.LastTurn().Runs[0].ID) {
			r.id, r.repeated = last, true
		}
	}
	if o.Message == nil {
		return r, nil, err
	}
	return r, o.said(f, r.id), err
}

// said is the message of a resume. Its command is the message's, unless another command
// has that id already, as that of a message to which the session was rewound.
func (o *ResumeOptions) said(f *fold.Fold, resume string) *chunk.UserMessage {
	m := *o.Message
	id := commandOf(f, m.ID)
	if id == "" || id != m.ID || f.Verdict(id).State != fold.VerdictUnknown {
		id = commandid.New("m", resume, m.ID)
	}
	if m.ID == "" || chunk.CheckID(m.ID) != nil {
		m.ID = id
	}
	return &chunk.UserMessage{CommandID: id, Message: m, WhenBusy: chunk.BusyReject}
}

// digests are those of the commands that the same resume may have become.
func (o *ResumeOptions) digests(f *fold.Fold, id string) []string {
	digest := fold.Digest(&chunk.ResumeRequested{Mode: o.Mode, CheckpointID: o.CheckpointID})
	switch {
	case o.Message != nil:
		digest = fold.DigestWith(digest, o.said(f, id))
	case o.Mode == chunk.ModeRetry && strings.HasPrefix(f.Asked[id], "regenerate/"):
		return []string{f.Asked[id]}
	}
	return []string{digest}
}

// messageContent has the fields that two equal messages have in common.
func messageContent(m *chunk.Message) string {
	content := m.Text()
	for _, part := range m.Parts {
		if part.Type != chunk.PartText {
			content += "\x00" + part.URL + "\x00" + string(part.Data)
		}
	}
	return content
}

// nothingToResume returns [ErrNothingToResume] with a hint about what the session waits
// for.
func nothingToResume(f *fold.Fold) error {
	e := *ErrNothingToResume
	if f.Asks() {
		e.Hint = "the run waits for answers to its child agents' calls; answer those"
		if calls := f.PendingCalls(); len(calls) > 0 {
			c := calls[0]
			e.Hint = fmt.Sprintf("the run waits for the result of call %s: POST …/tools/%s", c.CallID, c.CallID)
			if c.Approval != nil {
				e.Hint = fmt.Sprintf("the run waits for an approval of call %s: POST …/approvals/%s", c.CallID, c.Approval.ID)
			}
		}
	}
	return e.With(f.Session, nil)
}
