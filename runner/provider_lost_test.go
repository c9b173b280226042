package runner_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
)

// lostAt lets one event of an answer's first connection meet a fate.
func lostAt(round, number int, fate modeltest.Fate) func(modeltest.Event) modeltest.Fate {
	return func(e modeltest.Event) modeltest.Fate {
		if e.Round == round && e.Number == number && e.Connection == 0 {
			return fate
		}
		return modeltest.Send
	}
}

// eachEvent calls test for every event but the first of each answer: who was told
// nothing yet must ask again. Of these it takes each so many-th, and with the race
// detector a part of them.
func eachEvent(t *testing.T, b *modeltest.Background, every, stride int, test func(round, number int)) {
	t.Helper()
	type event struct{ round, number int }
	var list []event
	n := 0
	for round, events := range b.Events() {
		for number := 1; number < events; number++ {
			if n++; n%every == 0 || os.Getenv(envChaos) != "" {
				list = append(list, event{round, number})
			}
		}
	}
	for i := range matrix.Points(t, len(list), stride) {
		test(list[i].round, list[i].number)
	}
}

// overTheNet is an agent that asks a provider behind a real port, and comes back
// to it without waiting; attempts, if not nil, is told of each.
func overTheNet(t *testing.T, b *modeltest.Background, attempt func(o *modeltest.Outage)) (o *modeltest.Outage, options openai.Options) {
	t.Helper()
	o, err := modeltest.NewOutage(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Down)
	transport := &http.Transport{DisableKeepAlives: true}
	return o, openai.Options{BaseURL: o.URL(), HTTPClient: &http.Client{Transport: transport}, Sleep: func(ctx context.Context, _ time.Duration) error {
		if attempt != nil {
			attempt(o)
		}
		return ctx.Err()
	}}
}

// Whichever event the connection breaks at, or the provider's process ends and
// comes back later: the message is the undisturbed one, nothing of it was
// retracted, and each step was asked for once.
func TestProviderIsLostAtEveryEvent(t *testing.T) {
	eachRecording(t, func(t *testing.T, name, want string, _ int) {
		check := func(w *world, b *modeltest.Background, where string) {
			t.Helper()
			w.say("s", "u1", "go")
			if got := said(w.fold("s")); got != want {
				t.Errorf("%s:\n%s\nundisturbed:\n%s", where, got, want)
			}
			nothingRetracted(t, w.settled("s"), where)
			if b.Asked() != len(recordings[name]) || len(b.Cancelled()) != 0 {
				t.Errorf("%s: asked %d times, cancelled %v", where, b.Asked(), b.Cancelled())
			}
		}
		for _, fate := range []modeltest.Fate{modeltest.Cut, modeltest.Close} {
			eachEvent(t, background(t, name), 1, 8, func(round, number int) {
				inRealWorld(t, func(w *world) {
					b := background(t, name)
					b.Before = lostAt(round, number, fate)
					_, options := overTheNet(t, b, nil)
					w.start(listener(options), nil)
					check(w, b, fmt.Sprintf("lost (%d) at event %d of answer %d", fate, number, round))
				})
			})
		}
		eachEvent(t, background(t, name), 3, 3, func(round, number int) {
			inRealWorld(t, func(w *world) {
				b := background(t, name)
				attempts := 0
				o, options := overTheNet(t, b, func(o *modeltest.Outage) {
					if attempts++; attempts == 3 {
						if err := o.Up(); err != nil {
							t.Error(err)
						}
					}
				})
				b.Before = func(e modeltest.Event) modeltest.Fate {
					fate := lostAt(round, number, modeltest.Cut)(e)
					if fate == modeltest.Cut {
						o.Down()
					}
					return fate
				}
				w.start(listener(options), nil)
				where := fmt.Sprintf("restarted at event %d of answer %d", number, round)
				check(w, b, where)
				if attempts != 3 {
					t.Errorf("%s: back after %d attempts", where, attempts)
				}
			})
		})
	})
}

// A provider that falls silent is left and found again.
func TestProviderStallsAtEveryEvent(t *testing.T) {
	eachRecording(t, func(t *testing.T, name, want string, _ int) {
		eachEvent(t, background(t, name), 1, 8, func(round, number int) {
			inWorld(t, func(w *world) {
				b := background(t, name)
				b.Before = lostAt(round, number, modeltest.Stall)
				w.start(inMemory(b), nil)
				w.say("s", "u1", "go")
				if got := said(w.fold("s")); got != want || b.Asked() != len(recordings[name]) {
					t.Errorf("stalled at event %d of answer %d, asked %d times:\n%s\nundisturbed:\n%s", number, round, b.Asked(), got, want)
				}
				nothingRetracted(t, w.settled("s"), "stalled")
			})
		})
	})
}

// dieOf kills the first owner once the provider is about to send an event, and
// lets the next one take over.
func dieOf(t *testing.T, w *world, b *modeltest.Background, round, number int, before func()) {
	t.Helper()
	first, store := w.second("first")
	reached := make(chan struct{})
	var once sync.Once
	b.Before = func(e modeltest.Event) modeltest.Fate {
		if e.Round == round && e.Number == number && e.Connection == 0 {
			once.Do(func() { close(reached) })
			return modeltest.Stall
		}
		return modeltest.Send
	}
	_, stop := first.start(inMemory(b), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
	w.say("s", "u1", "go")
	<-reached
	time.Sleep(time.Second) // of the bubble: what came is stored
	store.die()
	stop()
	if before != nil {
		before()
	}
	w.start(inMemory(b), nil)
}

// When the window in which a provider streams an old answer again has closed, its
// whole goes on where the stream broke off.
func TestReattachToTheWhole(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"text", "server", "calls"} {
		want := ""
		inWorld(t, func(w *world) {
			w.start(inMemory(background(t, name)), nil)
			w.say("s", "u1", "go")
			want = said(w.fold("s"))
		})
		eachEvent(t, background(t, name), 1, 1, func(round, number int) {
			inWorld(t, func(w *world) {
				b := background(t, name)
				dieOf(t, w, b, round, number, func() { b.Expired = func(int) bool { return true } })
				if got := said(w.fold("s")); got != want || b.Asked() != len(recordings[name]) {
					t.Errorf("%s at event %d: asked %d times\n%s\nundisturbed:\n%s", name, number, b.Asked(), got, want)
				}
				nothingRetracted(t, w.settled("s"), fmt.Sprint(name, " at event ", number))
			})
		})
	}
}

// An answer that the provider does not have any more is retracted, if any of it
// was shown, and asked for again.
func TestReattachToNothing(t *testing.T) {
	t.Parallel()
	const name = "reasoning"
	want := ""
	inWorld(t, func(w *world) {
		w.start(inMemory(background(t, name)), nil)
		w.say("s", "u1", "go")
		want = said(w.fold("s"))
	})
	retractions := 0
	eachEvent(t, background(t, name), 1, 1, func(round, number int) {
		inWorld(t, func(w *world) {
			b, shown := background(t, name), false
			dieOf(t, w, b, round, number, func() {
				b.Gone, b.Before = func(answer int) bool { return answer == 0 }, nil
				shown = w.peek().Shown()
			})
			if got := said(w.fold("s")); got != want || b.Asked() != 2 || len(b.Cancelled()) != 0 {
				t.Errorf("at event %d: asked %d times\n%s\nundisturbed:\n%s", number, b.Asked(), got, want)
			}
			checkLog(t, w.settled("s"))
			log := " " + kinds(w.settled("s")) + " "
			if strings.Contains(log, " step_discarded stream_resync ") != shown {
				t.Errorf("at event %d, shown %v: %s", number, shown, log)
			}
			if shown {
				retractions++
			}
		})
	})
	if retractions < 5 {
		t.Errorf("%d retractions", retractions)
	}
}

// Ending a run in its model phase ends the provider's work too: its owner,
// the next owner, or who takes the run from an owner that does not obey.
func TestStopCancelsTheAnswer(t *testing.T) {
	stall := func(b *modeltest.Background) (reached chan struct{}) {
		reached = make(chan struct{})
		b.Before = func(e modeltest.Event) modeltest.Fate {
			if e.Number == 6 {
				close(reached)
				return modeltest.Stall
			}
			return modeltest.Send
		}
		return reached
	}
	check := func(w *world, b *modeltest.Background, how string) {
		w.t.Helper()
		f := w.fold("s")
		time.Sleep(time.Second) // of the bubble
		if f.Reason != "stopped" && f.Status != chunk.StatusFailed || b.Asked() != 1 || mustJSON(b.Cancelled()) != "[0]" {
			w.t.Errorf("%s: %s %s, asked %d, cancelled %v\n%s", how, f.Status, f.Reason, b.Asked(), b.Cancelled(), kinds(w.settled("s")))
		}
	}
	orphan := func(w *world) *modeltest.Background { // an answer whose owner dies in the middle of it
		b := background(t, "text")
		reached := stall(b)
		first, store := w.second("first")
		_, stop := first.start(inMemory(b), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
		w.say("s", "u1", "go")
		<-reached
		time.Sleep(time.Second)
		store.die()
		stop()
		return b
	}
	inWorld(t, func(w *world) {
		b := background(t, "text")
		reached := stall(b)
		w.start(inMemory(b), nil)
		w.say("s", "u1", "go")
		<-reached
		w.stop("s", "stop")
		check(w, b, "by its owner")
	})
	for how, o := range map[string]*runner.Options{"by the next owner": nil, "lost runs fail": {FailLost: true}} {
		inWorld(t, func(w *world) {
			b := orphan(w)
			if o == nil {
				w.stop("s", "stop")
			}
			w.start(inMemory(b), o)
			check(w, b, how)
		})
	}
	inWorld(t, func(w *world) {
		b := orphan(w)
		w.stop("s", "stop")
		if err := runner.ForceStop(w.t.Context(), w.logs, "s", inMemory(b)); err != nil {
			t.Error(err)
		}
		check(w, b, "by force")
	})
	inWorld(t, func(w *world) { // while it is heard again
		b := background(t, "text")
		again := make(chan struct{})
		dieOf(t, w, b, 0, 6, func() {
			b.Before = func(e modeltest.Event) modeltest.Fate {
				if e.Number == 6 {
					close(again)
					return modeltest.Stall
				}
				return modeltest.Send
			}
		})
		<-again
		w.stop("s", "stop")
		check(w, b, "by the owner that took over")
		if f := w.fold("s"); f.Messages[1].Text() != "Hel" {
			t.Errorf("kept %q", f.Messages[1].Text())
		}
		nothingRetracted(t, w.settled("s"), "stopped")
	})
	// A run that goes on elsewhere, and one that is complete, cancel nothing: see
	// TestReattachAtEveryRecord. A provider that cannot be reached delays nobody.
	inWorld(t, func(w *world) {
		b := background(t, "text")
		reached := stall(b)
		a := listener(openai.Options{BaseURL: "http://provider.example/v1", HTTPClient: &http.Client{Transport: hanging{b}}})
		w.start(a, nil)
		w.say("s", "u1", "go")
		<-reached
		begun := time.Now()
		w.stop("s", "stop")
		if f := w.fold("s"); f.Reason != "stopped" || time.Since(begun) > time.Second {
			t.Errorf("%s after %v", f.Reason, time.Since(begun))
		}
	})
}

// hanging is a provider that never answers a cancellation.
type hanging struct{ *modeltest.Background }

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.Path != "/v1/responses" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return h.Background.RoundTrip(r)
}

// A reader of an answer that two processes have heard on the AI SDK wire, and
// attaches anywhere in it, ends with what the log says.
func TestReattachedRunsOnTheWire(t *testing.T) {
	t.Parallel()
	const name = "parallel"
	eachEvent(t, background(t, name), 20, 3, func(round, number int) {
		var log []chunk.Record
		inWorld(t, func(w *world) {
			dieOf(t, w, background(t, name), round, number, nil)
			log = w.settled("s")
		})
		for _, ui7 := range []bool{false, true} {
			t.Run(fmt.Sprintf("answer %d, event %d, ui7 %v", round, number, ui7), func(t *testing.T) { onTheWire(t, log, ui7) })
		}
	})
}

// A run that is taken over and ended ends what its children's providers do, too.
func TestStopCancelsTheAnswersOfChildren(t *testing.T) {
	inWorld(t, func(w *world) {
		b := background(t, "text")
		reached := make(chan struct{})
		b.Before = func(e modeltest.Event) modeltest.Fate {
			if e.Number == 6 {
				close(reached)
				return modeltest.Stall
			}
			return modeltest.Send
		}
		kid := inMemory(b)
		kid.Name = "kid"
		a := parent(map[string]scripted.Scene{"go": useTool(call("a", "subagent__kid", `{"task":"look"}`))}, agent.SubAgentOptions{}, kid)
		first, store := w.second("first")
		_, stop := first.start(a, &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
		w.say("s", "u1", "go")
		<-reached
		time.Sleep(time.Second) // of the bubble
		store.die()
		stop()
		w.stop("s", "stop")
		w.start(a, nil)
		f := w.fold("s")
		time.Sleep(time.Second)
		if f.Reason != "stopped" || mustJSON(b.Cancelled()) != "[0]" {
			t.Errorf("%s, cancelled %v\n%s", f.Reason, b.Cancelled(), kinds(w.settled("s")))
		}
	})
}

// A child's answer is taken up again as its parent's is.
func TestChildReattaches(t *testing.T) {
	t.Parallel()
	task := func(b *modeltest.Background) *agent.Agent {
		kid := inMemory(b)
		kid.Name = "kid"
		return parent(map[string]scripted.Scene{"go": useTool(call("a", "subagent__kid", `{"task":"look"}`))}, agent.SubAgentOptions{}, kid)
	}
	want := ""
	inWorld(t, func(w *world) {
		w.start(task(background(t, "reasoning")), nil)
		w.say("s", "u1", "go")
		want = said(w.fold("s"))
	})
	eachEvent(t, background(t, "reasoning"), 4, 1, func(_, number int) {
		inWorld(t, func(w *world) {
			b := background(t, "reasoning")
			reached := make(chan struct{})
			b.Before = func(e modeltest.Event) modeltest.Fate {
				if e.Number == number && e.Connection == 0 {
					close(reached)
					return modeltest.Stall
				}
				return modeltest.Send
			}
			first, store := w.second("first")
			_, stop := first.start(task(b), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
			w.say("s", "u1", "go")
			<-reached
			time.Sleep(time.Second) // of the bubble
			store.die()
			stop()
			w.start(task(b), nil)
			if got := said(w.fold("s")); got != want || b.Asked() != 1 {
				t.Errorf("at event %d: asked %d times\n%s\nundisturbed:\n%s\n%s", number, b.Asked(), got, want, kinds(w.settled("s")))
			}
			nothingRetracted(t, w.settled("s"), fmt.Sprint("at event ", number))
		})
	})
}
