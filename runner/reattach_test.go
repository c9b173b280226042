package runner_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
)

// recordings are what a background provider answers, round by round.
var recordings = map[string][]string{
	"text":       {"background"},
	"reasoning":  {"reasoning-summaries"},
	"tools":      {"output-lacks-reasoning", "reasoning-text"},
	"parallel":   {"tools-interleaved", "all-at-one-index", "text"},
	"server":     {"web-search"},
	"mixed":      {"code-interpreter"},
	"calls":      {"tools-parallel", "text"},
	"files":      {"image"},
	"unstreamed": {"arguments-only-in-done", "text-only-in-part"},
}

func background(t testing.TB, name string) *modeltest.Background {
	t.Helper()
	var streams [][]byte
	for _, file := range recordings[name] {
		data, err := os.ReadFile(filepath.Join("../model/modeltest/testdata/openai-responses", file+".sse"))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, data)
	}
	b, err := modeltest.NewBackground(streams...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// listener is an agent that asks a background provider.
func listener(o openai.Options) *agent.Agent {
	o.Model, o.Background = "m", true
	weather := tool.New("get_weather", "", func(_ tool.Context, in city) (city, error) { return in, nil })
	return &agent.Agent{Name: "demo", Model: openai.NewResponses(&o),
		Tools: []tool.Tool{tool.With(weather, tool.Options{Recovery: tool.RecoverRetry})}}
}

// inMemory talks to the provider without a network.
func inMemory(b *modeltest.Background) *agent.Agent {
	// Reasoning is kept with its host, which is that of the real servers it is compared with.
	return listener(openai.Options{BaseURL: "http://127.0.0.1/v1", HTTPClient: &http.Client{Transport: b}, IdleTimeout: time.Minute})
}

// eachRecording runs a test with what each recording becomes in peace, and how many
// appends, of a record each, its owner makes.
func eachRecording(t *testing.T, test func(t *testing.T, name, want string, appends int)) {
	t.Parallel()
	for name := range recordings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, appends := "", 0
			inWorld(t, func(w *world) {
				b := background(t, name)
				process, store := w.second("first")
				process.start(inMemory(b), nil)
				w.say("s", "u1", "go")
				f := w.fold("s")
				synctest.Wait() // it has released the session
				if want, appends = said(f), store.appends()-1; f.Reason != "completed" || b.Asked() != len(recordings[name]) {
					t.Fatalf("undisturbed: asked %d times, %s", b.Asked(), want)
				}
			})
			test(t, name, want, appends)
		})
	}
}

// said is an outcome without the ids that are minted.
func said(f *fold.Fold) string { return minted.ReplaceAllString(outcome(f), "") }

var minted = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[a-z0-9]+-\d{6}`)

// answers counts the answers that a log knows of.
func answers(records []chunk.Record) (n int) {
	for _, r := range records {
		if r.Type == chunk.TypeAnswerStarted {
			n++
		}
	}
	return n
}

// nothingRetracted checks that readers saw more deltas and nothing else.
func nothingRetracted(t *testing.T, records []chunk.Record, where string) {
	t.Helper()
	for _, r := range records {
		if r.Type == chunk.TypeStepDiscarded || r.Type == chunk.TypeStreamResync {
			t.Errorf("%s: %s\n%s", where, r.Type, kinds(records))
		}
	}
}

// Whatever record of a background answer the owner dies at, the next one goes on
// with the same answer, in the same parts, and asks for nothing twice.
func TestReattachAtEveryRecord(t *testing.T) {
	eachRecording(t, func(t *testing.T, name, want string, appends int) {
		if appends < 5 {
			t.Errorf("only %d appends", appends)
		}
		for i := range matrix.Points(t, appends, 8) {
			for _, lost := range []bool{false, true} {
				where := fmt.Sprintf("died at append %d (stored: %v)", i+1, lost)
				inWorld(t, func(w *world) {
					b := background(t, name)
					first, store := w.second("first")
					store.lives, store.lost = i+1, lost
					_, stop := first.start(inMemory(b), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
					w.say("s", "u1", "go")
					time.Sleep(time.Minute)
					stop()
					if store.check() == nil {
						t.Errorf("it outlived append %d of %d", i+1, appends)
					}
					unnoted := b.Asked() - answers(w.records("s")) // the provider was asked, and the log does not know
					w.start(inMemory(b), nil)
					if got := said(w.fold("s")); got != want {
						t.Errorf("%s:\n%s\nundisturbed:\n%s\n%s", where, got, want, kinds(w.settled("s")))
					}
					checkLog(t, w.settled("s"))
					nothingRetracted(t, w.settled("s"), where)
					if b.Asked() != len(recordings[name])+unnoted || unnoted > 1 || len(b.Cancelled()) > 0 {
						t.Errorf("%s: asked %d times, cancelled %v\n%s", where, b.Asked(), b.Cancelled(), kinds(w.settled("s")))
					}
				})
			}
		}
	})
}
