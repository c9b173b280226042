package stream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
)

// Where the claim is known, deltas cost the store one append and nothing else.
func TestWarmAppendAsksTheStoreOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		e, other := stream.NewExternal(w.logs, nil), stream.NewExternal(w.process(), nil)
		x := w.claim(e, "s")
		w.store.took()
		once := map[string]int{"append": 1}
		seq := uint64(0)
		for _, n := range []int{1, 1, 20, 998} {
			w.produce(e, x, seq, words(strings.Split(strings.Repeat("a ", n-1)+"b", " ")...)...)
			seq += uint64(n)
			w.wantCalls(once, fmt.Sprint(n, " deltas"))
		}
		w.produce(e, x, seq)
		w.wantCalls(once, "a sign of life")
		// Where it is not known, the log is read once.
		w.produce(other, x, seq, words("c")...)
		if calls := w.store.took(); calls["append"] != 1 || calls["head"] == 0 || calls["read"] == 0 || calls["renew"]+calls["claim"] != 0 {
			t.Errorf("the first append on another node: %v", calls)
		}
		w.produce(other, x, seq+1, words("d")...)
		w.wantCalls(once, "the next one there")
		// A message that waits does not cost more than one look.
		queued := say("u1", "hello")
		queued.WhenBusy = chunk.BusyQueue
		for i, l := range []*spool.Logs{w.logs, w.process()} {
			queued.CommandID = fmt.Sprint("u", i)
			w.command(l, "s", queued)
			w.produce(other, x, seq+2, words("e")...)
			w.store.took()
			w.produce(other, x, seq+3, words("f")...)
			w.wantCalls(once, "deltas while a message waits")
			seq += 2
		}
		// Acts of one POST are one append, with what belongs between them.
		seq += 2
		start := &chunk.ToolStart{ToolCallID: "a", ToolName: "look", Arguments: json.RawMessage(`{}`)}
		w.produce(other, x, seq, start)
		w.wantCalls(map[string]int{"append": 1, "head": 1}, "the end of the words")
		w.produce(other, x, seq+1, &chunk.ToolEnd{ToolCallID: "a", ToolName: "look", Result: json.RawMessage(`7`), Success: true}, words("g")[0])
		w.wantCalls(map[string]int{"append": 1, "head": 1}, "the next step")
	})
}

// TestLostAnswers: the store takes an append and its answer is lost, at every
// append in turn. The producer sends the same again, to this node or to another.
func TestLostAnswers(t *testing.T) {
	script := [][]chunk.Chunk{words("one ", "two "),
		{words("three ")[0], &chunk.ToolStart{ToolCallID: "a", ToolName: "look", Arguments: json.RawMessage(`{}`)},
			&chunk.ToolEnd{ToolCallID: "a", ToolName: "look", Result: json.RawMessage(`7`), Success: true}, words("four ")[0]},
		words("five"), ending(`{"type":"end"}`)}
	want := "run_started step_started text_delta text_delta text_delta assistant_message tool_start tool_end " +
		"step_committed step_started text_delta text_delta assistant_message step_committed run_finished"
	for lost := range 8 {
		for _, elsewhere := range []bool{false, true} {
			inWorld(t, func(w *world) {
				nodes := []*stream.External{stream.NewExternal(w.logs, nil), stream.NewExternal(w.process(), nil)}
				x := w.claim(nodes[0], "s")
				n, failures := 0, 0
				w.store.lose = func(spool.Append) bool { n++; return n == lost+1 }
				seq, node := uint64(0), 0
				for _, post := range script {
					_, err := nodes[node].Append(w.t.Context(), "s", x.Epoch, seq, post)
					if err != nil {
						failures++
						if elsewhere {
							node = 1 - node
						}
						w.produce(nodes[node], x, seq, post...)
					}
					seq += uint64(len(post))
				}
				if got := kinds(w.records("s")); got != want || failures == 0 && n > lost {
					t.Errorf("append %d lost, %d failures:\ngot  %s\nwant %s", lost, failures, got, want)
				}
				if got := w.fold("s").Messages[0].Text(); got != "one two three four five" {
					t.Errorf("append %d lost: %q", lost, got)
				}
			})
		}
	}
}

// TestNodesAreAskedForPartsOfTheSame: whichever node is asked for which part of what a
// producer says, at the same time and again, every chunk is in the log once.
func TestNodesAreAskedForPartsOfTheSame(t *testing.T) {
	for seed := range uint64(20) {
		inWorld(t, func(w *world) {
			var nodes []*stream.External
			for range 3 {
				nodes = append(nodes, stream.NewExternal(w.process(), nil))
			}
			x := w.claim(nodes[0], "s")
			var all []func() chunk.Chunk
			want := ""
			for i := range 60 {
				switch i % 7 {
				case 3:
					all = append(all, func() chunk.Chunk {
						return &chunk.ToolStart{ToolCallID: fmt.Sprint(i), ToolName: "look", Arguments: json.RawMessage(`{}`)}
					})
				case 4:
					all = append(all, func() chunk.Chunk {
						return &chunk.ToolEnd{ToolCallID: fmt.Sprint(i - 1), ToolName: "look", Result: json.RawMessage(`7`), Success: true}
					})
				default:
					want += fmt.Sprint(i, " ")
					all = append(all, func() chunk.Chunk { return words(fmt.Sprint(i, " "))[0] })
				}
			}
			var wg sync.WaitGroup
			for n, e := range nodes {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(n)))
					for done := 0; done < len(all); {
						from := max(0, done-rnd.IntN(4))
						to := min(len(all), done+1+rnd.IntN(6))
						var chunks []chunk.Chunk
						for _, mk := range all[from:to] {
							chunks = append(chunks, mk())
						}
						_, err := e.Append(w.t.Context(), "s", x.Epoch, uint64(from), chunks)
						switch {
						case err == nil:
							done = to
						case !errors.Is(err, spool.ErrUnavailable):
							t.Errorf("node %d, %d to %d: %v", n, from, to, err)
							return
						}
					}
				})
			}
			wg.Wait()
			w.produce(nodes[1], x, uint64(len(all)), ending(`{"type":"end"}`)...)
			if got := w.fold("s").Messages[0].Text(); got != want {
				t.Errorf("seed %d: %q, want %q", seed, got, want)
			}
		})
	}
}

// An append that the store cannot take whole is several, and repeats of it still
// never double.
func TestLargeAppends(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes := []*stream.External{stream.NewExternal(w.logs, nil), stream.NewExternal(w.process(), nil)}
		x := w.claim(nodes[0], "s")
		text := strings.Repeat("x", 60<<10)
		var wg sync.WaitGroup
		for _, e := range nodes {
			wg.Go(func() {
				for {
					chunks := words(text, text, text, text, text, text, text, text, text, text, text, text, text, text, text, text, text, text, text, text)
					_, err := e.Append(w.t.Context(), "s", x.Epoch, 0, chunks)
					if err == nil {
						return
					}
					if !errors.Is(err, spool.ErrUnavailable) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		w.produce(nodes[1], x, 20, ending(`{"type":"end"}`)...)
		if got := len(w.fold("s").Messages[0].Text()); got != 20*len(text) {
			t.Errorf("%d bytes, want %d", got, 20*len(text))
		}
	})
}

// A stop that another process took is seen in the result of the next append.
func TestStopFromElsewhere(t *testing.T) {
	inWorld(t, func(w *world) {
		elsewhere := w.process()
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		w.produce(e, x, 0, words("one ")...)
		w.command(elsewhere, "s", &chunk.StopRequested{CommandID: "x"})
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 1, words("two")); !errors.Is(err, stream.ErrProducerStopped) {
			t.Errorf("got %v", err)
		}
		w.wantStopped("s")
		x = w.claim(e, "s")
		w.command(elsewhere, "s", &chunk.StopRequested{CommandID: "y"})
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 0, nil); !errors.Is(err, stream.ErrProducerStopped) {
			t.Errorf("a sign of life: %v", err)
		}
		w.wantStopped("s")
	})
}

// The rule: a producer never takes an agent's open run, whichever door it comes by
// and whether the agent's lease lives or not.
func TestAgentsRunIsNeverTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.agentRun("s").Close()
		before, err := w.log("s").Head(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m, e := stream.NewManager(w.logs, nil), stream.NewExternal(w.logs, nil)
		for _, wait := range []time.Duration{0, time.Hour} {
			time.Sleep(wait)
			_, claimed := e.Claim(w.t.Context(), "s", stream.ExternalClaim{})
			_, created := m.CreateWriter(w.t.Context(), "s", "", "")
			for name, err := range map[string]error{"claim": claimed, "writer": created, "resume": m.ResumeStream(w.t.Context(), "s"),
				"end": m.EndStream(w.t.Context(), "s", nil), "fail": m.FailStream(w.t.Context(), "s", "x"), "pause": m.PauseStream(w.t.Context(), "s")} {
				if !errors.Is(err, spool.ErrBusy) {
					t.Errorf("%s after %v: %v", name, wait, err)
				}
			}
		}
		if after, err := w.log("s").Head(w.t.Context()); err != nil || after != before {
			t.Errorf("the agent was disturbed: %+v, before %+v, %v", after, before, err)
		}
	})
}

// The rule: an external run belongs to its claim. Over HTTP that is all; in the
// library it may be taken over, explicitly.
func TestExternalRunBelongsToItsClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		m, e := stream.NewManager(w.logs, nil), stream.NewExternal(w.process(), nil)
		out, err := m.CreateWriter(w.t.Context(), "s", "", "writer")
		if err == nil {
			err = out.Write(w.t.Context(), &chunk.TextDelta{Delta: "one "})
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Claim(w.t.Context(), "s", stream.ExternalClaim{}); !errors.Is(err, spool.ErrBusy) {
			t.Errorf("a claim while the stream's lease lives: %v", err)
		}
		time.Sleep(time.Hour)
		x := w.claim(e, "s") // expired: the run is lost
		if err := out.Write(w.t.Context(), &chunk.TextDelta{Delta: "late"}); !errors.Is(err, spool.ErrSuperseded) {
			t.Errorf("the lost writer: %v", err)
		}
		w.produce(e, x, 0, words("two ")...)
		out, err = m.CreateWriter(w.t.Context(), "s", "", "writer")
		if err == nil {
			err = out.Write(w.t.Context(), &chunk.TextDelta{Delta: "three"})
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 1, words("late")); !errors.Is(err, stream.ErrProducerFenced) {
			t.Errorf("the fenced producer: %v", err)
		}
		if err := m.EndStream(w.t.Context(), "s", nil); err != nil {
			t.Error(err)
		}
		f := w.fold("s")
		if len(f.Turns) != 2 || f.Turns[0].LastRun().Code != stream.CodeProducerLost || f.Turns[1].LastRun().ID != x.RunID || f.Reason != "completed" {
			t.Errorf("turns %s", mustJSON(f.Turns))
		}
		if one, two := f.Messages[0].Text(), f.Messages[1].Text(); one != "one " || two != "two three" {
			t.Errorf("%q and %q", one, two)
		}
	})
}

// A stop ends a stream as it ends any run, from this process or another.
func TestStreamIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		m := stream.NewManager(w.logs, nil)
		for i, l := range []*spool.Logs{w.logs, w.process()} {
			session := fmt.Sprint("s", i)
			out, err := m.CreateWriter(w.t.Context(), session, "", "")
			if err == nil {
				err = out.Write(w.t.Context(), &chunk.TextDelta{Delta: "one"})
			}
			if err != nil {
				t.Fatal(err)
			}
			w.command(l, session, &chunk.StopRequested{CommandID: "x"})
			if err := out.Write(w.t.Context(), &chunk.TextDelta{Delta: " two"}); !errors.Is(err, stream.ErrProducerStopped) {
				t.Errorf("%s: %v", session, err)
			}
			w.wantStopped(session)
			if err := out.Write(w.t.Context(), &chunk.TextDelta{Delta: " three"}); !errors.Is(err, spool.ErrClosed) {
				t.Errorf("%s, after the end: %v", session, err)
			}
		}
	})
}

// A writer whose append has an unknown outcome goes on: nothing that it was told is
// stored gets lost, and what was streamed is closed before its calls.
func TestStreamGoesOnAfterALostAnswer(t *testing.T) {
	for lost := range 3 {
		inWorld(t, func(w *world) {
			m := stream.NewManager(w.logs, nil)
			out, err := m.CreateWriter(w.t.Context(), "s", "", "")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			w.store.lose = func(spool.Append) bool { n++; return n == lost+1 }
			for i, c := range []chunk.Chunk{&chunk.TextDelta{Delta: "a"}, &chunk.TextDelta{Delta: "b"},
				&chunk.ToolStart{ToolCallID: "c", ToolName: "t", Arguments: json.RawMessage(`{}`)}, &chunk.TextDelta{Delta: "d"}} {
				if err := out.Write(w.t.Context(), c); (err != nil) != (i == lost) {
					t.Errorf("lost %d, write %d: %v", lost, i, err)
				}
			}
			if err := m.EndStream(w.t.Context(), "s", nil); err != nil {
				t.Error(err)
			}
			if f := w.fold("s"); f.Messages[0].Text() != "abd" || f.Reason != "completed" {
				t.Errorf("lost %d: %q %s", lost, f.Messages[0].Text(), kinds(w.records("s")))
			}
		})
	}
}

// A title that was given stays; else the user's words make one.
func TestTitles(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		for session, tt := range map[string]struct{ command, claim, want string }{
			"none": {"", "", "is anyone there?"}, "command": {"mine", "", "mine"}, "claim": {"", "theirs", "theirs"},
		} {
			if _, err := w.log(session).Command(w.t.Context(), spool.Row{Title: tt.command}, say("u1", " is  anyone there?\nhello")); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Claim(w.t.Context(), session, stream.ExternalClaim{Row: spool.Row{Title: tt.claim}}); err != nil {
				t.Fatal(err)
			}
			if info, err := w.store.Session(w.t.Context(), session); err != nil || info.Title != tt.want {
				t.Errorf("%s: %q, %v", session, info.Title, err)
			}
		}
	})
}
