package aisdk_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// logOf writes a log as a runner does, without a store.
type logOf struct {
	t       testing.TB
	fold    *fold.Fold
	records []chunk.Record
	resolve func(json.RawMessage) (json.RawMessage, error) // of stored values
	run     string
	step    int
}

func newLog(t testing.TB) *logOf { return &logOf{t: t, fold: fold.New("s")} }

func (l *logOf) add(chunks ...chunk.Chunk) *logOf {
	l.t.Helper()
	for _, c := range chunks {
		b := c.ChunkBase()
		if b.AgentID == "" {
			b.AgentID = "s"
		}
		b.AgentType, b.Timestamp = "demo", 1700000000000+int64(len(l.records))
		if !chunk.IsCommand(c.ChunkType()) && b.RunID == "" {
			b.RunID, b.Step = l.run, l.step
		}
		data, err := chunk.Append(nil, c)
		if err != nil {
			l.t.Fatal(err)
		}
		r := chunk.Record{Seq: uint64(len(l.records) + 1), Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp,
			Class: chunk.ClassOf(c), Data: data}
		l.records = append(l.records, r)
		if err := l.fold.Apply(r); err != nil {
			l.t.Fatal(err)
		}
	}
	return l
}

func (l *logOf) user(id string) *logOf {
	return l.add(&chunk.UserMessage{CommandID: id, Message: chunk.Message{ID: "m-" + id, Role: chunk.RoleUser,
		Parts: []chunk.Part{{Type: chunk.PartText, Text: "hello"}}}})
}

func (l *logOf) start(run, turn string, commands ...string) *logOf {
	l.run, l.step = run, 0
	return l.add(&chunk.RunStarted{TurnID: turn, MessageID: "a-" + turn, Mode: "start", Commands: commands,
		Metadata: json.RawMessage(`{"model":"demo"}`)})
}

func (l *logOf) begin() *logOf {
	l.step++
	return l.add(&chunk.StepStarted{StepID: fmt.Sprintf("%s.%d", l.run, l.step)})
}

func (l *logOf) text(deltas ...string) *logOf {
	for _, d := range deltas {
		l.add(&chunk.TextDelta{Delta: d})
	}
	return l
}

func (l *logOf) call(id, name string, pieces ...string) *logOf {
	l.add(&chunk.ToolArgStreamStart{ToolCallID: id, ToolName: name})
	for _, p := range pieces {
		l.add(&chunk.ToolArgStreamDelta{ToolCallID: id, Delta: p})
	}
	return l.add(&chunk.ToolArgStreamEnd{ToolCallID: id, ToolName: name})
}

func (l *logOf) said() *logOf { return l.add(l.fold.Owed().CloseModelPhase("stop", nil)...) }

func (l *logOf) dispatch(id, name, args string) *logOf {
	return l.add(&chunk.ToolStart{ToolCallID: id, ToolName: name, Arguments: json.RawMessage(args), EffectID: l.run + ":" + id})
}

func (l *logOf) result(id, name, result string) *logOf {
	return l.add(&chunk.ToolEnd{ToolCallID: id, ToolName: name, Result: json.RawMessage(result), Success: true})
}

func (l *logOf) commit() *logOf {
	id := fmt.Sprintf("c%d", len(l.records))
	return l.add(l.fold.Owed().CloseStep(id)...).add(&chunk.CheckpointCreated{CheckpointID: id, StepCount: l.step})
}

func (l *logOf) settle(text string) *logOf { return l.add(l.fold.Owed().Unsettled(text)...) }

func (l *logOf) finish(o chunk.Outcome, reason string) *logOf {
	c := &chunk.RunFinished{Outcome: o, FinishReason: reason, Metadata: json.RawMessage(`{"tokens":{"out":7}}`)}
	if o == chunk.OutcomeFailed {
		c.Error, c.Code = "the model went away", "provider_failed"
	}
	return l.add(c)
}

// toolsTurn is what a typical agent writes.
func toolsTurn(t testing.TB) *logOf {
	percent := 50.0
	l := newLog(t).user("t").start("r", "t", "t").begin()
	l.add(&chunk.Thinking{Content: "Let me "}, &chunk.Thinking{Content: "look."},
		&chunk.Thinking{Content: "Let me look.", IsComplete: true, ProviderMetadata: json.RawMessage(`{"anthropic":{"signature":"x"}}`)})
	l.text("I will ", "search.").call("c1", "search", `{"q":`, `"spool"}`).call("c2", "weather", `{"city":"Bern"}`).said()
	l.dispatch("c1", "search", `{"q":"spool"}`).dispatch("c2", "weather", `{"city":"Bern"}`)
	l.add(&chunk.Progress{ID: "p", Label: "searching", State: "running"},
		&chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: "/n", Value: json.RawMessage("1")}}, ToolCallID: "c1"},
		&chunk.Progress{ID: "p", Label: "searching", State: "done", Percent: &percent})
	l.add(&chunk.ToolEnd{ToolCallID: "c2", ToolName: "weather", Result: json.RawMessage("null"), Error: "no such city"})
	l.add(&chunk.ToolEnd{ToolCallID: "c1", ToolName: "search", Result: json.RawMessage(`{"hits":1}`), Preliminary: true})
	l.result("c1", "search", `{"hits":3}`).commit()
	l.begin().text("Three hits.", " <b>\n\"Done\"</b> \u2028").add(
		&chunk.Citation{SourceID: "s1", URL: "https://example.org/", Title: "Spool", CitedText: "a spool"},
		&chunk.Citation{MediaType: "application/pdf", Filename: "a.pdf"},
		&chunk.File{URL: "data:text/plain,x", MediaType: "text/plain", Filename: "x.txt"},
		&chunk.Custom{EventName: "note", Data: json.RawMessage(`{"a":[1,2]}`)},
		&chunk.Custom{EventName: "typing", Data: json.RawMessage("null"), Transient: true})
	l.said().commit().add(&chunk.Output{Output: json.RawMessage(`{"answer":3}`)})
	return l.finish(chunk.OutcomeCompleted, "stop")
}

// randomLog writes a few turns of everything that may happen in one.
func randomLog(t testing.TB, seed uint64) *logOf {
	g := &generator{logOf: newLog(t), r: rand.New(rand.NewPCG(seed, 1))}
	for turn := range 1 + g.r.IntN(3) {
		g.turn(fmt.Sprintf("t%d", turn))
	}
	return g.logOf
}

type generator struct {
	*logOf
	r     *rand.Rand
	calls int
	runs  int
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func (g *generator) word() string {
	words := []string{"a", "spool ", "of\n", "“thread” ", "<b>", `"x" `, "é", "\u2028", "\\", "winds ", ""}
	return words[g.r.IntN(len(words))]
}

func (g *generator) nextRun(turn string, commands ...string) {
	g.runs++
	g.start(fmt.Sprintf("r%d", g.runs), turn, commands...)
}

func (g *generator) turn(id string) {
	g.user(id)
	g.nextRun(id, id)
	for range 1 + g.r.IntN(4) {
		g.begin()
		g.model()
		if g.chance(10) {
			g.add(&chunk.StepDiscarded{StepID: "x", Reason: "crash_recovery"},
				&chunk.StreamResync{CheckpointID: "c", Reason: "crash_recovery"})
			if g.chance(40) {
				g.add(&chunk.RunSuspended{Kind: "interrupted"})
				g.nextRun(id)
			}
			continue
		}
		if g.chance(10) {
			g.settle("it ended early")
			switch g.r.IntN(4) {
			case 0:
				g.finish(chunk.OutcomeStopped, "other")
				return
			case 1:
				g.finish(chunk.OutcomeFailed, "error")
				return
			case 2:
				g.finish(chunk.OutcomeLimit, "length")
				return
			}
			g.add(&chunk.RunSuspended{Kind: "interrupted"})
			g.nextRun(id)
			continue
		}
		g.said()
		if !g.tools(id) {
			return
		}
		g.commit()
	}
	if g.chance(20) {
		g.add(&chunk.Output{Output: json.RawMessage(`{"ok":true}`)})
	}
	g.finish(chunk.OutcomeCompleted, []string{"stop", "tool-calls", "length", "what"}[g.r.IntN(4)])
}

// model writes a model phase up to its assistant_message.
func (g *generator) model() {
	for range g.r.IntN(6) {
		switch g.r.IntN(7) {
		case 0:
			whole := ""
			for range g.r.IntN(4) {
				w := g.word()
				whole += w
				g.add(&chunk.Thinking{Content: w})
			}
			if g.chance(70) {
				last := []string{whole, "", whole + "!"}[g.r.IntN(3)]
				g.add(&chunk.Thinking{Content: last, IsComplete: true, ProviderMetadata: json.RawMessage(`{"p":{"signature":"s"}}`)})
			}
		case 1:
			part := []string{"", "a", "b"}[g.r.IntN(3)]
			for range g.r.IntN(4) {
				g.add(&chunk.TextDelta{Delta: g.word(), PartID: part})
			}
		case 2, 3:
			g.calls++
			id := fmt.Sprintf("call%d", g.calls)
			g.add(&chunk.ToolArgStreamStart{ToolCallID: id, ToolName: "tool"})
			pieces := [][]string{{`{"a`, `":1}`}, {}, {`{"a":`, `"é`}, {`not json`}}[g.r.IntN(4)]
			for _, p := range pieces {
				g.add(&chunk.ToolArgStreamDelta{ToolCallID: id, Delta: p})
			}
			if len(pieces) != 2 || g.chance(50) {
				g.add(&chunk.ToolArgStreamEnd{ToolCallID: id, ToolName: "tool"})
			}
		case 4:
			g.event()
		case 5:
			g.add(&chunk.Citation{SourceID: "", URL: "https://example.org"})
		default:
			g.text(g.word(), g.word())
		}
	}
}

func (g *generator) event() {
	switch g.r.IntN(6) {
	case 0:
		g.add(&chunk.Progress{ID: fmt.Sprint("p", g.r.IntN(2)), Label: g.word(), State: "running"})
	case 1:
		g.add(&chunk.Custom{EventName: "note", Data: json.RawMessage(`{"n":1}`)})
	case 2:
		g.add(&chunk.Custom{EventName: "doc", ID: fmt.Sprint(g.r.IntN(2)), Data: json.RawMessage(fmt.Sprint(g.r.IntN(5)))})
	case 3:
		g.add(&chunk.Custom{EventName: "doc", ID: "t", Data: json.RawMessage("{\n}"), Transient: true})
	case 4:
		g.add(&chunk.ErrorChunk{Error: "a hiccup", Code: "rate_limited", Recoverable: true})
	default:
		g.add(&chunk.Unknown{Base: chunk.Base{AgentID: "s", RunID: g.run}, Type: "novel", Raw: json.RawMessage(`{"type":"novel","agentId":"s","runId":"` + g.run + `"}`)})
	}
}

// tools runs the calls of the step; false if the turn ended in the middle.
func (g *generator) tools(turn string) bool {
	m := g.fold.Message("a-" + turn)
	if m == nil {
		g.t.Fatal("no message")
	}
	m2 := m.Clone()
	for i := range m2.Parts {
		t := m2.Parts[i].Tool
		if t == nil || t.State.Done() {
			continue
		}
		if t.Input == nil {
			g.add(&chunk.ToolInputError{ToolCallID: t.CallID, ToolName: t.Name, Input: json.RawMessage(`"` + "bad" + `"`), Error: "not JSON"})
			continue
		}
		if g.chance(15) {
			command := "ok-" + t.CallID
			g.add(&chunk.ToolApprovalRequest{ApprovalID: "ap-" + t.CallID, ToolCallID: t.CallID, ToolName: t.Name, Input: t.Input})
			g.add(&chunk.RunSuspended{Kind: "awaiting_approval", ToolCallIDs: []string{t.CallID}})
			approved := g.chance(50)
			g.add(&chunk.ToolApprovalResponse{CommandID: command, ApprovalID: "ap-" + t.CallID, Approved: approved, Reason: "because"})
			g.nextRun(turn, command)
			if !approved {
				continue
			}
		}
		if g.chance(10) {
			command := "res-" + t.CallID
			g.add(&chunk.RunSuspended{Kind: "awaiting_client_tool", ToolCallIDs: []string{t.CallID}})
			g.add(&chunk.ToolResultSubmitted{CommandID: command, ToolCallID: t.CallID, Result: json.RawMessage(`{"c":1}`)})
			g.nextRun(turn, command)
			g.result(t.CallID, t.Name, `{"c":1}`)
			continue
		}
		g.dispatch(t.CallID, t.Name, string(t.Input))
		if g.chance(30) {
			g.event()
		}
		switch g.r.IntN(5) {
		case 0:
			g.add(&chunk.ToolEnd{ToolCallID: t.CallID, ToolName: t.Name, Result: json.RawMessage("null"), Error: "it broke"})
		case 1:
			g.add(&chunk.ToolEnd{ToolCallID: t.CallID, ToolName: t.Name, Result: json.RawMessage("1"), Preliminary: true, Success: true})
			g.result(t.CallID, t.Name, "2")
		case 2:
			g.add(&chunk.ToolOutputError{ToolCallID: t.CallID, Error: "it broke"})
		case 3:
			id := g.fold.NextChild()
			g.add(&chunk.SubAgentStart{SubAgentType: "x", SubSessionID: id, CallID: t.CallID},
				&chunk.TextDelta{Base: chunk.Base{AgentID: id, RunID: "child"}, Delta: "of no run"},
				&chunk.SubAgentEnd{SubAgentType: "x", SubSessionID: id, CallID: t.CallID})
			g.result(t.CallID, t.Name, `{"child":true}`)
		default:
			g.result(t.CallID, t.Name, `{"r": 1}`)
		}
	}
	return true
}
