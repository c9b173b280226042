package chat

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// decision is the result of reading a POST: commands to append, if any, and the
// commands whose run the response streams.
type decision struct {
	chunks []chunk.Chunk
	follow []string // command ids; the response streams the first one's run that exists
	asks   string   // the digest of a message whose command has a client's id
}

func (d *Deps) post(ctx context.Context, p Params) (*Response, error) {
	session := cmp.Or(p.Session, p.Body.Session)
	if session == "" {
		session = d.Logs.NewID()
	}
	if err := CheckSession(session); err != nil {
		return nil, err
	}
	g, err := d.find(ctx, session)
	if err != nil {
		return nil, err
	}
	var dec decision
	continues := false
	err = g.View(ctx, func(f *fold.Fold) (err error) {
		dec, err = d.decide(f, p.Body)
		continues = !d.ContentReplay && elsewhere(f, p.Body)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(dec.chunks) > 0 {
		row := spool.Row{Agent: d.Agent, Principal: p.Principal, Title: fold.Title(p.Body.Message)}
		if err := g.command(ctx, row, dec.chunks...); err != nil {
			return nil, err
		}
		if err := g.View(ctx, dec.verdict); err != nil {
			return nil, err
		}
	}
	a := attach{d: d, g: g, as: &p.Profile}
	if continues {
		a.as = a.continuing()
	}
	return &Response{
		Session:     session,
		Incarnation: g.At.Incarnation,
		View:        ViewSegment,
		Stream:      a.segment(dec.follow, 0),
		RunID:       runID(session, dec.follow[0]),
	}, nil
}

// verdict returns the error of a decision that was appended. Another request may have been
// first with its id.
func (dec *decision) verdict(f *fold.Fold) error {
	if dec.asks != "" {
		if _, err := known(f, dec.follow[0], dec.asks); err != nil {
			return err
		}
	}
	return refusal(f, dec.follow)
}

// refusal returns the error of a decision that the log refused as a whole.
func refusal(f *fold.Fold, ids []string) error {
	var err error
	for _, id := range ids {
		v := f.Verdict(id)
		if v.State != fold.VerdictRefused {
			return nil
		}
		switch v.Code {
		case fold.RefusedBusy:
			err = busy(f)
		case fold.RefusedNotPending:
			err = ErrNothingToContinue.With(f.Session, nil)
		case fold.RefusedUnknown:
			err = ErrNoSuchMessage.With(f.Session, nil)
		default:
			err = ErrRefused.Because("the command was refused: "+v.Code).With(f.Session, nil)
		}
	}
	return err
}

func busy(f *fold.Fold) error {
	e := &BusyError{Session: f.Session}
	if run := f.OpenRun(); run != nil {
		e.RunID = run.ID
	}
	return e
}

func (d *Deps) decide(f *fold.Fold, b *wire.Body) (decision, error) {
	switch {
	case b.Trigger == wire.TriggerRegenerate:
		return d.regenerate(f, b)
	case b.Message != nil:
		return d.submit(f, b)
	case b.Answering():
		return d.answers(f, b)
	case b.MessageID != "":
		return decision{}, ErrNothingToContinue.With(f.Session, nil)
	}
	return decision{}, ErrNoMessage.With(f.Session, nil)
}

// submit is a new message, or an edit of an earlier one.
func (d *Deps) submit(f *fold.Fold, b *wire.Body) (decision, error) {
	if len(b.Message.Parts) == 0 {
		return decision{}, ErrNoMessage.Because("the message is empty").With(f.Session, nil)
	}
	if (b.Replace != nil || b.State != nil) && !d.AllowOverrides {
		return decision{}, ErrOverride.With(f.Session, nil)
	}
	if b.MessageID != "" {
		if m := f.Message(b.MessageID); m != nil && m.Role == chunk.RoleUser {
			return d.edit(f, b)
		}
	}
	id := cmp.Or(commandOf(f, b.CommandID), commandOf(f, b.Message.ID))
	if id == "" {
		id = d.Logs.NewID()
	}
	m := *b.Message
	if m.ID == "" || chunk.CheckID(m.ID) != nil {
		m.ID = id
	}
	said := &chunk.UserMessage{CommandID: id, Message: m}
	asks := fold.Digest(said)
	if repeated, err := known(f, id, asks); repeated {
		return decision{follow: []string{id}}, cmp.Or(err, refusal(f, []string{id}))
	}
	if err := checkMessageID(f, m.ID); err != nil {
		return decision{}, err
	}
	if b.Replace == nil {
		if err := checkNewID(f, m.ID); err != nil {
			return decision{}, err
		}
	}
	when := whenBusy(b.WhenBusy, chunk.BusyReject)
	var chunks []chunk.Chunk
	if b.Replace != nil || b.State != nil {
		when = chunk.BusyReject // history cannot be replaced during a run, and then the message is refused, too
		r := &chunk.HistoryReplaced{CommandID: "replace-" + hash(id), State: b.State}
		if b.Replace != nil {
			list := slices.Clone(*b.Replace)
			for i := range list {
				if list[i].ID == "" {
					list[i].ID = id + "-" + strconv.Itoa(i)
				}
			}
			r.Messages = &list
		}
		chunks = append(chunks, r)
	}
	said.WhenBusy = when
	chunks = append(chunks, said)
	return decision{chunks: chunks, follow: []string{id}, asks: asks}, busyUnless(f, when)
}

// edit replaces an earlier user message and everything after it. It is a repeat if the
// turn that the same edit opened is still the last one. So editing back and forth
// between two texts makes new edits.
func (d *Deps) edit(f *fold.Fold, b *wire.Body) (decision, error) {
	id, repeated := numbered(f, "edit-"+hash(b.MessageID, messageContent(b.Message)))
	if repeated {
		return decision{follow: []string{id}}, nil
	}
	m := *b.Message
	m.ID = b.MessageID
	i := slices.IndexFunc(f.Messages, func(m *chunk.Message) bool { return m.ID == b.MessageID })
	after := ""
	if i > 0 {
		after = f.Messages[i-1].ID
	}
	when := whenBusy(b.WhenBusy, chunk.BusyInterrupt)
	return decision{
		chunks: []chunk.Chunk{
			&chunk.HistoryRewound{CommandID: "rewind-" + id, AfterMessageID: after, Trigger: "edit", WhenBusy: when},
			&chunk.UserMessage{CommandID: id, Message: m, WhenBusy: when},
		},
		follow: []string{id},
	}, busyUnless(f, when)
}

// regenerate answers the user message before an assistant message again.
func (d *Deps) regenerate(f *fold.Fold, b *wire.Body) (decision, error) {
	key := "regen-" + hash(b.MessageID)
	if b.MessageID != "" && f.Message(b.MessageID) == nil {
		if id, repeated := numbered(f, key); repeated {
			return decision{follow: []string{id}}, nil
		}
	}
	i := len(f.Messages)
	if b.MessageID != "" {
		if at := slices.IndexFunc(f.Messages, func(m *chunk.Message) bool { return m.ID == b.MessageID }); at >= 0 {
			i = at
			if f.Messages[at].Role == chunk.RoleUser {
				i = at + 1
			}
		}
	}
	for i > 0 && f.Messages[i-1].Role != chunk.RoleUser {
		i--
	}
	if i == 0 {
		return decision{}, ErrNoSuchMessage.With(f.Session, nil)
	}
	if b.MessageID == "" && i < len(f.Messages) {
		key = "regen-" + hash(f.Messages[len(f.Messages)-1].ID)
	}
	id, repeated := numbered(f, key)
	if repeated && f.Live() {
		return decision{follow: []string{id}}, nil
	}
	if repeated {
		id = nextNumber(f, key)
	}
	when := whenBusy(b.WhenBusy, chunk.BusyInterrupt)
	return decision{
		chunks: []chunk.Chunk{&chunk.HistoryRewound{CommandID: id, AfterMessageID: f.Messages[i-1].ID, Trigger: "regenerate", WhenBusy: when}},
		follow: []string{id},
	}, busyUnless(f, when)
}

func busyUnless(f *fold.Fold, when chunk.WhenBusy) error {
	if when == chunk.BusyReject && f.Live() {
		return busy(f)
	}
	return nil
}

// numbered returns the command id for the next use of key, or, if the key's
// latest use opened the session's latest turn, that one.
func numbered(f *fold.Fold, key string) (id string, repeated bool) {
	id = nextNumber(f, key)
	n, _ := strconv.Atoi(id[len(key)+1:])
	if n == 1 {
		return id, false
	}
	previous := key + "-" + strconv.Itoa(n-1)
	if v := f.Verdict(previous); v.State == fold.VerdictRefused {
		return id, false
	}
	latest := ""
	if t := f.LastTurn(); t != nil {
		latest = t.ID
	}
	if k := len(f.Waiting); k > 0 {
		latest = f.Waiting[k-1].ID
	}
	if latest == previous {
		return previous, true
	}
	return id, false
}

func nextNumber(f *fold.Fold, key string) string {
	for n := 1; ; n++ {
		id := key + "-" + strconv.Itoa(n)
		if f.Verdict(id).State == fold.VerdictUnknown {
			return id
		}
	}
}

// answers are outputs and decisions for pending calls.
func (d *Deps) answers(f *fold.Fold, b *wire.Body) (decision, error) {
	var dec decision
	var known []string
	for _, a := range b.Answers {
		owner, t, a := locate(f, a)
		id := AnswerID(a)
		if f.Verdict(id).State == fold.VerdictAccepted {
			known = append(known, id)
			continue
		}
		if !waitsFor(owner, t, a) {
			continue
		}
		if err := d.fits(owner, t, a); err != nil {
			return decision{}, err
		}
		dec.follow = append(dec.follow, id)
		dec.chunks = append(dec.chunks, answerChunk(a, id))
	}
	if len(dec.chunks) > 0 {
		return dec, nil
	}
	// It is a repeat if the run that accepted the answers is still the last one.
	if t := f.LastTurn(); t != nil {
		for _, id := range known {
			if v := f.Verdict(id); v.RunID == t.LastRun().ID || v.RunID == "" && f.Status == chunk.StatusPaused {
				return decision{follow: known}, nil
			}
		}
	}
	return decision{}, ErrNothingToContinue.With(f.Session, nil)
}

// AnswerID is the command id of an answer: the first answer to a call or an approval
// counts, on whichever route it came.
func AnswerID(a wire.Answer) string {
	if a.ApprovalID != "" {
		return "approval-" + hash(a.ApprovalID)
	}
	if chunk.IsChild(a.Agent) {
		return "result-" + hash(chunk.ChildCallID(a.Agent, a.CallID))
	}
	return "result-" + hash(a.CallID)
}

func answerChunk(a wire.Answer, id string) chunk.Chunk {
	if a.ApprovalID != "" {
		return &chunk.ToolApprovalResponse{Base: chunk.Base{AgentID: a.Agent}, CommandID: id, ApprovalID: a.ApprovalID, Approved: a.Approved, Reason: a.Reason}
	}
	return &chunk.ToolResultSubmitted{Base: chunk.Base{AgentID: a.Agent}, CommandID: id, ToolCallID: a.CallID, Result: a.Output, Error: a.Error}
}

func whenBusy(w, otherwise chunk.WhenBusy) chunk.WhenBusy {
	if w == "" {
		return otherwise
	}
	return w
}

// runID names a session and, by a command, its run.
func runID(session, command string) string { return session + "~" + hash(command) }

// SplitRunID splits a run id into session and command. An id of another form is a
// session id.
func SplitRunID(id string) (session, run string) {
	i := strings.LastIndexByte(id, '~')
	if i <= 0 || len(id)-i != 17 {
		return id, ""
	}
	if _, err := hex.DecodeString(id[i+1:]); err != nil {
		return id, ""
	}
	return id[:i], id[i+1:]
}
