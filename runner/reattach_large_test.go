package runner_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// A delta that is too large for a record is several: the owner may die between
// them.
func TestReattachInTheMiddleOfALargeDelta(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("wörds ", 45_000)
	var stream strings.Builder
	n := 0
	event := func(kind, members string) {
		fmt.Fprintf(&stream, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%d,%s}\n\n", kind, kind, n, members)
		n++
	}
	event("created", `"response":{"id":"resp_1","status":"in_progress"}`)
	event("output_item.added", `"output_index":0,"item":{"type":"message","id":"m"}`)
	event("output_text.delta", `"output_index":0,"content_index":0,"delta":`+mustJSON(whole))
	event("completed", `"response":{"id":"resp_1","status":"completed"}`)
	provider := func() *modeltest.Background {
		b, err := modeltest.NewBackground([]byte(stream.String()))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	root := func(b *modeltest.Background) *agent.Agent { return inMemory(b) }
	child := func(b *modeltest.Background) *agent.Agent {
		kid := inMemory(b)
		kid.Name = "kid"
		return parent(map[string]scripted.Scene{"go": useTool(call("a", "subagent__kid", `{"task":"look"}`))}, agent.SubAgentOptions{}, kid)
	}
	for name, of := range map[string]func(*modeltest.Background) *agent.Agent{"root": root, "child": child} {
		for _, fail := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", lost runs fail ", fail), func(t *testing.T) {
				t.Parallel()
				text := func(f *fold.Fold) string {
					if name == "child" {
						if len(f.Children) == 0 || len(f.Children[0].Messages) < 2 {
							return ""
						}
						f = f.Children[0]
					}
					return f.Messages[1].Text()
				}
				thin := matrix.Stride(t, 3)
				between, each := 0, thin
				if name == "child" && os.Getenv(envChaos) == "" {
					each *= 3
				}
				// Behind the last piece it is an answer like others, which
				// TestReattachAtEveryRecord has.
				for k, left := 3, ""; left != whole; k += each {
					inWorld(t, func(w *world) {
						b := provider()
						first, store := w.second("first")
						store.lives = k
						_, stop := first.start(of(b), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
						w.say("s", "u1", "go")
						time.Sleep(time.Minute) // of the bubble
						stop()
						if store.check() == nil {
							t.Fatalf("it outlived append %d", k)
						}
						left = text(w.peek())
						if len(left) > 0 && len(left) < len(whole) {
							between++
						}
						unnoted := b.Asked() - answers(w.records("s"))
						w.start(of(b), &runner.Options{FailLost: fail})
						f := w.fold("s")
						log := w.settled("s")
						want := whole
						if fail {
							want = left
						}
						if text(f) != want || !fail && b.Asked() != 1+unnoted {
							t.Errorf("died at append %d: %d bytes of %d, asked %d times, %s", k, len(text(f)), len(want), b.Asked(), kinds(log))
						}
						if name == "root" { // the child's parent cannot resume
							nothingRetracted(t, log, fmt.Sprint("died at append ", k))
						}
						projected := aisdk.NewProjector(wire.Subject{Turn: f.Turns[0].ID}, nil)
						for _, r := range log {
							if _, err := projected.Apply(nil, r); err != nil {
								t.Fatal(err)
							}
						}
						if got := projected.Message().Text(); got != f.Messages[1].Text() {
							t.Errorf("died at append %d: the wire says %d bytes", k, len(got))
						}
					})
				}
				if between*thin < 3 {
					t.Errorf("it died %d times between the pieces", between)
				}
			})
		}
	}
}
