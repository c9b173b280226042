package aisdk_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

// watcher is a page that follows sub-agents: what their parts hold, and what came
// in passing since.
type watcher struct {
	t      *testing.T
	client aisdk.Client
	agents map[string]*aisdk.SubAgentData
	bytes  map[string]int // of all that told of an agent
}

func newWatcher(t *testing.T) *watcher {
	return &watcher{t: t, agents: map[string]*aisdk.SubAgentData{}, bytes: map[string]int{}}
}

func (w *watcher) take(frames []spool.Frame) {
	w.t.Helper()
	for _, f := range frames {
		var e struct {
			Type string
			Data json.RawMessage
		}
		if f.Terminal || json.Unmarshal([]byte(strings.TrimPrefix(string(f.Data), "data: ")), &e) != nil {
			continue
		}
		if err := w.client.Write(f.Data); err != nil {
			w.t.Fatal(err)
		}
		switch e.Type {
		case "data-subagent":
			a := &aisdk.SubAgentData{}
			if err := json.Unmarshal(e.Data, a); err != nil {
				w.t.Fatal(err)
			}
			w.agents[a.SessionID] = a
			w.bytes[a.SessionID] += len(e.Data)
		case "data-subagent-live":
			var l aisdk.SubAgentLive
			if err := json.Unmarshal(e.Data, &l); err != nil {
				w.t.Fatal(err)
			}
			w.live(&l)
		}
	}
}

func (w *watcher) live(l *aisdk.SubAgentLive) {
	w.t.Helper()
	a := w.agents[l.SessionID]
	if a == nil {
		w.t.Fatalf("a live part of %s, which nothing was told of", l.SessionID)
	}
	i := slices.IndexFunc(a.Messages, func(m aisdk.UIMessage) bool { return m.ID == l.MessageID })
	if i < 0 {
		w.t.Fatalf("a live part of message %s, which %s has not", l.MessageID, l.SessionID)
	}
	parts := &a.Messages[i].Parts
	switch {
	case l.Index > len(*parts), l.Part == nil && !l.Retracted && l.Index == len(*parts):
		w.t.Fatalf("a live part at %d of %d", l.Index, len(*parts))
	case l.Retracted:
		*parts = (*parts)[:l.Index]
		return
	case l.Part != nil && l.Index == len(*parts):
		*parts = append(*parts, *l.Part)
	case l.Part != nil:
		(*parts)[l.Index] = *l.Part
	}
	(*parts)[l.Index].Text += l.Delta
}

// sees is what the page shows, without what only the part itself tells.
func (w *watcher) sees() string {
	w.t.Helper()
	for _, a := range w.agents {
		for i := range a.Messages {
			for j := range a.Messages[i].Parts {
				p := &a.Messages[i].Parts[j]
				if p.ProviderMetadata = nil; p.Type == "text" || p.Type == "reasoning" {
					p.State = ""
				}
				if p.State == aisdk.StateInputStreaming {
					p.Text, p.Input = "", nil
				}
			}
		}
	}
	data, err := json.Marshal(w.agents)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// TestLiveSubAgents: at every point, a page that attaches sees of sub-agents what
// one sees that never left; and that is what the log says of them.
func TestLiveSubAgents(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	log := wiretest.Agents()
	f := fold.New(wiretest.Session)
	for _, r := range log {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	words := 0
	for _, turn := range f.Turns {
		p := aisdk.NewProjector(wire.Subject{Turn: turn.ID}, nil)
		stayed := newWatcher(t)
		for _, r := range log {
			frames, err := p.Apply(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			stayed.take(frames)
			came := newWatcher(t)
			came.take(planOf(t, p))
			if got, want := came.sees(), stayed.sees(); got != want {
				t.Fatalf("turn %s at %d (%s of %s), who attaches sees\n%s\nwho never left\n%s", turn.ID, r.Seq, r.Type, r.Agent, got, want)
			}
			if r.Type == chunk.TypeTextDelta && r.Agent != wiretest.Session && len(frames) > 0 {
				words++
			}
		}
	}
	if words < 20 {
		t.Errorf("only %d deltas of sub-agents went by", words)
	}
}

// TestSubAgentsCostWhatTheySay: telling a sub-agent of many steps again costs a
// few times its size, not its square.
func TestSubAgentsCostWhatTheySay(t *testing.T) {
	t.Parallel()
	l := newLog(t).user("t").start("r", "t", "t").begin().call("c1", "ask", `{}`).said().dispatch("c1", "ask", `{}`)
	child := chunk.Base{AgentID: "s.1", RunID: "r.1"}
	one := func(c chunk.Chunk) { *c.ChunkBase() = child; l.add(c) }
	l.add(&chunk.SubAgentStart{SubAgentType: "x", SubSessionID: "s.1", CallID: "c1"})
	one(&chunk.RunStarted{TurnID: "ct", MessageID: "cm", Mode: "start"})
	text := strings.Repeat("word ", 100)
	for range 200 {
		one(&chunk.StepStarted{StepID: "step"})
		one(&chunk.TextDelta{Delta: text})
		one(&chunk.AssistantMessage{MessageID: "cm", StepID: "step", Parts: []chunk.Part{{Type: chunk.PartText, Text: text, First: uint64(len(l.records))}}})
		one(&chunk.StepCommitted{StepID: "step"})
	}
	one(&chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"})
	p := aisdk.NewProjector(wire.Subject{Turn: "t"}, nil)
	w := newWatcher(t)
	for _, r := range l.records {
		frames, err := p.Apply(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		w.take(frames)
	}
	size, _ := json.Marshal(w.agents["s.1"])
	if told := w.bytes["s.1"]; len(size) < 100_000 || told > 3*len(size) {
		t.Errorf("a sub-agent of %d bytes was told in %d", len(size), told)
	}
}
