package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
)

func TestExternalRun(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		if res := w.produce(e, x, 0, &chunk.Thinking{Content: "hm", IsComplete: true}, &chunk.TextDelta{Delta: "Let me look. "}); res.First != 3 || res.Last != 4 {
			t.Errorf("stored at %d to %d", res.First, res.Last)
		}
		w.produce(e, x, 2, &chunk.ToolArgStreamStart{ToolCallID: "a", ToolName: "look"}, &chunk.ToolArgStreamEnd{ToolCallID: "a"},
			&chunk.ToolStart{ToolCallID: "a", ToolName: "look", Arguments: json.RawMessage(`{}`)})
		w.produce(e, x, 5, &chunk.Progress{ID: "p", Label: "looking"})
		w.produce(e, x, 6, &chunk.ToolEnd{ToolCallID: "a", ToolName: "look", Result: json.RawMessage(`7`), Success: true},
			&chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: "/n", Value: json.RawMessage(`7`)}}},
			&chunk.TextDelta{Delta: "It is 7."})
		w.produce(e, x, 9, ending(`{"type":"end","finishReason":"stop"}`)...)
		want := "run_started step_started thinking text_delta tool_arg_stream_start tool_arg_stream_end assistant_message tool_start progress tool_end " +
			"state_patch step_committed step_started text_delta assistant_message step_committed run_finished"
		if got := kinds(w.records("s")); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		f := w.fold("s")
		if f.Reason != "completed" || f.Messages[0].Text() != "Let me look. It is 7." || string(f.State) != `{"n":7}` {
			t.Errorf("%s %s %s", f.Reason, mustJSON(f.Messages), f.State)
		}
		if c := f.Call("a"); c.State != chunk.ToolCompleted || string(c.Output) != "7" {
			t.Errorf("call %s", mustJSON(c))
		}
		info, err := w.store.Session(w.t.Context(), "s")
		if err != nil || info.Status != chunk.StatusEnded || info.Title != "from outside" {
			t.Errorf("row %+v, %v", info, err)
		}
		if res := w.produce(e, x, 9, ending(`{"type":"end"}`)...); !res.Repeated {
			t.Errorf("the repeated end: %+v", res)
		}
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 10, words("more")); !errors.Is(err, stream.ErrProducerFenced) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// The error that the server writes for a failed run is no chunk of the producer's: what
// comes after the end is refused, here and on another node, and a repeat of the end is
// one.
func TestAfterAFailureNothingIsTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		own := []chunk.Chunk{&chunk.ErrorChunk{Error: "careful"}}
		w.produce(e, x, 0, append(own, ending(`{"type":"fail","error":"boom"}`)...)...)
		for name, node := range map[string]*stream.External{"here": e, "elsewhere": stream.NewExternal(w.process(), nil)} {
			if _, err := node.Append(w.t.Context(), "s", x.Epoch, 2, words("late")); !errors.Is(err, stream.ErrProducerFenced) {
				t.Errorf("%s, after the end: %v", name, err)
			}
			if res := w.produce(node, x, 1, ending(`{"type":"fail","error":"boom"}`)...); !res.Repeated {
				t.Errorf("%s, the end again: %+v", name, res)
			}
		}
	})
}

func TestProducerRepeatsNeverDouble(t *testing.T) {
	inWorld(t, func(w *world) {
		e, other := stream.NewExternal(w.logs, nil), stream.NewExternal(w.logs, nil) // a second node
		x := w.claim(e, "s")
		w.produce(e, x, 0, words("a", "b")...)
		if res := w.produce(e, x, 0, words("a", "b")...); !res.Repeated {
			t.Errorf("%+v", res)
		}
		w.produce(other, x, 0, words("a", "b")...)
		w.produce(other, x, 0, words("a", "b", "c")...) // only c is new
		w.produce(e, x, 1, words("b", "c", "d")...)
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 5, words("f")); !errors.Is(err, stream.ErrProducerGap) {
			t.Errorf("a gap: %v", err)
		}
		w.produce(other, x, 4, ending(`{"type":"end"}`)...)
		if got := w.fold("s").Messages[0].Text(); got != "abcd" {
			t.Errorf("got %q", got)
		}
	})
}

// Messages that arrive between the records of one append do not interrupt it.
func TestCommandsBetweenAnAppendsRecords(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		w.produce(e, x, 0, words("a")...)
		said := 0
		w.store.between = func(a spool.Append) {
			if a.Epoch == x.Epoch && said < 2 {
				said++
				w.command(w.logs, "s", say(fmt.Sprint("u", said), "hello?"))
			}
		}
		if res := w.produce(e, x, 1, append(words("b"), ending(`{"type":"end"}`)...)...); res.Repeated {
			t.Errorf("%+v", res)
		}
		f := w.fold("s")
		if got := f.Messages[0].Text(); got != "ab" || f.Status != chunk.StatusEnded || said != 2 {
			t.Errorf("%q, %s after %d messages", got, f.Status, said)
		}
	})
}

func TestTwoNodesAppendTheSame(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := []*stream.External{stream.NewExternal(w.logs, nil), stream.NewExternal(w.logs, nil), stream.NewExternal(w.logs, nil)}
		x := w.claim(nodes[0], "s")
		want := ""
		for seq := range 30 {
			text := fmt.Sprintf("%d ", seq)
			want += text
			done := make(chan error, len(nodes))
			for _, e := range nodes {
				go func() {
					_, err := e.Append(w.t.Context(), "s", x.Epoch, uint64(seq), words(text))
					done <- err
				}()
			}
			for range nodes {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		w.produce(nodes[1], x, 30, ending(`{"type":"end"}`)...)
		if got := w.fold("s").Messages[0].Text(); got != want {
			t.Errorf("got %q", got)
		}
	})
}

func TestProducerWritesOnlyWhatIsIts(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		before := len(w.records("s"))
		for name, tt := range map[string]struct {
			chunks []chunk.Chunk
			want   error
		}{
			"lifecycle":  {[]chunk.Chunk{&chunk.TextDelta{Delta: "a"}, &chunk.RunFinished{Outcome: "completed"}}, stream.ErrProducerKind},
			"command":    {[]chunk.Chunk{say("u1", "hi")}, stream.ErrProducerKind},
			"unknown":    {ending(`{"type":"teapot"}`), stream.ErrProducerKind},
			"early end":  {append(ending(`{"type":"end"}`), words("a")...), stream.ErrProducerKind},
			"large":      {words(strings.Repeat("x", 1<<20)), chunk.ErrTooLarge},
			"wrong type": {ending(`{"type":"text_delta","delta":7}`), chunk.ErrInvalidChunk},
		} {
			if _, err := e.Append(w.t.Context(), "s", x.Epoch, 0, tt.chunks); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		forged := &chunk.TextDelta{Base: chunk.Base{AgentID: "other", RunID: "r", Step: 9}, Delta: "a"}
		w.produce(e, x, 0, forged)
		records := w.records("s")
		if len(records) != before+1 {
			t.Errorf("%d records", len(records)-before)
		}
		if b := mustDecode(records[before]).ChunkBase(); b.AgentID != "s" || b.RunID != x.RunID || b.Step != 1 || b.AgentType != "script" {
			t.Errorf("base %+v", b)
		}
		w.produce(e, x, 1, ending(`{"type":"end"}`)...)
	})
}

func TestProducerAnswersAWaitingMessage(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		w.command(w.logs, "s", say("u1", "is anyone there?"))
		x := w.claim(e, "s")
		w.produce(e, x, 0, words("yes")...)
		w.produce(e, x, 1, ending(`{"type":"end"}`)...)
		f := w.fold("s")
		if x.TurnID != "u1" || len(f.Turns) != 1 || len(f.Messages) != 2 || f.Verdict("u1").RunID != x.RunID {
			t.Errorf("%+v: %s", x, mustJSON(f.Turns))
		}
	})
}

func TestProducerPausesAndGoesOn(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		w.produce(e, x, 0, words("one ")...)
		w.produce(e, x, 1, ending(`{"type":"pause"}`)...)
		if f := w.fold("s"); f.Status != chunk.StatusPaused {
			t.Errorf("status %s", f.Status)
		}
		time.Sleep(time.Minute)
		y := w.claim(e, "s")
		if y.TurnID != x.TurnID || y.MessageID != x.MessageID || y.Epoch <= x.Epoch {
			t.Errorf("%+v after %+v", y, x)
		}
		w.produce(e, y, 0, words("two")...)
		w.produce(e, y, 1, ending(`{"type":"end"}`)...)
		f := w.fold("s")
		if len(f.Turns) != 1 || len(f.Messages) != 1 || f.Messages[0].Text() != "one two" {
			t.Errorf("%s", mustJSON(f.Messages))
		}
	})
}

func TestProducerIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		w.produce(e, x, 0, words("one ")...)
		w.command(w.logs, "s", &chunk.StopRequested{CommandID: "x1"})
		synctest.Wait()
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 1, words("two")); !errors.Is(err, stream.ErrProducerStopped) {
			t.Errorf("got %v", err)
		}
		f := w.wantStopped("s")
		if got := f.Messages[0].Text(); got != "one " {
			t.Errorf("kept %q", got)
		}
	})
}

// A producer that does not hear the answer to its claim repeats it, on any node, and gets
// the same run: while it is open, and after its claim has expired, if nobody took it.
func TestClaimsAreRepeated(t *testing.T) {
	inWorld(t, func(w *world) {
		e, other := stream.NewExternal(w.logs, nil), stream.NewExternal(w.process(), nil)
		c := stream.ExternalClaim{AgentType: "script", CommandID: "claim 1"}
		x, err := e.Claim(w.t.Context(), "s", c)
		if err != nil {
			t.Fatal(err)
		}
		repeats := func(node *stream.External) {
			t.Helper()
			if again, err := node.Claim(w.t.Context(), "s", c); err != nil || again != x {
				t.Errorf("got %+v, %v; want %+v", again, err, x)
			}
		}
		repeats(e)
		repeats(other)
		w.produce(other, x, 0, words("a", "b")...)
		repeats(e)
		w.produce(e, x, 0, words("a", "b", "c")...)
		time.Sleep(time.Minute) // nobody has taken the expired claim
		repeats(other)
		w.produce(e, x, 3, words("d")...)
		for name, bad := range map[error]stream.ExternalClaim{
			spool.ErrBusy:       {AgentType: "script", CommandID: "claim 2"},
			chunk.ErrIDConflict: {AgentType: "another", CommandID: c.CommandID},
			chunk.ErrInvalidID:  {CommandID: "a\x00b"},
			spool.ErrExists:     {CommandID: c.CommandID, Row: spool.Row{Principal: "eve"}},
		} {
			if _, err := other.Claim(w.t.Context(), "s", bad); !errors.Is(err, name) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		w.produce(e, x, 4, ending(`{"type":"end"}`)...)
		for _, node := range []*stream.External{e, other} {
			if _, err := node.Claim(w.t.Context(), "s", c); !errors.Is(err, stream.ErrProducerFenced) {
				t.Errorf("after the end: %v", err)
			}
		}
		if f := w.fold("s"); f.Messages[0].Text() != "abcd" || len(f.Turns) != 1 || f.Turns[0].LastRun().ID != x.RunID {
			t.Errorf("%s", mustJSON(f.Turns))
		}
		next, err := e.Claim(w.t.Context(), "s", stream.ExternalClaim{CommandID: "claim 2"})
		if err != nil || next.RunID == x.RunID || next.Epoch <= x.Epoch {
			t.Errorf("the next claim: %+v, %v", next, err)
		}
	})
}

// A claim is cut before or after its run is stored: its repeat opens the run, or finds it.
func TestClaimsAreCutAnywhere(t *testing.T) {
	for _, stored := range []bool{false, true} {
		inWorld(t, func(w *world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			defer cancel()
			if stored {
				w.store.lose = func(a spool.Append) bool { return true }
			} else {
				w.store.claimed = cancel
			}
			c := stream.ExternalClaim{CommandID: "claim 1"}
			if x, err := stream.NewExternal(w.logs, nil).Claim(ctx, "s", c); err == nil {
				t.Errorf("stored %v: the claim was not cut: %+v", stored, x)
			}
			w.store.lose, w.store.claimed = nil, nil
			e := stream.NewExternal(w.process(), nil)
			x, err := e.Claim(w.t.Context(), "s", c)
			if err != nil || x.Epoch != 1 {
				t.Fatalf("stored %v: %+v, %v", stored, x, err)
			}
			w.produce(e, x, 0, words("a")...)
			w.produce(e, x, 1, ending(`{"type":"end"}`)...)
			if got := kinds(w.records("s")); got != "run_started step_started text_delta assistant_message step_committed run_finished" {
				t.Errorf("stored %v: %s", stored, got)
			}
		})
	}
}
