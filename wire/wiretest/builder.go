package wiretest

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// builder writes a log the way a runner and its agents do: every record with a
// sequence, base fields and a class.
type builder struct {
	records []chunk.Record
	now     int64
}

// emit appends a chunk. It panics if the chunk is not valid: the log is ours.
func (b *builder) emit(c chunk.Chunk) uint64 {
	b.now += 17
	c.ChunkBase().Timestamp = b.now
	data, err := chunk.Append(nil, c)
	if err == nil {
		err = chunk.Validate(c)
	}
	if err != nil {
		panic(fmt.Sprintf("wiretest: the corpus holds %#v: %v", c, err))
	}
	seq := uint64(len(b.records)) + 1
	b.records = append(b.records, chunk.Record{
		Seq: seq, Type: c.ChunkType(), Agent: c.ChunkBase().AgentID, Time: b.now, Class: chunk.ClassOf(c), Data: data,
	})
	return seq
}

// agent writes the records of one agent, and closes its steps with what was
// streamed in them.
type agent struct {
	log           *builder
	session, kind string
	call          string // the parent's call that a child works on
	turn, message string
	run           string
	step          int
	attempt       int // counts discarded model phases
	stepID        string
	parts         []chunk.Part // of the open model phase
	data          []chunk.Part // data parts of the turn, as they were last set
	dirty         map[int]bool // those that the open step has set
}

func (a *agent) emit(c chunk.Chunk) uint64 {
	b := c.ChunkBase()
	b.AgentID, b.AgentType, b.Step, b.RunID = a.session, a.kind, a.step, a.run
	return a.log.emit(c)
}

// command appends what a user's tab does.
func (a *agent) command(c chunk.Chunk) uint64 {
	c.ChunkBase().AgentID = a.session
	return a.log.emit(c)
}

// say appends a command that opens a turn.
func (a *agent) say(command, text string, busy chunk.WhenBusy) uint64 {
	return a.command(&chunk.UserMessage{CommandID: command, WhenBusy: busy, Message: chunk.Message{
		ID: "user-" + command, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}},
	}})
}

// begin opens a turn's first run.
func (a *agent) begin(run, turn string, commands ...string) {
	a.turn, a.message, a.data, a.dirty = turn, "answer-"+turn, nil, map[int]bool{}
	a.resume(run, "start", commands...)
}

// resume opens a later run of the turn.
func (a *agent) resume(run, mode string, commands ...string) {
	a.run, a.step, a.stepID = run, 0, ""
	a.emit(&chunk.RunStarted{TurnID: a.turn, MessageID: a.message, Mode: mode, Commands: commands,
		Metadata: json.RawMessage(`{"model":"scripted","runs":{"` + run + `":"open"}}`)})
}

func (a *agent) beginStep() {
	a.step++
	a.stepID = fmt.Sprintf("%s-step-%d", a.run, a.step)
	if a.attempt > 0 {
		a.stepID += fmt.Sprintf("-%d", a.attempt)
	}
	a.emit(&chunk.StepStarted{StepID: a.stepID})
}

// discard drops the open model phase.
func (a *agent) discard(reason string) {
	a.emit(&chunk.StepDiscarded{StepID: a.stepID, Reason: reason})
	a.attempt++
	a.step--
	a.stepID, a.parts, a.dirty = "", nil, map[int]bool{}
}

// text streams a text block.
func (a *agent) text(partID string, deltas ...string) {
	for _, s := range deltas {
		seq := a.emit(&chunk.TextDelta{Delta: s, PartID: partID})
		a.grow(chunk.PartText, partID, s, seq)
	}
}

// think streams a reasoning block and closes it.
func (a *agent) think(partID string, signature json.RawMessage, deltas ...string) {
	whole := ""
	for _, s := range deltas {
		seq := a.emit(&chunk.Thinking{Content: s, PartID: partID})
		a.grow(chunk.PartReasoning, partID, s, seq)
		whole += s
	}
	seq := a.emit(&chunk.Thinking{Content: whole, IsComplete: true, PartID: partID, ProviderMetadata: signature})
	if len(deltas) == 0 {
		a.grow(chunk.PartReasoning, partID, "", seq)
	}
	a.parts[len(a.parts)-1].ProviderMetadata = signature
}

func (a *agent) grow(kind chunk.PartType, id, s string, seq uint64) {
	if n := len(a.parts); n > 0 && a.parts[n-1].Type == kind && a.parts[n-1].ID == id {
		a.parts[n-1].Text += s
		return
	}
	a.parts = append(a.parts, chunk.Part{Type: kind, ID: id, First: seq, Text: s})
}

// callArgs streams a call's arguments; whole says whether they came to an end.
func (a *agent) callArgs(call, name string, whole bool, deltas ...string) {
	seq := a.emit(&chunk.ToolArgStreamStart{ToolCallID: call, ToolName: name})
	text := ""
	for _, s := range deltas {
		a.emit(&chunk.ToolArgStreamDelta{ToolCallID: call, Delta: s})
		text += s
	}
	tool := &chunk.ToolPart{CallID: call, Name: name, State: chunk.ToolStreaming, InputText: text, EffectID: a.run + ":" + call}
	if whole {
		a.emit(&chunk.ToolArgStreamEnd{ToolCallID: call, ToolName: name})
		tool.State = chunk.ToolPending
		if json.Valid([]byte(text)) {
			tool.InputText, tool.Input = "", json.RawMessage(text)
		}
	}
	a.parts = append(a.parts, chunk.Part{Type: chunk.PartTool, First: seq, Tool: tool})
}

// closeModel closes the model phase. With split it takes two records.
func (a *agent) closeModel(finish string, split bool) {
	m := chunk.AssistantMessage{MessageID: a.message, StepID: a.stepID, Parts: a.parts, FinishReason: finish,
		Usage: &chunk.Usage{InputTokens: 40, OutputTokens: int64(len(a.parts))}}
	if split {
		m.Parts = []chunk.Part{a.beginClose()}
	}
	a.parts = nil
	a.emit(&m)
}

// beginClose writes the first of the two records that close the model phase, and
// returns the rest.
func (a *agent) beginClose() (tail chunk.Part) {
	n := len(a.parts) - 1
	head, tail := a.parts[n], a.parts[n]
	head.Text, tail.Text = head.Text[:len(head.Text)/2], tail.Text[len(tail.Text)/2:]
	a.emit(&chunk.AssistantMessage{MessageID: a.message, StepID: a.stepID, Parts: append(slices.Clone(a.parts[:n]), head), More: true})
	return tail
}

// start dispatches a call.
func (a *agent) start(call, name, arguments string) {
	a.emit(&chunk.ToolStart{ToolCallID: call, ToolName: name, Arguments: json.RawMessage(arguments), EffectID: a.run + ":" + call})
}

// end gives a call its outcome.
func (a *agent) end(call, name, result, failure string) {
	a.emit(&chunk.ToolEnd{ToolCallID: call, ToolName: name, Result: json.RawMessage(result), Success: failure == "", Error: failure})
}

// show sets a data part by a custom chunk with an id.
func (a *agent) show(name, id, data string) {
	seq := a.emit(&chunk.Custom{EventName: name, ID: id, Data: json.RawMessage(data)})
	a.set(name, id, data, seq)
}

// progress sets a data part by a progress chunk, whose own fields data repeats.
func (a *agent) progress(p chunk.Progress, data string) {
	seq := a.emit(&p)
	a.set("progress", p.ID, data, seq)
}

func (a *agent) set(name, id, data string, seq uint64) {
	i := slices.IndexFunc(a.data, func(p chunk.Part) bool { return p.Name == name && p.ID == id })
	if i < 0 {
		i = len(a.data)
		a.data = append(a.data, chunk.Part{Type: chunk.PartData, First: seq, Name: name, ID: id})
	}
	a.data[i].Data, a.dirty[i] = json.RawMessage(data), true
}

// settled returns the data parts that the open step has set.
func (a *agent) settled() []chunk.Part {
	var parts []chunk.Part
	for i, p := range a.data {
		if a.dirty[i] {
			parts = append(parts, p)
		}
	}
	clear(a.dirty)
	return parts
}

// commit closes the step. With split it takes two records.
func (a *agent) commit(split bool) {
	data, checkpoint := a.settled(), "cp-"+a.stepID
	if split {
		a.emit(&chunk.StepCommitted{StepID: a.stepID, Data: data[:1], More: true})
		data = data[1:]
	}
	a.emit(&chunk.StepCommitted{StepID: a.stepID, CheckpointID: checkpoint, Data: data})
	a.emit(&chunk.CheckpointCreated{CheckpointID: checkpoint, StepCount: a.step})
	a.stepID = ""
}

func (a *agent) suspend(kind string, calls ...string) {
	a.emit(&chunk.RunSuspended{Kind: kind, ToolCallIDs: calls, StepID: a.stepID, Data: a.settled(),
		Metadata: json.RawMessage(`{"runs":{"` + a.run + `":"suspended"}}`)})
}

func (a *agent) finish(outcome chunk.Outcome, reason, errText, code string) {
	a.emit(&chunk.RunFinished{Outcome: outcome, FinishReason: reason, Error: errText, Code: code,
		Usage:    &chunk.Usage{InputTokens: 100, OutputTokens: 20},
		Metadata: json.RawMessage(`{"runs":{"` + a.run + `":"` + string(outcome) + `"}}`)})
}
