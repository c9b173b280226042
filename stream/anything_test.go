package stream_test

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
)

// anything makes a chunk of any kind, whether a producer may write it or not.
func anything(rnd *rand.Rand) chunk.Chunk {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	call, child := pick("a", "b", "c"), pick("s.1", "s.2", "kid", "s.1.1")
	data := json.RawMessage(pick(`{}`, `1`, `"x"`, `null`, `[{"y":2}]`))
	c := []func() chunk.Chunk{
		func() chunk.Chunk { return &chunk.TextDelta{Delta: pick("Hel", "lo ", ""), PartID: pick("", "", "p")} },
		func() chunk.Chunk { return &chunk.Thinking{Content: "hm", IsComplete: rnd.IntN(2) == 0} },
		func() chunk.Chunk { return &chunk.ToolArgStreamStart{ToolCallID: call, ToolName: "t"} },
		func() chunk.Chunk { return &chunk.ToolArgStreamDelta{ToolCallID: call, Delta: `{"x":`} },
		func() chunk.Chunk { return &chunk.ToolArgStreamEnd{ToolCallID: call} },
		func() chunk.Chunk { return &chunk.ToolStart{ToolCallID: call, ToolName: "t", Arguments: data} },
		func() chunk.Chunk {
			return &chunk.ToolEnd{ToolCallID: call, Result: data, Error: pick("", "", "no"), Preliminary: rnd.IntN(4) == 0}
		},
		func() chunk.Chunk { return &chunk.ToolEnd{ToolCallID: call, Error: "no", Fatal: true} },
		func() chunk.Chunk { return &chunk.ToolInputError{ToolCallID: call, ToolName: "t", Error: "bad"} },
		func() chunk.Chunk { return &chunk.ToolOutputError{ToolCallID: call, Error: "bad"} },
		func() chunk.Chunk {
			return &chunk.SubAgentStart{SubAgentType: "kid", SubSessionID: child, CallID: call, Mode: pick("", "", chunk.ChildBackground, chunk.ChildBlocking)}
		},
		func() chunk.Chunk {
			return &chunk.SubAgentEnd{SubAgentType: "kid", SubSessionID: child, CallID: call, Result: data}
		},
		func() chunk.Chunk {
			return &chunk.Custom{EventName: "note", Data: data, ID: pick("", "n"), Transient: rnd.IntN(3) == 0}
		},
		func() chunk.Chunk { return &chunk.Progress{ID: pick("p", "q"), State: "running"} },
		func() chunk.Chunk {
			return &chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: pick("add", "remove", "replace"), Path: pick("/a", "/a/b", "/c"), Value: json.RawMessage(`{"z":1}`)}}}
		},
		func() chunk.Chunk { return &chunk.Citation{SourceID: "src", URL: "https://example.com"} },
		func() chunk.Chunk { return &chunk.File{URL: "data:,x", MediaType: "text/plain"} },
		func() chunk.Chunk { return &chunk.UsageReport{} },
		func() chunk.Chunk {
			return &chunk.ErrorChunk{Error: "careful", Recoverable: rnd.IntN(2) == 0, Fatal: rnd.IntN(2) == 0}
		},
		func() chunk.Chunk { return &chunk.Output{Output: data} },
		func() chunk.Chunk { return &chunk.RunStarted{TurnID: "t", MessageID: "m", Mode: "start"} },
		func() chunk.Chunk { return &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"} },
		func() chunk.Chunk { return &chunk.RunSuspended{Kind: chunk.SuspendedInterrupted} },
		func() chunk.Chunk { return &chunk.AssistantMessage{MessageID: "m", Parts: []chunk.Part{}} },
		func() chunk.Chunk { return &chunk.StepStarted{StepID: "x"} },
		func() chunk.Chunk { return &chunk.StepCommitted{StepID: "x"} },
		func() chunk.Chunk { return &chunk.StepDiscarded{StepID: "x", Reason: "rollback"} },
		func() chunk.Chunk { return &chunk.AnswerStarted{StepID: "x", Cursor: "c"} },
		func() chunk.Chunk { return &chunk.CheckpointCreated{CheckpointID: pick("cp1", "cp2")} },
		func() chunk.Chunk { return &chunk.RunInterrupted{} },
		func() chunk.Chunk { return &chunk.RunPaused{Reason: "confirm"} },
		func() chunk.Chunk { return &chunk.RunResumed{Mode: "continue"} },
		func() chunk.Chunk { return &chunk.StreamResync{Reason: pick("crash_recovery", "rollback", "branch")} },
		func() chunk.Chunk { return &chunk.ExecutorSuperseded{} },
		func() chunk.Chunk { return &chunk.ExecutorHandedOver{Epoch: 1} },
		func() chunk.Chunk {
			return &chunk.ToolApprovalRequest{ApprovalID: "ap" + call, ToolCallID: call, ToolName: "t", Input: data}
		},
		func() chunk.Chunk { return say("u9", "hi") },
		func() chunk.Chunk { return &chunk.HistoryReplaced{CommandID: "h"} },
		func() chunk.Chunk {
			return &chunk.Unknown{Type: "teapot", Raw: json.RawMessage(`{"type":"teapot","agentId":"who"}`)}
		},
	}[rnd.IntN(39)]()
	if b := c.ChunkBase(); c.ChunkType() != "teapot" {
		b.AgentID, b.Step = pick("", "", "", "s", "run-7", child), rnd.IntN(4)
		b.RunID = pick("", "", "run-7")
	}
	return c
}

// Whatever producers write, pause, take over and end in whatever order, the stream ends
// when they say so: for its fold, its readers and every wire.
func TestStreamsOfAnythingEnd(t *testing.T) {
	for seed := range uint64(300) {
		inWorld(t, func(w *world) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			managers := []*stream.Manager{stream.NewManager(w.logs, nil), stream.NewManager(w.process(), nil)}
			m := managers[0]
			var out *stream.Writer
			for range 10 + rnd.IntN(50) {
				var err error
				switch at := rnd.IntN(40); {
				case out == nil || at == 0:
					m = managers[rnd.IntN(2)]
					out, err = m.CreateWriter(w.t.Context(), "s", "", "writer")
				case at == 1:
					err = m.PauseStream(w.t.Context(), "s")
					out = nil
				case at == 2:
					err = m.EndStream(w.t.Context(), "s", nil)
					out = nil
				default:
					err = out.Write(w.t.Context(), anything(rnd))
					if errors.Is(err, stream.ErrProducerKind) || errors.Is(err, chunk.ErrInvalidChunk) {
						err = nil
					}
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if rnd.IntN(3) == 0 {
				if err := m.FailStream(w.t.Context(), "s", "boom"); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if out, err := m.CreateWriter(w.t.Context(), "s", "", ""); err != nil || m.EndStream(w.t.Context(), "s", json.RawMessage(`7`)) != nil {
				t.Fatalf("seed %d: %v, %v", seed, out, err)
			}
			w.wantEnded(seed, m)
		})
	}
}

func (w *world) wantEnded(seed uint64, m *stream.Manager) {
	w.t.Helper()
	f := w.fold("s")
	h, err := w.log("s").Head(w.t.Context())
	if f.Status != chunk.StatusEnded || f.Live() || f.OpenRun() != nil || err != nil || h.Status != chunk.StatusEnded || h.Due != 0 {
		w.t.Errorf("seed %d: %s, live %v, head %+v, %v", seed, f.Status, f.Live(), h, err)
	}
	for _, p := range f.Messages[len(f.Messages)-1].Parts {
		if p.Open || p.Tool != nil && !p.Tool.State.Done() {
			w.t.Errorf("seed %d: a part is open: %s", seed, mustJSON(p))
		}
	}
	r, err := m.CreateResumableReader(w.t.Context(), "s", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for err == nil {
		_, err = r.Next(w.t.Context())
	}
	if err != io.EOF || r.End().Status != chunk.StatusEnded {
		w.t.Errorf("seed %d: a reader ends with %v, %+v", seed, err, r.End())
	}
	turn := f.LastTurn().ID
	for name, p := range map[string]spool.Projector{
		"aisdk": aisdk.NewProjector(wire.Subject{Turn: turn, Agent: "s"}, nil), "merlin": merlin.NewProjector(turn, nil),
	} {
		terminal := false
		for _, rec := range w.records("s") {
			frames, err := p.Apply(nil, rec)
			if err != nil {
				w.t.Fatalf("seed %d: %s: %v", seed, name, err)
			}
			if len(frames) > 0 {
				terminal = frames[len(frames)-1].Terminal
			}
		}
		if plan, err := p.Plan(); err != nil || !terminal || len(plan) == 0 || !plan[len(plan)-1].Terminal {
			w.t.Errorf("seed %d: %s does not end: %v, %d frames of the plan", seed, name, err, len(plan))
		}
	}
}
