package frontend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/aisdk"
)

// Snapshot is a session at one position of its log, in the form that chat clients read.
// A client builds its page from it and attaches with its StreamSequence as position.
type Snapshot struct {
	fold.Snapshot
	Messages  []aisdk.UIMessage `json:"messages"`
	Timestamp int64             `json:"timestamp"` // Unix milliseconds at which it was made
	Title     string            `json:"title,omitempty"`
	// Waiting are the messages that wait behind a run or a pause, in the order in
	// which they will be answered. They are not among Messages yet.
	Waiting []WaitingMessage `json:"waiting,omitempty"`
	// Then is how the session stood at the position, in the snapshot of one.
	Then *Then `json:"then,omitempty"`

	children children
}

// Then is how a session stood: see [fold.Snapshot].
type Then struct {
	Status chunk.Status `json:"status"`
	Reason string       `json:"reason,omitempty"`
	Code   string       `json:"code,omitempty"`
}

// WaitingMessage is a message that waits for its turn.
type WaitingMessage struct {
	aisdk.UIMessage
	WhenBusy chunk.WhenBusy `json:"whenBusy"` // queue, steer or interrupt
}

// SnapshotParams select a snapshot.
type SnapshotParams struct {
	Session string
	// Checkpoint is the id of the checkpoint to show; "" shows the present. The snapshot
	// of a checkpoint has the status ended and the reason [ReasonCheckpoint].
	Checkpoint string
	// At is the position to show, instead of a checkpoint; 0 shows the present. The snapshot
	// has the status ended and the reason [ReasonPosition]; Snapshot.Then says what they were.
	At uint64
	// IncludePartialContent says whether the snapshot contains a live turn's message;
	// nil: only without Deps.ContentReplay.
	IncludePartialContent *bool
	// SubAgents says how sub-agents are shown; "": as set in Deps.AISDK.
	SubAgents aisdk.SubAgents
}

// PartialSuffix ends the id of a message that is still being written.
const PartialSuffix = chat.PartialSuffix

// BuildSnapshot builds a snapshot. Errors: [spool.ErrNotFound] for an unknown
// session or checkpoint, and the store's.
func BuildSnapshot(ctx context.Context, d *Deps, p SnapshotParams) (*Snapshot, error) {
	g, err := d.Visit(ctx, p.Session)
	if err != nil {
		return nil, err
	}
	include := !d.ContentReplay
	if p.IncludePartialContent != nil {
		include = *p.IncludePartialContent
	}
	s := &Snapshot{Timestamp: d.Logs.Now().UnixMilli()}
	waiting, err := s.load(ctx, g, p, include)
	if err != nil {
		return nil, err
	}
	s.Snapshot.Incarnation = g.At.Incarnation
	convert, lacking := d.convert(ctx, g, p.SubAgents)
	s.Messages = s.children.shown(s.Snapshot.Messages, convert)
	for _, w := range waiting {
		s.Waiting = append(s.Waiting, WaitingMessage{aisdk.ConvertToUIMessages([]chunk.Message{*w.Message}, convert)[0], w.WhenBusy})
	}
	if err := lacking(); err != nil {
		return nil, err
	}
	s.Title, err = d.title(ctx, g, s.Snapshot.Messages)
	return s, err
}

// load reads the session's present state, or its state at a checkpoint, and returns the
// commands whose messages wait.
func (s *Snapshot) load(ctx context.Context, g chat.Session, p SnapshotParams, include bool) (waiting []*fold.Command, err error) {
	if p.At != 0 && p.Checkpoint != "" {
		return nil, chunk.ErrInvalid.Because("a snapshot is of a position or of a checkpoint, not of both")
	}
	at := p.At
	if at == 0 {
		err = g.View(ctx, func(f *fold.Fold) error {
			if p.Checkpoint == "" {
				s.take(f, include)
				waiting = waitingMessages(f)
				return nil
			}
			for _, c := range f.Checkpoints {
				if c.ID == p.Checkpoint {
					at = c.Seq
					return nil
				}
			}
			return spool.ErrNotFound.Because("there is no such checkpoint").With(g.ID, nil)
		})
	}
	if err != nil || at == 0 {
		return waiting, err
	}
	f, err := g.FoldAt(ctx, at)
	if err != nil {
		return nil, err
	}
	reason := ReasonCheckpoint
	if p.At != 0 {
		reason = ReasonPosition
	}
	s.takePast(f, reason)
	return nil, nil
}

// The reasons in snapshots of the past: of a checkpoint, and of any other position.
const (
	ReasonCheckpoint = "checkpoint"
	ReasonPosition   = "position"
)

// takePast takes the state at a checkpoint or another position. Nothing follows on it,
// although its run may have been open then: a client has nothing to attach to.
func (s *Snapshot) takePast(f *fold.Fold, reason string) {
	s.Snapshot = f.Snapshot(fold.SnapshotOptions{})
	if reason == ReasonPosition {
		s.Then = &Then{s.Status, s.Reason, s.Code}
	}
	s.Status, s.Reason, s.Code, s.Error = chunk.StatusEnded, reason, "", nil
	s.children = childrenOf(f, s.Snapshot.Messages)
}

// title is the session's title, for a child the beginning of its task.
func (d *Deps) title(ctx context.Context, g chat.Session, messages []chunk.Message) (string, error) {
	l, lists := d.Logs.Store().(spool.Lister)
	switch {
	case g.Child() && len(messages) > 0:
		return fold.Title(&messages[0]), nil
	case g.Child() || !lists:
		return "", nil
	}
	info, err := l.Session(ctx, g.ID)
	if err != nil && !errors.Is(err, spool.ErrNotFound) {
		return "", err
	}
	return info.Title, nil
}

func (s *Snapshot) take(f *fold.Fold, include bool) {
	s.Snapshot = f.Snapshot(fold.SnapshotOptions{OmitLive: !include})
	s.children = presentOf(f, s.Snapshot.Messages)
}

// waitingMessages returns the commands whose messages are not in the history yet.
func waitingMessages(f *fold.Fold) []*fold.Command {
	var list []*fold.Command
	for _, w := range f.Waiting {
		if w.Held && w.Message != nil && w.Rewind == nil && w != f.Next() {
			copied := *w // a waiting message never changes
			list = append(list, &copied)
		}
	}
	return list
}

// convert returns the options of a conversion, and a function that returns, after the
// conversion, the temporary error because of which a large value is shown as its
// reference.
func (d *Deps) convert(ctx context.Context, g chat.Session, agents aisdk.SubAgents) (o *aisdk.ConvertOptions, lacking func() error) {
	o = &aisdk.ConvertOptions{Options: d.AISDK}
	o.UI7 = false
	o.SubAgents = cmp.Or(agents, o.SubAgents, aisdk.Nest)
	var failed error
	o.Resolve = func(v json.RawMessage) (json.RawMessage, error) {
		resolved, err := g.Blob(ctx, v)
		if err != nil && !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, spool.ErrUnsupported) {
			failed = err
		}
		return resolved, err
	}
	return o, func() error { return failed }
}

// MessagesOptions select a page of a history.
type MessagesOptions struct {
	Offset int // number of messages to skip, from the oldest
	Limit  int // 0: 50; at most 1000
	// OmitReasoning and OmitToolResults leave out reasoning and tool results.
	OmitReasoning   bool
	OmitToolResults bool
	SubAgents       aisdk.SubAgents // how sub-agents are shown; "": as set in Deps.AISDK
	// GenerateID makes a message's id from its index in the history; nil keeps the ids.
	GenerateID func(index int, m *chunk.Message) string
}

// MessagesPage is a page of a history.
type MessagesPage struct {
	Messages []aisdk.UIMessage `json:"messages"`
	HasMore  bool              `json:"hasMore"`
	Total    int               `json:"total"`
}

// Messages returns a page of a session's history. With content replay the page does not
// contain a live turn's assistant message.
func Messages(ctx context.Context, d *Deps, session string, o MessagesOptions) (*MessagesPage, error) {
	if err := chat.CheckPage(o.Offset, o.Limit); err != nil {
		return nil, err
	}
	g, err := d.Visit(ctx, session)
	if err != nil {
		return nil, err
	}
	var (
		messages        []chunk.Message // of the page: no others are copied
		below           children
		from, to, total int
	)
	err = g.View(ctx, func(f *fold.Fold) error {
		all := f.ShownMessages(fold.SnapshotOptions{OmitLive: d.ContentReplay})
		total = len(all)
		from, to = chat.PageOf(total, o.Offset, o.Limit)
		for _, m := range all[from:to] {
			messages = append(messages, m.Clone())
		}
		below = presentOf(f, messages)
		return nil
	})
	if err != nil {
		return nil, err
	}
	convert, lacking := d.convert(ctx, g, o.SubAgents)
	convert.OmitReasoning, convert.OmitToolResults = o.OmitReasoning, o.OmitToolResults
	page := &MessagesPage{Messages: below.shown(messages, convert), HasMore: to < total, Total: total}
	if err := lacking(); err != nil {
		return nil, err
	}
	if o.GenerateID != nil {
		for i := range page.Messages {
			page.Messages[i].ID = o.GenerateID(from+i, &messages[i])
		}
	}
	return page, nil
}

// LoadAllUIMessages returns a session's whole history.
func LoadAllUIMessages(ctx context.Context, d *Deps, session string) ([]aisdk.UIMessage, error) {
	var all []aisdk.UIMessage
	for {
		page, err := Messages(ctx, d, session, MessagesOptions{Offset: len(all), Limit: 1000})
		if err != nil {
			return nil, fmt.Errorf("load messages: %w", err)
		}
		all = append(all, page.Messages...)
		if !page.HasMore || len(page.Messages) == 0 {
			return all, nil
		}
	}
}

// children are the sub-agents of a fold's messages.
type children struct {
	root    string
	of      map[string][]*aisdk.SubAgent // by message
	growing string                       // id of the message whose step is not over
}

// childrenOf returns the sub-agents of messages that were copied from a fold.
func childrenOf(f *fold.Fold, messages []chunk.Message) children {
	ids := make([]string, 0, len(messages))
	for i := range messages {
		if messages[i].Role == chunk.RoleAssistant {
			ids = append(ids, messages[i].ID)
		}
	}
	return children{root: f.Session, of: aisdk.SubAgentsOf(f, ids...)}
}

// presentOf is childrenOf for the present messages. The one that is still being written
// gets the id of a partial message.
func presentOf(f *fold.Fold, messages []chunk.Message) children {
	c := childrenOf(f, messages)
	open, turn := f.OpenRun() != nil, f.LastTurn()
	if turn == nil || !open && !strings.HasPrefix(turn.LastRun().Suspended, "awaiting_") {
		return c
	}
	for i := range messages {
		m := &messages[i]
		if m.ID != turn.MessageID {
			continue
		}
		if open {
			m.ID += PartialSuffix
			if list := c.of[turn.MessageID]; list != nil {
				c.of[m.ID] = list
			}
		}
		c.growing = m.ID
	}
	return c
}

// shown converts the messages.
func (c children) shown(messages []chunk.Message, o *aisdk.ConvertOptions) []aisdk.UIMessage {
	o.Children = c.get
	list := aisdk.ConvertToUIMessages(messages, o)
	for i := range messages {
		if c.growing != "" && messages[i].ID == c.growing {
			growing := *o
			growing.Live = true
			list[i] = aisdk.ConvertToUIMessage(&messages[i], &growing)
		}
	}
	return list
}

func (c children) get(m *chunk.Message) (string, []*aisdk.SubAgent) { return c.root, c.of[m.ID] }
