package runner_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

// hasty are scenarios whose user answers while a call of the same step still
// runs: all that is asked for, or only the first call.
func hasty() []scenario {
	play := func(effect func(tool.Call)) *agent.Agent {
		o := tool.Options{Recovery: tool.RecoverRetry}
		slowly := func(c tool.Call) { time.Sleep(time.Second); effect(c) }
		gated := o
		gated.Approval = true
		return &agent.Agent{Name: "demo",
			Tools: []tool.Tool{effectful("work", slowly, o), effectful("gated", effect, gated), tool.Client[struct{}]("locate", "")},
			Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
				"hasty": then(scripted.Say(scripted.Text("may I? "), scripted.Calls(call("a", "gated", `{"n":1}`), call("b", "work", `{"n":2}`),
					call("c", "locate", `{}`), call("d", "gated", `{"n":3}`)))),
				"half": then(scripted.Say(scripted.Calls(call("a", "gated", `{"n":1}`), call("b", "work", `{"n":2}`), call("c", "locate", `{}`)))),
			}}),
		}
	}
	decide := func(callID, approvalID string) chunk.Chunk {
		return &chunk.ToolApprovalResponse{CommandID: "answer-" + callID, ApprovalID: approvalID, Approved: callID == "a", Reason: "because"}
	}
	submit := func(callID string) chunk.Chunk {
		return &chunk.ToolResultSubmitted{CommandID: "answer-" + callID, ToolCallID: callID, Result: json.RawMessage(`{"lat":52.5}`)}
	}
	answer := func(t *chunk.ToolPart) chunk.Chunk {
		if t.Approval == nil {
			return submit(t.CallID)
		}
		return decide(t.CallID, t.Approval.ID)
	}
	all := func(asked chunk.Chunk) chunk.Chunk {
		switch c := asked.(type) {
		case *chunk.ToolApprovalRequest:
			return decide(c.ToolCallID, c.ApprovalID)
		case *chunk.ToolStart:
			if c.Client {
				return submit(c.ToolCallID)
			}
		}
		return nil
	}
	decisions := func(asked chunk.Chunk) chunk.Chunk {
		if _, ok := asked.(*chunk.ToolApprovalRequest); ok {
			return all(asked)
		}
		return nil
	}
	return []scenario{
		{name: "hasty", agent: play, answer: answer, early: all},
		{name: "half", agent: play, answer: answer, early: decisions},
	}
}

// hasten gives a scenario's early answers, those that are not given yet, until the
// test ends.
func (w *world) hasten(s scenario) {
	if s.early == nil {
		return
	}
	given := map[string]bool{}
	for _, r := range w.records("s") {
		given[chunk.CommandID(w.decode(r))] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	g := w.log("s")
	go func() {
		defer close(done)
		for r, err := range g.Records(ctx, spool.ReadOptions{Follow: true}) {
			if err != nil {
				return
			}
			if answer := s.early(w.decode(r)); answer != nil && !given[chunk.CommandID(answer)] {
				if _, err := g.Command(ctx, spool.Row{}, answer); err != nil {
					w.t.Error(err)
				}
			}
		}
	}()
	*w.ends = append(*w.ends, func() { cancel(); <-done })
}

// A call that is answered while others run is not asked for again: the run goes on
// without a pause, or pauses for the rest alone.
func TestAnswersWhileTheRunIsOpen(t *testing.T) {
	for _, s := range hasty() {
		t.Run(s.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var e effects
				w.start(s.agent(e.add), nil)
				w.say("s", "u1", s.name)
				w.hasten(s)
				f := w.fold("s")
				run := f.Turns[0].Runs[0]
				for _, id := range []string{"answer-a", "answer-c", "answer-d"} {
					v := f.Verdict(id)
					switch {
					case s.name == "hasty" && (v.State != fold.VerdictAccepted || v.RunID != run.ID || v.From <= run.Start || v.From >= run.End):
						t.Errorf("%s: %+v, run %+v", id, v, run)
					case s.name == "half" && id == "answer-a" && v != fold.Verdict{State: fold.VerdictAccepted}:
						t.Errorf("%s: %+v", id, v)
					}
				}
				want := "completed"
				if s.name == "half" {
					want = "awaiting_client_tool"
					if !slices.Equal(run.Pending, []string{"c"}) || e.count("a") != 0 {
						t.Errorf("it waits for %v, %v", run.Pending, e.calls())
					}
				}
				if f.Reason != want || len(f.Turns[0].Runs) != 1 {
					t.Fatalf("%s, %s", f.Reason, kinds(w.settled("s")))
				}
				f = w.finish(s)
				if f.Reason != "completed" || e.count("a") != 1 || e.count("b") != 1 || e.count("d") != 0 {
					t.Errorf("%s, %v: %s", f.Reason, e.calls(), outcome(f))
				}
				if n := len(f.Turns[0].Runs); s.name == "half" && (n != 2 || !slices.Equal(f.Turns[0].Runs[1].Commands, []string{"answer-a", "answer-c"})) {
					t.Errorf("%d runs, %v", n, f.Turns[0].Runs[n-1].Commands)
				}
				checkLog(t, w.settled("s"))
			})
		})
	}
}

// An answer that no call waits for while the run is open is refused: one that
// runs, one that was answered, one that does not exist.
func TestForgedAnswersWhileTheRunIsOpen(t *testing.T) {
	inWorld(t, func(w *world) {
		s := hasty()[0]
		w.start(s.agent(func(tool.Call) {}), nil)
		w.say("s", "u1", "hasty")
		w.until("s", chunk.TypeToolApprovalRequest, func(c chunk.Chunk) bool { return c.(*chunk.ToolApprovalRequest).ToolCallID == "d" })
		asked := w.peek()
		w.command("s",
			&chunk.ToolResultSubmitted{CommandID: "running", ToolCallID: "b", Result: json.RawMessage(`"trust me"`)},
			&chunk.ToolResultSubmitted{CommandID: "gated", ToolCallID: "a", Result: json.RawMessage(`"trust me"`)},
			&chunk.ToolApprovalResponse{CommandID: "made-up", ApprovalID: "made-up", Approved: true},
			&chunk.ToolApprovalResponse{CommandID: "deny", ApprovalID: asked.Call("a").Approval.ID},
			&chunk.ToolApprovalResponse{CommandID: "after-all", ApprovalID: asked.Call("a").Approval.ID, Approved: true},
			&chunk.ToolResultSubmitted{CommandID: "first", ToolCallID: "c", Result: json.RawMessage(`1`)},
			&chunk.ToolResultSubmitted{CommandID: "second", ToolCallID: "c", Result: json.RawMessage(`2`)})
		f := w.finish(s)
		for id, want := range map[string]fold.VerdictState{"running": fold.VerdictRefused, "gated": fold.VerdictRefused, "made-up": fold.VerdictRefused,
			"deny": fold.VerdictAccepted, "after-all": fold.VerdictRefused, "first": fold.VerdictAccepted, "second": fold.VerdictRefused} {
			if got := f.Verdict(id).State; got != want {
				t.Errorf("%s: %s", id, got)
			}
		}
		if a, c := f.Call("a"), f.Call("c"); a.State != chunk.ToolDenied || string(c.Output) != "1" || f.Reason != "completed" {
			t.Errorf("%s: %s %s", f.Reason, mustJSON(a), mustJSON(c))
		}
	})
}

// The last answer comes in the very moment in which the run pauses.
func TestAnswerInTheMomentOfThePause(t *testing.T) {
	inWorld(t, func(w *world) {
		s := hasty()[0]
		w.start(s.agent(func(tool.Call) {}), nil)
		w.say("s", "u1", "hasty")
		w.until("s", chunk.TypeRunSuspended, nil)
		records := w.settled("s")
		f := fold.New("s")
		for _, r := range records[:len(records)-1] {
			if err := f.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		last := records[len(records)-1]
		for _, id := range []string{"a", "c", "d"} {
			answer := s.answer(f.Call(id))
			f.ApplyChunk(chunk.Record{Seq: last.Seq, Type: answer.ChunkType(), Agent: "s"}, answer)
			last.Seq++
		}
		if err := f.Apply(last); err != nil {
			t.Fatal(err)
		}
		if f.Continue == nil || f.Continue.Mode != "approval" || f.Status != chunk.StatusPaused || len(f.Answers) != 3 {
			t.Errorf("it waits for ever: %s", mustJSON(f))
		}
	})
}
