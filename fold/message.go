package fold

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// MessageFold folds one turn's records into the turn's assistant message.
//
// It gives the same message from all of the turn's records and from its kept ones
// alone. A part has the place of the record that opened it. If that record is gone,
// the part's First still has its sequence.
type MessageFold struct {
	message  *chunk.Message
	root     string // session id of the agent whose message it is
	streamed []bool // of each part: whether only trace records hold it so far

	block   *strings.Builder // text of the open text or reasoning part
	openAt  int              // its index in Parts; -1 for none
	args    map[string]*strings.Builder
	stepAt  int // index of the current step's boundary part; -1 before the first
	dirty   map[string]bool
	undo    map[string]json.RawMessage // data that the current step replaced, by key
	pending joined                     // of an assistant_message that goes on
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

// Message returns the message as it stands. It belongs to the fold and changes with
// the next Apply, but its strings and raw JSON never change.
func (m *MessageFold) Message() *chunk.Message { return m.message }

// Apply folds the turn's next record, decoded. Records of other agents, and those
// that say nothing about the message, change nothing. Only the root's
// executor_superseded concerns the messages of all agents.
func (m *MessageFold) Apply(r chunk.Record, c chunk.Chunk) {
	if t := c.ChunkType(); m.hears(c) || t == chunk.TypeExecutorSuperseded {
		kinds[t].toMessage(m, r, c)
	}
}

// hears reports whether a chunk comes from the message's agent.
func (m *MessageFold) hears(c chunk.Chunk) bool {
	agent := c.ChunkBase().AgentID
	return agent == "" || agent == m.root
}

func (m *MessageFold) runStarted(_ uint64, c *chunk.RunStarted) {
	m.message.ID, m.message.TurnID = c.MessageID, c.TurnID
	if m.message.Time == 0 {
		m.message.Time = c.Timestamp
	}
	m.mergeMetadata(c.Metadata)
}

func (m *MessageFold) stepStarted(seq uint64, c *chunk.StepStarted) {
	m.closeBlock()
	m.stepAt = len(m.message.Parts)
	m.add(m.stepAt, chunk.Part{Type: chunk.PartStep, ID: c.StepID, First: seq}, false)
	clear(m.undo)
}

func (m *MessageFold) textDelta(seq uint64, c *chunk.TextDelta) {
	m.grow(chunk.PartText, c.PartID, c.Delta, seq)
}

func (m *MessageFold) thinking(seq uint64, c *chunk.Thinking) {
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

func (m *MessageFold) assistantMessage(seq uint64, c *chunk.AssistantMessage) {
	m.pending.add(c.Parts, goesOn(m.pending.parts, c.Parts))
	if !c.More {
		m.seal(m.pending.parts, seq)
		m.pending = joined{}
	}
}

func (m *MessageFold) stepCommitted(_ uint64, c *chunk.StepCommitted) {
	m.closeBlock()
	m.data = append(m.data, c.Data...)
	if !c.More {
		m.commit(m.data)
		m.data = nil
	}
}

func (m *MessageFold) stepDiscarded(uint64, *chunk.StepDiscarded) { m.discard() }

func (m *MessageFold) runSuspended(seq uint64, c *chunk.RunSuspended) {
	m.closeBlock()
	m.commit(c.Data)
	m.mergeMetadata(c.Metadata)
	if c.Kind == chunk.SuspendedInterrupted {
		m.mark("run-interrupted", map[string]string{"runId": c.RunID, "reason": c.Kind}, seq)
	}
}

func (m *MessageFold) runFinished(seq uint64, c *chunk.RunFinished) {
	m.closeBlock()
	m.mergeMetadata(c.Metadata)
	switch c.Outcome {
	case chunk.OutcomeStopped:
		m.mark("run-interrupted", map[string]string{"runId": c.RunID, "reason": string(c.Outcome)}, seq)
	case chunk.OutcomeFailed:
		m.mark("error", chunk.ErrorInfo{Error: c.Error, Code: c.Code, Recoverable: c.Recoverable}, seq)
	}
}

func (m *MessageFold) executorSuperseded(uint64, *chunk.ExecutorSuperseded) { m.dropSeries() }

// dropSeries forgets a series of records that its owner did not finish. Such a series
// counts as absent.
func (m *MessageFold) dropSeries() { m.pending, m.data = joined{}, nil }

// grow adds text to the open block, or opens one. Only one block is open at a time, so
// a delta of another kind or part id closes the block before.
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
	// The string shares the builder's memory. The builder only writes behind it.
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

// seal makes the parts of an assistant_message those of the step. It brings streamed
// parts to their final form, adds those that were not streamed, and drops streamed
// parts that the assistant_message does not have.
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
			if q := m.message.Parts[i]; q.Tool != nil && (q.Tool.State == chunk.ToolExecuting || q.Tool.State.Done() || q.Tool.Approval != nil) {
				said := p.Tool
				p.Tool = q.Tool // a producer may report what became of a call first
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

// findStreamed returns the index of the part that a delta or an early outcome has
// opened for this one, or -1.
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

// insert puts a part into the current step, behind the parts that were opened before
// it.
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

// add puts a part at an index. Only add, remove and discard change the list of parts.
func (m *MessageFold) add(i int, p chunk.Part, streamed bool) {
	m.message.Parts = slices.Insert(m.message.Parts, i, p)
	m.streamed = slices.Insert(m.streamed, i, streamed)
}

// remove takes a part out.
func (m *MessageFold) remove(i int) {
	m.message.Parts = slices.Delete(m.message.Parts, i, i+1)
	m.streamed = slices.Delete(m.streamed, i, i+1)
}

// dropStreamed removes the parts that only trace records hold.
func (m *MessageFold) dropStreamed() {
	for i := len(m.streamed) - 1; i >= 0; i-- {
		if m.streamed[i] {
			m.remove(i)
		}
	}
}

// discard drops the current step, and takes back what it did to earlier data parts.
func (m *MessageFold) discard() {
	m.openAt, m.block, m.pending, m.data = -1, nil, joined{}, nil
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

// goesOn reports whether the first part of the next record of a series continues the
// last part so far: the same record has opened both.
func goesOn(parts, more []chunk.Part) bool {
	if len(parts) == 0 || len(more) == 0 {
		return false
	}
	last, next := &parts[len(parts)-1], &more[0]
	return last.Type == next.Type && last.First == next.First && next.First != 0 && next.Tool == nil
}
