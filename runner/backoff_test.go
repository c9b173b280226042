package runner_test

import (
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
)

// Between two attempts of a model call the model has said nothing, so that a run
// need not wait for the second one: it stops, pauses and makes room at once.
func TestAskedDuringABackoff(t *testing.T) {
	for _, shown := range []bool{false, true} {
		for name, ask := range map[string]func(w *world){
			"stop":      func(w *world) { w.stop("s", "x1") },
			"interrupt": func(w *world) { w.interrupt("s", "x1") },
			"steer":     func(w *world) { w.command("s", steer("u2", "other")) },
		} {
			t.Run(fmt.Sprintf("%s, shown %v", name, shown), func(t *testing.T) {
				inWorld(t, func(w *world) {
					var asked atomic.Int64
					busy := func(c scripted.Call) iter.Seq2[model.Part, error] {
						if asked.Add(1) > 1 {
							return then()(c)
						}
						return func(yield func(model.Part, error) bool) {
							if !shown || yield(model.TextDelta{Delta: "half a "}, nil) {
								yield(nil, &model.Error{Code: model.CodeOverloaded, Message: "busy", Retryable: true, RetryAfter: 90 * time.Second})
							}
						}
					}
					w.start(demo(map[string]scripted.Scene{"go": busy, "other": then()}), nil)
					w.say("s", "u1", "go")
					w.until("s", chunk.TypeCustom, func(c chunk.Chunk) bool { return c.(*chunk.Custom).EventName == "model-retry" })
					begun := time.Now()
					ask(w)
					w.settled("s")
					if took := time.Since(begun); took > time.Second || asked.Load() != 1 {
						t.Errorf("it took %v, asked %d times", took, asked.Load())
					}
					switch name {
					case "stop":
						w.wantStopped("s")
					case "interrupt":
						w.wantInterrupted("s", 0)
						w.goOn("s")
						f := w.ended("s")
						if f.Reason != "completed" || f.Messages[1].Text() != "that was all" || asked.Load() != 2 {
							t.Errorf("%s", mustJSON(f.Messages))
						}
					case "steer":
						if f := w.ended("s"); f.Reason != "completed" || f.Turns[0].LastRun().Outcome != chunk.OutcomeSteered || strings.Contains(f.Messages[1].Text(), "half") {
							t.Errorf("%s: %s", w.turns("s"), mustJSON(f.Messages))
						}
					}
					checkLog(t, w.settled("s"))
				})
			})
		}
	}
}
