package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire/aisdk"
)

// Snapshot is a session at one position of its log, for a client that builds what it
// shows from it and then attaches ([AttachOptions.Snapshot]).
type Snapshot struct {
	fold.Snapshot
	Messages  []aisdk.UIMessage `json:"messages"`
	Timestamp int64             `json:"timestamp"` // Unix milliseconds at which it was made
	Title     string            `json:"title"`
	Waiting   []WaitingMessage  `json:"waiting"` // not among Messages yet
}

// WaitingMessage is a message that waits behind a run or a pause.
type WaitingMessage struct {
	aisdk.UIMessage
	WhenBusy chunk.WhenBusy `json:"whenBusy"`
}

// Position is the snapshot's position in the log.
func (s *Snapshot) Position() spool.Cursor {
	return spool.Cursor{Seq: s.StreamSequence, Incarnation: s.Incarnation}
}

// UIMessage is a message as chat clients read it, and UIPart one part of it.
type (
	UIMessage = aisdk.UIMessage
	UIPart    = aisdk.UIPart
)

// PendingCall is a call that waits for somebody's answer.
type PendingCall struct {
	ApprovalID string // for [Session.Decide]; "" if the client executes the call
	CallID     string // for [Session.SubmitResult]
	Tool       string
	Input      json.RawMessage
}

// Pending returns the calls that a paused session waits for. Those of child agents are
// among them if the snapshot was asked for with Agents: flatten.
func (s *Snapshot) Pending() (list []PendingCall) {
	if s.Status != chunk.StatusPaused {
		return nil
	}
	for i := range s.Messages {
		for _, p := range s.Messages[i].Parts {
			c := PendingCall{CallID: p.ToolCallID, Tool: p.Tool(), Input: p.Input}
			switch {
			case !p.IsTool() || p.ProviderExecuted:
				continue
			case p.State == aisdk.StateApprovalRequested && p.Approval != nil:
				c.ApprovalID = p.Approval.ID
			case p.State != aisdk.StateInputAvailable:
				continue
			}
			list = append(list, c)
		}
	}
	return list
}

// SnapshotOptions select a snapshot. The zero value is the present.
type SnapshotOptions struct {
	Checkpoint string // id of the checkpoint to show
	Agents     string // how child agents are shown: nest, summary or flatten; "": the server's default
}

// Snapshot returns the session's state. Of a turn that still runs, the assistant's
// message is left out, because streams replay it, unless the server says otherwise.
func (s *Session) Snapshot(ctx context.Context, o SnapshotOptions) (*Snapshot, error) {
	return get[Snapshot](ctx, s.c, s.path("snapshot"), set("checkpoint", o.Checkpoint, "agents", o.Agents))
}

// PageOptions select a page of a list.
type PageOptions struct {
	Offset int
	Limit  int    // 0: 50; at most 1000
	Newest bool   // checkpoints: newest first
	Agents string // messages: see [SnapshotOptions]
}

func (o *PageOptions) query() url.Values {
	q := set("agents", o.Agents)
	if o.Offset != 0 {
		q.Set("offset", strconv.Itoa(o.Offset))
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Newest {
		q.Set("order", "desc")
	}
	return q
}

// MessagesPage is a page of a history, oldest first.
type MessagesPage struct {
	Messages []aisdk.UIMessage `json:"messages"`
	HasMore  bool              `json:"hasMore"`
	Total    int               `json:"total"`
}

// Messages returns a page of the session's history.
func (s *Session) Messages(ctx context.Context, o PageOptions) (*MessagesPage, error) {
	return get[MessagesPage](ctx, s.c, s.path("messages"), o.query())
}

// Checkpoint is a checkpoint and its place in the history.
type Checkpoint struct {
	fold.Checkpoint
	TurnID    string `json:"turnId"`
	MessageID string `json:"messageId"`
	StepIndex int    `json:"stepIndex"` // among that message's steps; -1: the history has lost it
}

// CheckpointsPage is a page of checkpoints.
type CheckpointsPage struct {
	Items   []Checkpoint `json:"items"`
	Total   int          `json:"total"`
	HasMore bool         `json:"hasMore"`
}

// Checkpoints returns a page of the session's checkpoints.
func (s *Session) Checkpoints(ctx context.Context, o PageOptions) (*CheckpointsPage, error) {
	return get[CheckpointsPage](ctx, s.c, s.path("checkpoints"), o.query())
}

// LogInfo is the state of a session's log.
type LogInfo struct {
	Session     string       `json:"session"`
	Status      chunk.Status `json:"status"`
	Latest      uint64       `json:"latestSequence"`
	Total       uint64       `json:"totalChunks"` // all that were ever written; 0 for a child
	TraceFloor  uint64       `json:"traceFloor"`
	Floor       uint64       `json:"floor"`
	Incarnation uint64       `json:"incarnation"`
	Error       string       `json:"error"`
	Waiting     int          `json:"waiting"` // commands that will open a run
}

// LogInfo returns the state of the session's log.
func (s *Session) LogInfo(ctx context.Context) (*LogInfo, error) {
	return get[LogInfo](ctx, s.c, "stream/"+url.PathEscape(s.id)+"/info", nil)
}

// Blob returns a large value that a record refers to by its hash.
func (s *Session) Blob(ctx context.Context, hash string) ([]byte, error) {
	data, err := get[[]byte](ctx, s.c, s.path("blobs", hash), nil)
	if err != nil {
		return nil, err
	}
	return *data, nil
}

// Delete deletes the session with everything in it. A session that does not exist is
// spool.ErrNotFound: also if an earlier attempt of this call has deleted it.
func (s *Session) Delete(ctx context.Context) error {
	return s.c.call(ctx, request{method: http.MethodDelete, path: s.path(), session: s.id}, nil)
}

// SessionInfo is one line of a listing.
type SessionInfo struct {
	spool.SessionInfo
	StreamSequence uint64 `json:"streamSequence"`
	Incarnation    uint64 `json:"incarnation"`
	Due            int64  `json:"due,omitempty"` // Unix milliseconds at which a runner claims it; 0 for never
}

// SessionsOptions select a page of a listing.
type SessionsOptions struct {
	Status  chunk.Status // "" for all
	Expired bool         // only those that the server's policy deletes next, for their age
	Limit   int          // at most 1000; 0: the server's default
	After   string       // the page before this one: its NextAfter
}

// SessionsPage is a page of a listing, newest first. With Expired, a page that is not the
// last one may have fewer sessions than asked for, or none.
type SessionsPage struct {
	Sessions  []SessionInfo `json:"sessions"`
	NextAfter string        `json:"nextAfter"` // "" on the last page
}

// Sessions returns a page of the caller's sessions.
func (c *Client) Sessions(ctx context.Context, o SessionsOptions) (*SessionsPage, error) {
	q := set("status", string(o.Status), "after", o.After)
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Expired {
		q.Set("expired", "1")
	}
	return get[SessionsPage](ctx, c, "sessions", q)
}

// AllSessions returns the caller's sessions, newest first, page by page. The options'
// Limit is that of a page.
func (c *Client) AllSessions(ctx context.Context, o SessionsOptions) iter.Seq2[SessionInfo, error] {
	return func(yield func(SessionInfo, error) bool) {
		for {
			page, err := c.Sessions(ctx, o)
			if err != nil {
				yield(SessionInfo{}, err)
				return
			}
			for _, s := range page.Sessions {
				if !yield(s, nil) {
					return
				}
			}
			if o.After = page.NextAfter; o.After == "" {
				return
			}
		}
	}
}

// set returns a query of the pairs whose value is not empty.
func set(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}
