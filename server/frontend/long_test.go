package frontend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/store/memstore"
)

// longSession is a session of so many turns, each with so many sub-agents.
func longSession(t testing.TB, turns, agents int) *frontend.Deps {
	t.Helper()
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	t.Cleanup(func() { logs.Close(); store.Close() })
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	lease, err := logs.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	w := g.Writer(lease, spool.WriterOptions{})
	t.Cleanup(func() { w.Close() })
	child := 0
	for turn := range turns {
		chunks := turnOf("s", fmt.Sprint("u", turn), fmt.Sprint("r", turn), func(call func(id string, between ...chunk.Chunk)) {
			for a := range agents {
				child++
				id, name := fmt.Sprint("c", turn, "-", a), fmt.Sprint("s.", child)
				between := []chunk.Chunk{&chunk.SubAgentStart{SubAgentType: "kid", SubSessionID: name, CallID: id}}
				between = append(between, turnOf(name, "u-"+name, fmt.Sprint("r", turn, ".", child, "-r1"), func(func(string, ...chunk.Chunk)) {})...)
				call(id, append(between, &chunk.SubAgentEnd{SubAgentType: "kid", SubSessionID: name, CallID: id, Result: json.RawMessage(`"ok"`)})...)
			}
		})
		if _, err := w.Commit(context.Background(), spool.Row{Status: chunk.StatusEnded}, &spool.Settle{Seen: 1 << 40}, chunks...); err != nil {
			t.Fatal(err)
		}
	}
	d := &frontend.Deps{Deps: chat.Deps{Logs: logs, ContentReplay: true}}
	if _, err := frontend.Messages(t.Context(), d, "s", frontend.MessagesOptions{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	return d
}

// turnOf are the kept records of a turn with calls.
func turnOf(agent, command, run string, calls func(call func(id string, between ...chunk.Chunk))) []chunk.Chunk {
	base := chunk.Base{AgentID: agent, AgentType: "kid", RunID: run, Step: 1}
	said := &chunk.AssistantMessage{MessageID: "m-" + command, StepID: run + "-s1", FinishReason: "stop",
		Parts: []chunk.Part{{Type: chunk.PartText, Text: "An answer of a few words, as they are."}}}
	var done []chunk.Chunk
	calls(func(id string, between ...chunk.Chunk) {
		said.Parts = append(said.Parts, chunk.Part{Type: chunk.PartTool, Tool: &chunk.ToolPart{CallID: id, Name: "ask", Input: json.RawMessage(`{}`)}})
		done = append(done, &chunk.ToolStart{ToolCallID: id, ToolName: "ask", Arguments: json.RawMessage(`{}`)})
		done = append(done, between...)
		done = append(done, &chunk.ToolEnd{ToolCallID: id, ToolName: "ask", Result: json.RawMessage(`"ok"`), Success: true})
	})
	chunks := []chunk.Chunk{
		&chunk.UserMessage{Base: chunk.Base{AgentID: agent}, CommandID: command, Message: chunk.Message{ID: command, Role: chunk.RoleUser,
			Parts: []chunk.Part{{Type: chunk.PartText, Text: "hi"}}}},
		&chunk.RunStarted{TurnID: command, MessageID: "m-" + command, Mode: chunk.ModeStart, Commands: []string{command}},
		&chunk.StepStarted{StepID: run + "-s1"}, said,
	}
	chunks = append(append(chunks, done...), &chunk.StepCommitted{StepID: run + "-s1"},
		&chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"})
	for _, c := range chunks {
		if b := c.ChunkBase(); b.AgentID == "" && !chunk.IsCommand(c.ChunkType()) {
			*b = base
		}
	}
	return chunks
}

// A page costs what the page holds, and a snapshot what the session holds, also with
// sub-agents in every turn.
func TestPagesAndSnapshotsAreLinear(t *testing.T) {
	var page, snapshot [2]float64
	for i, turns := range []int{100, 400} {
		d := longSession(t, turns, 4)
		for _, offset := range []int{0, turns, 2*turns - 20} {
			page[i] = max(page[i], testing.AllocsPerRun(5, func() {
				p, err := frontend.Messages(t.Context(), d, "s", frontend.MessagesOptions{Limit: 20, Offset: offset})
				if err != nil || p.Total != 2*turns || len(p.Messages) != 20 || len(p.Messages[1].Parts) != 11 {
					t.Fatalf("%+v, %v", p, err)
				}
			}))
		}
		snapshot[i] = testing.AllocsPerRun(2, func() {
			s, err := frontend.BuildSnapshot(t.Context(), d, frontend.SnapshotParams{Session: "s"})
			if err != nil || len(s.Messages) != 2*turns {
				t.Fatal(err)
			}
		})
	}
	if page[1] > page[0]*1.2 {
		t.Errorf("a page of 20 costs %v allocations among 100 turns, and %v among 400", page[0], page[1])
	}
	if snapshot[1] > snapshot[0]*5 {
		t.Errorf("a snapshot of 100 turns costs %v allocations, one of 400 %v", snapshot[0], snapshot[1])
	}
}

func BenchmarkLongSession(b *testing.B) {
	for _, turns := range []int{150, 600, 2400} {
		d := longSession(b, turns, 4)
		page := func(o frontend.MessagesOptions) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if p, err := frontend.Messages(b.Context(), d, "s", o); err != nil || p.Total != 2*turns {
						b.Fatal(p, err)
					}
				}
			}
		}
		b.Run(fmt.Sprintf("%d/page-first", turns), page(frontend.MessagesOptions{Limit: 20}))
		b.Run(fmt.Sprintf("%d/page-last", turns), page(frontend.MessagesOptions{Limit: 20, Offset: 2*turns - 20}))
		b.Run(fmt.Sprintf("%d/snapshot", turns), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := frontend.BuildSnapshot(b.Context(), d, frontend.SnapshotParams{Session: "s"}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/fold", turns), func(b *testing.B) {
			b.ReportAllocs()
			g, _ := d.Logs.Log("s")
			for b.Loop() {
				if f, err := g.FoldAt(b.Context(), g.Known().Seq); err != nil || len(f.Turns) != turns {
					b.Fatal(err)
				}
			}
		})
	}
}
