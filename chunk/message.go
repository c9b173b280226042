package chunk

import (
	"encoding/json"
	"slices"
)

// Role says who wrote a message.
type Role string

const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one message of a conversation. A turn has one assistant message,
// whose parts span all its steps and runs.
type Message struct {
	ID       string          `json:"id"`
	Role     Role            `json:"role"`
	Parts    []Part          `json:"parts"`
	TurnID   string          `json:"turnId,omitempty"`
	Time     int64           `json:"time,omitempty"` // Unix milliseconds
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Text returns the message's text parts, joined.
func (m *Message) Text() string {
	var text string
	for i := range m.Parts {
		if m.Parts[i].Type == PartText {
			text += m.Parts[i].Text
		}
	}
	return text
}

// Output returns the message's structured answer, or nil if it has none.
func (m *Message) Output() (output json.RawMessage) {
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Type == PartData && p.Name == "output" && p.ID == "" {
			output = p.Data
		}
	}
	return output
}

// PartType is a part's discriminator.
type PartType string

const (
	PartStep      PartType = "step"      // a step boundary; ID is the step's
	PartText      PartType = "text"      // Text
	PartReasoning PartType = "reasoning" // Text, ProviderMetadata
	PartTool      PartType = "tool"      // Tool, ProviderMetadata
	PartData      PartType = "data"      // Name, ID, Data
	PartSource    PartType = "source"    // ID, URL, Title, MediaType, Filename, Text (the cited text), DocumentIndex
	PartFile      PartType = "file"      // URL, MediaType, Filename
)

// Part is one piece of a message, in the order in which it was opened. Which
// fields are used depends on Type.
type Part struct {
	Type PartType `json:"type"`
	// First is the sequence of the record that opened the part. Projectors order
	// a step's parts by it.
	First uint64 `json:"first,omitempty"`
	// Open is set while the part still grows. It is never stored.
	Open bool `json:"-"`

	ID               string          `json:"id,omitempty"`
	Text             string          `json:"text,omitempty"`
	Name             string          `json:"name,omitempty"`
	Data             json.RawMessage `json:"data,omitempty"`
	URL              string          `json:"url,omitempty"`
	Title            string          `json:"title,omitempty"`
	MediaType        string          `json:"mediaType,omitempty"`
	Filename         string          `json:"filename,omitempty"`
	DocumentIndex    *int            `json:"documentIndex,omitempty"` // see [Citation]
	Large            json.RawMessage `json:"large,omitempty"`         // where Text, or a file's URL, is, if it was too large: see [Part.Whole]
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"`
	Tool             *ToolPart       `json:"tool,omitempty"`
}

// ToolState is how far a tool call has come.
type ToolState string

const (
	ToolStreaming ToolState = "streaming" // its arguments are being written
	ToolPending   ToolState = "pending"   // arguments complete, not dispatched
	ToolExecuting ToolState = "executing"
	ToolCompleted ToolState = "completed"
	ToolFailed    ToolState = "error"
	ToolDenied    ToolState = "denied"
)

// Done reports whether the call has its outcome.
func (s ToolState) Done() bool {
	return s == ToolCompleted || s == ToolFailed || s == ToolDenied
}

// ToolPart is a tool call and what became of it.
type ToolPart struct {
	CallID           string          `json:"callId"`
	Name             string          `json:"name"`
	State            ToolState       `json:"state,omitempty"`
	InputText        string          `json:"inputText,omitempty"` // argument text so far, or what is not JSON
	Input            json.RawMessage `json:"input,omitempty"`
	Output           json.RawMessage `json:"output,omitempty"`
	Error            string          `json:"error,omitempty"`
	InputInvalid     bool            `json:"inputInvalid,omitempty"` // Error is about the input; the tool never ran
	Preliminary      bool            `json:"preliminary,omitempty"`  // Output may still be replaced
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`
	EffectID         string          `json:"effectId,omitempty"`
	Client           bool            `json:"client,omitempty"` // the client executes it
	Approval         *Approval       `json:"approval,omitempty"`
}

// Takes reports whether the call waits for an answer of this kind: a decision, or
// else a result. open says whether the call's run is open. Then only calls that the
// client executes wait for a result, because others are executed here.
func (t *ToolPart) Takes(decision, open bool) bool {
	switch {
	case t.State.Done():
		return false
	case decision:
		return t.Approval != nil && t.Approval.Approved == nil
	}
	// A call that waits for a decision, or has one, is not the client's.
	return t.Approval == nil && (!open || t.Client && t.State == ToolExecuting)
}

// ErrorInfo is what the log says of a failure.
type ErrorInfo struct {
	Error       string `json:"error"`
	Code        string `json:"code,omitempty"`
	Recoverable bool   `json:"recoverable,omitempty"`
}

// Approval is a human's decision on a call, or the wait for it.
type Approval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"` // nil: not decided
	Reason   string `json:"reason,omitempty"`
}

// Whole returns the part with its text or URL in place of Large. resolve reads a large
// value, as [spool.Log.Blob] does. Whole fails if resolve fails.
func (p Part) Whole(resolve func(json.RawMessage) (json.RawMessage, error)) (Part, error) {
	if len(p.Large) == 0 {
		return p, nil
	}
	text, err := resolve(p.Large)
	if err != nil {
		return p, err
	}
	into := &p.Text
	if p.Type == PartFile {
		into = &p.URL
	}
	if err := json.Unmarshal(text, into); err != nil {
		return p, ErrInvalid.Because("a large text is not a string").With("", err)
	}
	p.Large = nil
	return p, nil
}

// Clone returns a copy that shares no part with m. It shares strings and raw JSON,
// which never change.
func (m *Message) Clone() Message {
	c := *m
	c.Parts = slices.Clone(m.Parts)
	if c.Parts == nil {
		c.Parts = []Part{}
	}
	for i := range c.Parts {
		if t := c.Parts[i].Tool; t != nil {
			tool := *t
			if tool.Approval != nil {
				approval := *tool.Approval
				tool.Approval = &approval
			}
			c.Parts[i].Tool = &tool
		}
	}
	return c
}

// Waits reports whether a call of a paused run still lacks its answer.
func (t *ToolPart) Waits() bool {
	return !t.State.Done() && (t.Approval == nil || t.Approval.Approved == nil)
}
