package merlin

import "encoding/json"

// The names of the events.
const (
	eventInit        = "INIT_MESSAGE_CONTENT" // V1: the message begins, or begins again
	eventMessage     = "message"
	eventProgress    = "progress"    // V1
	eventAttachments = "attachments" // V1
	eventEnd         = "end"
)

// The types of V2 messages.
const (
	TypeText           = "text"
	TypeReasoning      = "reasoning"
	TypeToolCalls      = "toolCalls"
	TypeToolCallResult = "toolCallResult"
	TypeCitation       = "citation"
	TypeProgress       = "progress"
	TypeAttachments    = "attachments"
	TypeError          = "error" // not in the protocol's own list: see Literal.Errors

	typeDone = "DONE" // the end, in its literal form
)

// Message is the data of a message event. V1 messages have Content alone; in V2
// it is empty, except in the union's form of a text.
type Message struct {
	Content        *string         `json:"content,omitempty"`
	Index          *int            `json:"index,omitempty"`
	ContentIndex   *int            `json:"contentIndex,omitempty"` // the union's name for Index
	Type           string          `json:"type,omitempty"`
	Text           string          `json:"text,omitempty"`
	Reasoning      string          `json:"reasoning,omitempty"`
	ToolCalls      []ToolCall      `json:"toolCalls,omitempty"`
	ToolCallResult *ToolCallResult `json:"toolCallResult,omitempty"`
	Citation       *Citation       `json:"citation,omitempty"`
	Attachments    []Attachment    `json:"attachments,omitempty"`
	Progress       *Progress       `json:"progress,omitempty"`
	Error          *Failure        `json:"error,omitempty"`
}

// ToolCall is an assembled call. Calls of one block come in order; one that
// comes again replaces the earlier one of its id.
type ToolCall struct {
	Type     string   `json:"type"` // function
	Function Function `json:"function"`
	ID       string   `json:"id"`
}

// Function names a tool; in a call, with its arguments as text.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// ToolCallResult is a piece of a result, which is added to what there is, or a
// result, which takes its place.
type ToolCallResult struct {
	Index      int           `json:"index"` // of the call, within its block
	Delta      *string       `json:"delta,omitempty"`
	Result     *string       `json:"result,omitempty"`
	ToolCallID string        `json:"toolCallId,omitempty"`
	Function   *FunctionName `json:"function,omitempty"`
	IsError    bool          `json:"isError,omitempty"` // an addition: the call failed
}

// FunctionName is what a result says of its tool.
type FunctionName struct {
	Name string `json:"name"`
}

// Citation is a quotation from the document at an index of the attachments.
type Citation struct {
	DocumentIndex int    `json:"document_index"` // from 0
	CitedText     string `json:"cited_text"`
}

// Attachment is a link or a file of the answer. All are sent whenever one
// changes, links before files.
type Attachment struct {
	URL       string   `json:"url"`
	Title     string   `json:"title"`
	CitedText []string `json:"cited_text,omitempty"`
	MediaType string   `json:"mediaType,omitempty"` // of a file; an addition
}

// Progress is one step, or the heading that steps stand under.
type Progress struct {
	Name  string `json:"name,omitempty"`
	Icon  string `json:"icon,omitempty"`
	Steps *Step  `json:"steps,omitempty"`
}

// Step is a step of work. It replaces the earlier one of its id.
type Step struct {
	Index  *int     `json:"index,omitempty"` // within its block; V2
	Tags   []string `json:"tags"`
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Status Status   `json:"status"`
	Values []Value  `json:"values"`
	Icon   string   `json:"icon"`
}

// v1 returns the step as V1 has it: without tags, and its values as text.
func (s Step) v1() V1Step {
	values := make([]Value, len(s.Values))
	for i, v := range s.Values {
		values[i] = v.v1()
	}
	return V1Step{ID: s.ID, Name: s.Name, Status: s.Status, Values: values, Icon: s.Icon}
}

// Status is how far a step is.
type Status string

const (
	InProgress Status = "IN_PROGRESS"
	Done       Status = "DONE"
)

// Icons that the protocol names.
const (
	IconDefault = "DEFAULT"
	IconGlobe   = "GLOBE"
)

// TypeTextValue is the type of values that are text.
const TypeTextValue = "TEXT"

// Value is something that a step shows.
type Value struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

// Text returns a text value.
func Text(s string) Value { return Value{Type: TypeTextValue, Value: encode(s)} }

// v1 returns the value as V1 has it: text.
func (v Value) v1() Value {
	if v.Type == TypeTextValue {
		return v
	}
	var s string
	if json.Unmarshal(v.Value, &s) == nil {
		return Text(s)
	}
	return Text(string(v.Value))
}

// V1Progress is the data of a progress event: a step, or with the metadata type
// HEADING the heading that the steps stand under, which comes before them.
type V1Progress struct {
	Payload  V1Step      `json:"payload"`
	Metadata *V1Metadata `json:"metadata,omitempty"`
}

// V1Step is a step of V1; a heading has a name and an icon alone, or nothing.
type V1Step struct {
	ID     string  `json:"id,omitempty"`
	Name   string  `json:"name,omitempty"`
	Status Status  `json:"status,omitempty"`
	Values []Value `json:"values,omitzero"`
	Icon   string  `json:"icon,omitempty"`
}

// V1Metadata says what a progress event is.
type V1Metadata struct {
	Type string `json:"type"`
}

// TypeHeading marks headings.
const TypeHeading = "HEADING"

// attachmentsV1 is the data of an attachments event.
type attachmentsV1 struct {
	Payload []Attachment `json:"payload"`
}

// Failure is why a run failed.
type Failure struct {
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}
