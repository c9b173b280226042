package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spool-run/spool/chunk"
)

// ErrCallOver is the error of a call's context once the call has its outcome.
var ErrCallOver = errors.New("tool: the call is over")

// Call identifies one call.
type Call struct {
	Session  string
	RunID    string
	Step     int
	ID       string // unique in the session
	Name     string // the tool's
	EffectID string // the same whenever this call is made again: use it to do the work once
}

// Host is what a running call talks to: the agent that dispatched it.
type Host interface {
	// Emit appends a chunk to the session's log. It fails with [ErrCallOver] if the
	// call is over.
	Emit(ctx context.Context, c chunk.Chunk) error
	// State returns the session's custom state as this step sees it; nil if
	// there is none.
	State() json.RawMessage
	// Update replaces the state by what change returns. Updates happen one after
	// the other. The difference is kept if the call succeeds.
	Update(ctx context.Context, change func(state json.RawMessage) (json.RawMessage, error)) error
}

// Context is the context of a running call. It ends when the run is stopped or the
// call's time is up. Its methods may be used from several goroutines.
type Context struct {
	context.Context
	call Call
	host Host
}

// NewContext makes the context of one call. A nil host keeps state in memory and
// drops what is emitted, for tests of tools.
func NewContext(ctx context.Context, call Call, host Host) Context {
	if host == nil {
		host = new(discard)
	}
	return Context{Context: ctx, call: call, host: host}
}

// Call returns which call this is.
func (c Context) Call() Call { return c.call }

// EmitOptions are the options of [Context.Emit]; nil for none.
type EmitOptions struct {
	ID        string // an event with the same name and id replaces the earlier one
	Transient bool   // shown to connected readers, not kept
}

// Emit sends an event of the application to everyone who watches the session.
// Without options it becomes part of the message.
func (c Context) Emit(name string, data any, o *EmitOptions) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("tool: event %s: %w", name, err)
	}
	said := &chunk.Custom{EventName: name, Data: raw}
	if o != nil {
		said.ID, said.Transient = o.ID, o.Transient
	}
	if said.ID == "" && !said.Transient {
		said.ToolCallID = c.call.ID
	}
	return c.host.Emit(c, said)
}

// Progress is a step of work to show while it lasts.
type Progress struct {
	ID      string // within the call; reports with the same id replace each other
	Parent  string // id of the report that this one belongs under
	Label   string
	State   string // pending, running, done or failed; "" is running
	Percent *float64
	Data    any
}

// Progress reports how far the call is.
func (c Context) Progress(p Progress) error {
	report := &chunk.Progress{ID: c.qualified(p.ID), Label: p.Label, State: p.State, Percent: p.Percent}
	if p.Parent != "" {
		report.Parent = c.qualified(p.Parent)
	}
	if report.State == "" {
		report.State = "running"
	}
	if p.Data != nil {
		raw, err := json.Marshal(p.Data)
		if err != nil {
			return fmt.Errorf("tool: progress: %w", err)
		}
		report.Data = raw
	}
	return c.host.Emit(c, report)
}

// EmitProgress sends a progress chunk that was made elsewhere, for example by the
// event manager of a wire. Its ids become the call's, as [Context.Progress] makes
// them.
func (c Context) EmitProgress(p *chunk.Progress) error {
	report := *p
	report.ID = c.qualified(p.ID)
	if p.Parent != "" {
		report.Parent = c.qualified(p.Parent)
	}
	return c.host.Emit(c, &report)
}

// qualified puts the call's id before one that is unique within the call, so that
// parallel calls of one tool are kept apart.
func (c Context) qualified(id string) string {
	if id == "" {
		return c.call.ID
	}
	return c.call.ID + "/" + id
}

// File adds a file to the message, for example an image that the call has made. Its
// URL may be a data URL.
func (c Context) File(url, mediaType, filename string) error {
	return c.host.Emit(c, &chunk.File{URL: url, MediaType: mediaType, Filename: filename})
}

// Cite adds a source to the message. The id is unique within the call.
func (c Context) Cite(id, url, title, mediaType string) error {
	return c.host.Emit(c, &chunk.Citation{SourceID: c.qualified(id), URL: url, Title: title, MediaType: mediaType})
}

// Preliminary shows a result before the call is done. The outcome replaces it.
func (c Context) Preliminary(value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("tool: preliminary result: %w", err)
	}
	return c.host.Emit(c, &chunk.ToolEnd{
		ToolCallID: c.call.ID, ToolName: c.call.Name, Result: raw, Success: true, Preliminary: true,
	})
}

// State returns the session's custom state as JSON; nil if there is none.
func (c Context) State() json.RawMessage { return c.host.State() }

// State returns the session's custom state as an S.
func State[S any](c Context) (S, error) {
	var s S
	raw := c.host.State()
	if len(raw) == 0 {
		return s, nil
	}
	err := json.Unmarshal(raw, &s)
	return s, err
}

// UpdateState changes the session's custom state: fn gets a draft and modifies
// it. What changed is recorded as RFC 6902 operations and is kept if the call
// succeeds. Members that S does not know stay as they are. If fn fails, nothing
// changes, and UpdateState returns the error.
func UpdateState[S any](c Context, fn func(draft *S) error) error {
	return c.host.Update(c, func(state json.RawMessage) (json.RawMessage, error) {
		var draft S
		if len(state) > 0 {
			if err := json.Unmarshal(state, &draft); err != nil {
				return nil, fmt.Errorf("tool: the state is no %T: %w", draft, err)
			}
		}
		before, err := json.Marshal(draft)
		if err != nil {
			return nil, err
		}
		if err := fn(&draft); err != nil {
			return nil, err
		}
		after, err := json.Marshal(draft)
		if err != nil {
			return nil, err
		}
		return mergeJSON(state, before, after)
	})
}

// discard is the host of a context that was made without one.
type discard struct{ state json.RawMessage }

func (d *discard) Emit(context.Context, chunk.Chunk) error { return nil }
func (d *discard) State() json.RawMessage                  { return d.state }
func (d *discard) Update(_ context.Context, change func(json.RawMessage) (json.RawMessage, error)) error {
	next, err := change(d.state)
	if err == nil {
		d.state = next
	}
	return err
}
