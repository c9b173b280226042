package fold

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// MessageFold folds one turn's records into the turn's assistant message.
//
// It gives the same message from all of the turn's records and from its kept
// ones alone: a part stands where the record that opened it stood, whether that
// record is still there or only remembered as the part's First.
type MessageFold struct {
	message  *chunk.Message
	root     string // the agent whose words these are
	streamed []bool // of each part of message: only trace records hold it so far

	block   *strings.Builder // text of the open text or reasoning part
	openAt  int              // its index in Parts; -1 for none
	args    map[string]*strings.Builder
	stepAt  int // index of the current step's boundary part; -1 before the first
	dirty   map[string]bool
	undo    map[string]json.RawMessage // data that the current step replaced, by key
	pending []chunk.Part               // of an assistant_message that goes on
	data    []chunk.Part               // of a step_committed that goes on
}

// NewMessageFold returns the fold of a turn of the agent whose session id is
// root. The message's id comes with the turn's first run_started.
func NewMessageFold(root string) *MessageFold {
	return &MessageFold{
		message: &chunk.Message{Role: chunk.RoleAssistant, Parts: []chunk.Part{}},
		root:    root,
		openAt:  -1,
		stepAt:  -1,
		args:    map[string]*strings.Builder{},
		dirty:   map[string]bool{},
		undo:    map[string]json.RawMessage{},
	}
}

// Message returns the message as it stands. It belongs to the fold and changes
// with the next Apply; its strings and raw JSON never do.
func (m *MessageFold) Message() *chunk.Message { return m.message }

// Apply folds the turn's next record, decoded. Records of other agents, and
// those that say nothing about the message, change nothing; but the fold of a child
// must be told of its root's executor_superseded.
func (m *MessageFold) Apply(r chunk.Record, c chunk.Chunk) {
	if _, ok := c.(*chunk.ExecutorSuperseded); ok { // of all agents
		m.pending, m.data = nil, nil // a series that its owner did not finish counts as absent
		return
	}
	if agent := c.ChunkBase().AgentID; agent != "" && agent != m.root {
		return
	}
	switch c := c.(type) {
	case *chunk.RunStarted:
		m.message.ID, m.message.TurnID = c.MessageID, c.TurnID
		if m.message.Time == 0 {
			m.message.Time = c.Timestamp
		}
		m.mergeMetadata(c.Metadata)
	case *chunk.StepStarted:
		m.closeBlock()
		m.stepAt = len(m.message.Parts)
		m.add(m.stepAt, chunk.Part{Type: chunk.PartStep, ID: c.StepID, First: r.Seq}, false)
		clear(m.undo)
	case *chunk.TextDelta:
		m.grow(chunk.PartText, c.PartID, c.Delta, r.Seq)
	case *chunk.Thinking:
		m.applyThinking(c, r.Seq)
	case *chunk.AssistantMessage:
		m.pending = joinParts(m.pending, c.Parts)
		if !c.More {
			m.seal(m.pending, r.Seq)
			m.pending = nil
		}
	case *chunk.Custom:
		if !c.Transient {
			m.setData(c.EventName, c.ID, c.Data, r.Seq)
		}
	case *chunk.Progress:
		m.setData("progress", c.ID, progressData(c), r.Seq)
	case *chunk.Output:
		m.setData("output", "", c.Output, r.Seq)
	case *chunk.ErrorChunk:
		if c.Recoverable {
			m.setData("error", "", jsonenc.Must(chunk.ErrorInfo{Error: c.Error, Code: c.Code, Recoverable: true}), r.Seq)
		}
	case *chunk.Citation:
		m.insert(chunk.Part{Type: chunk.PartSource, First: r.Seq, ID: c.SourceID, URL: c.URL, Title: c.Title,
			MediaType: c.MediaType, Filename: c.Filename, Text: c.CitedText}, false)
	case *chunk.File:
		m.insert(chunk.Part{Type: chunk.PartFile, First: r.Seq, URL: c.URL, MediaType: c.MediaType, Filename: c.Filename, Large: c.Large}, false)
	case *chunk.StepCommitted:
		m.closeBlock()
		m.data = append(m.data, c.Data...)
		if !c.More {
			m.commit(m.data)
			m.data = nil
		}
	case *chunk.StepDiscarded:
		m.discard()
	case *chunk.RunSuspended:
		m.closeBlock()
		m.commit(c.Data)
		m.mergeMetadata(c.Metadata)
		if c.Kind == chunk.SuspendedInterrupted {
			m.mark("run-interrupted", map[string]string{"runId": c.RunID, "reason": c.Kind}, r.Seq)
		}
	case *chunk.RunFinished:
		m.closeBlock()
		m.mergeMetadata(c.Metadata)
		switch c.Outcome {
		case chunk.OutcomeStopped:
			m.mark("run-interrupted", map[string]string{"runId": c.RunID, "reason": string(c.Outcome)}, r.Seq)
		case chunk.OutcomeFailed:
			m.mark("error", chunk.ErrorInfo{Error: c.Error, Code: c.Code, Recoverable: c.Recoverable}, r.Seq)
		}
	default:
		m.applyTool(r, c)
	}
}

func (m *MessageFold) applyThinking(c *chunk.Thinking, seq uint64) {
	streamed := ""
	if m.openAt >= 0 {
		if p := &m.message.Parts[m.openAt]; p.Type == chunk.PartReasoning && p.ID == c.PartID {
			streamed = p.Text
		}
	}
	content := c.Content
	if c.IsComplete {
		content = chunk.CompleteThinking(streamed, content)
	}
	m.grow(chunk.PartReasoning, c.PartID, content, seq)
	if c.IsComplete {
		m.message.Parts[m.openAt].ProviderMetadata = c.ProviderMetadata
		m.closeBlock()
	}
}

// grow adds text to the open block, or opens one. Blocks are serial: a delta of
// another kind or part id closes the one before.
func (m *MessageFold) grow(kind chunk.PartType, id, delta string, seq uint64) {
	if m.openAt >= 0 {
		if p := &m.message.Parts[m.openAt]; p.Type != kind || p.ID != id {
			m.closeBlock()
		}
	}
	if m.openAt < 0 {
		m.openAt = len(m.message.Parts)
		m.add(m.openAt, chunk.Part{Type: kind, ID: id, First: seq, Open: true}, true)
		m.block = new(strings.Builder)
	}
	// The builder's string is shared, not copied: it only grows behind it.
	m.block.WriteString(delta)
	m.message.Parts[m.openAt].Text = m.block.String()
}

// stepID returns the id of the message's last step.
func (m *MessageFold) stepID() string {
	if m == nil || m.stepAt < 0 {
		return ""
	}
	return m.message.Parts[m.stepAt].ID
}

func (m *MessageFold) closeBlock() {
	if m.openAt >= 0 {
		m.message.Parts[m.openAt].Open = false
		m.openAt, m.block = -1, nil
	}
}

// seal makes the parts of an assistant_message the step's words: it brings what
// was streamed to its final form, adds what was not seen, and drops the rest.
func (m *MessageFold) seal(parts []chunk.Part, seq uint64) {
	m.closeBlock()
	clear(m.args)
	for _, p := range parts {
		if p.First == 0 {
			p.First = seq
		}
		if p.Tool != nil {
			tool := *p.Tool
			if tool.State == "" {
				tool.State = chunk.ToolPending
			}
			p.Tool = &tool
		}
		if i := m.findStreamed(p); i >= 0 {
			if q := m.message.Parts[i]; q.Tool != nil && (q.Tool.State == chunk.ToolExecuting || q.Tool.State.Settled() || q.Tool.Approval != nil) {
				said := p.Tool
				p.Tool = q.Tool // a producer told what became of the call first
				if p.Tool.Input == nil && p.Tool.InputText == "" {
					p.Tool.Input, p.Tool.InputText = said.Input, said.InputText
				}
				p.Tool.ProviderExecuted = p.Tool.ProviderExecuted || said.ProviderExecuted
			}
			m.remove(i)
		}
		m.insert(p, false)
	}
	m.dropStreamed()
}

// findStreamed returns where the part stands that the trace or an early outcome
// has opened; -1 if nothing did.
func (m *MessageFold) findStreamed(p chunk.Part) int {
	if p.Tool != nil {
		return m.findTool(p.Tool.CallID)
	}
	for i, q := range m.message.Parts {
		if m.streamed[i] && q.Type == p.Type && q.First == p.First {
			return i
		}
	}
	return -1
}

// insert puts a part into the current step, behind those that were opened
// before it.
func (m *MessageFold) insert(p chunk.Part, streamed bool) {
	i := len(m.message.Parts)
	for i > m.stepAt+1 && m.message.Parts[i-1].First > p.First {
		i--
	}
	m.add(i, p, streamed)
	if m.openAt >= i {
		m.openAt++
	}
}

// add, remove and dropStreamed are the only ones that change the list of parts.
func (m *MessageFold) add(i int, p chunk.Part, streamed bool) {
	m.message.Parts = slices.Insert(m.message.Parts, i, p)
	m.streamed = slices.Insert(m.streamed, i, streamed)
}

func (m *MessageFold) remove(i int) {
	m.message.Parts = slices.Delete(m.message.Parts, i, i+1)
	m.streamed = slices.Delete(m.streamed, i, i+1)
}

// dropStreamed removes the parts that no kept record holds.
func (m *MessageFold) dropStreamed() {
	for i := len(m.streamed) - 1; i >= 0; i-- {
		if m.streamed[i] {
			m.remove(i)
		}
	}
}

// setData sets a data part: the one of this name and id, or a new one.
func (m *MessageFold) setData(name, id string, data json.RawMessage, first uint64) {
	key := name + "\x00" + id
	if id != "" {
		m.dirty[key] = true
		if i := m.findData(name, id); i >= 0 {
			if _, saved := m.undo[key]; !saved && i < m.stepAt {
				m.undo[key] = m.message.Parts[i].Data
			}
			m.message.Parts[i].Data = data
			return
		}
	}
	m.insert(chunk.Part{Type: chunk.PartData, Name: name, ID: id, Data: data, First: first}, false)
}

func (m *MessageFold) findData(name, id string) int {
	return slices.IndexFunc(m.message.Parts, func(p chunk.Part) bool {
		return p.Type == chunk.PartData && p.Name == name && p.ID == id
	})
}

// mark appends a persistent data part that says how a run ended.
func (m *MessageFold) mark(name string, v any, seq uint64) {
	m.add(len(m.message.Parts), chunk.Part{Type: chunk.PartData, Name: name, Data: jsonenc.Must(v), First: seq}, false)
}

func (m *MessageFold) commit(data []chunk.Part) {
	for _, p := range data {
		m.setData(p.Name, p.ID, p.Data, p.First)
	}
	clear(m.dirty)
	clear(m.undo)
}

// uncommitted returns the data parts that only trace records hold so far.
func (m *MessageFold) uncommitted() []chunk.Part {
	var parts []chunk.Part
	for _, p := range m.message.Parts {
		if p.Type == chunk.PartData && p.ID != "" && m.dirty[p.Name+"\x00"+p.ID] {
			parts = append(parts, p)
		}
	}
	return parts
}

// discard drops the current step.
func (m *MessageFold) discard() {
	m.openAt, m.block, m.pending, m.data = -1, nil, nil, nil
	if m.stepAt >= 0 {
		m.message.Parts, m.streamed = m.message.Parts[:m.stepAt], m.streamed[:m.stepAt]
	} else {
		m.dropStreamed()
	}
	for key, data := range m.undo {
		name, id, _ := strings.Cut(key, "\x00")
		if i := m.findData(name, id); i >= 0 {
			m.message.Parts[i].Data = data
		}
	}
	clear(m.undo)
	clear(m.dirty)
	clear(m.args)
	m.stepAt = -1
	for i, p := range m.message.Parts {
		if p.Type == chunk.PartStep {
			m.stepAt = i
		}
	}
}

func (m *MessageFold) mergeMetadata(metadata json.RawMessage) {
	var added map[string]any
	if json.Unmarshal(metadata, &added) != nil || added == nil {
		return
	}
	var merged map[string]any
	_ = json.Unmarshal(m.message.Metadata, &merged)
	m.message.Metadata = jsonenc.Must(mergeObjects(merged, added))
}

// mergeObjects merges JSON objects the way clients merge a message's metadata:
// objects merge, everything else is replaced.
func mergeObjects(into, from map[string]any) map[string]any {
	if into == nil {
		into = make(map[string]any, len(from))
	}
	for k, v := range from {
		if sub, ok := v.(map[string]any); ok {
			old, _ := into[k].(map[string]any)
			v = mergeObjects(old, sub)
		}
		into[k] = v
	}
	return into
}

// joinParts appends the parts of a continued record. A first part that was
// opened by the same record as the last one so far goes on with its text.
func joinParts(parts, more []chunk.Part) []chunk.Part {
	if n := len(parts); n > 0 && len(more) > 0 {
		last, next := &parts[n-1], more[0]
		if last.Type == next.Type && last.First == next.First && next.First != 0 && next.Tool == nil {
			last.Text += next.Text
			if next.ProviderMetadata != nil {
				last.ProviderMetadata = next.ProviderMetadata
			}
			more = more[1:]
		}
	}
	return append(parts, more...)
}

// progressData is what a progress chunk shows: its own fields, without the base.
func progressData(c *chunk.Progress) json.RawMessage {
	return jsonenc.Must(struct {
		ID      string          `json:"id"`
		Parent  string          `json:"parent,omitempty"`
		Label   string          `json:"label,omitempty"`
		State   string          `json:"state,omitempty"`
		Percent *float64        `json:"percent,omitempty"`
		Data    json.RawMessage `json:"data,omitempty"`
	}{c.ID, c.Parent, c.Label, c.State, c.Percent, c.Data})
}
