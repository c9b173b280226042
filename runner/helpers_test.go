package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool"
)

// world is a store with logs, in a bubble of its own time.
type world struct {
	t     *testing.T
	store spool.Store
	logs  *spool.Logs
	ids   atomic.Int64
	ends  *[]func() // what to do inside the bubble when the test ends, last first
}

// inWorld runs a test in a bubble. Whatever it starts must have ended when it
// returns, or the bubble deadlocks: that is the test for leaked goroutines.
func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) { inRealWorld(t, test) })
}

// inRealWorld runs a test that needs a network, which has no time of its own.
func inRealWorld(t *testing.T, test func(w *world)) { inWorldOf(t, memstore.New(nil), test) }

// inWorldOf runs a test on a store, which it closes.
func inWorldOf(t *testing.T, store *memstore.Store, test func(w *world)) {
	w := &world{t: t, store: store, ends: new([]func())}
	w.logs = spool.NewLogs(w.store, &spool.Options{
		NewID: func() string { return fmt.Sprintf("id-%06d", w.ids.Add(1)) },
	})
	defer func() {
		if err := w.logs.Close(); err != nil {
			t.Error(err)
		}
		_ = store.Close()
	}()
	defer func() {
		for _, end := range slices.Backward(*w.ends) {
			end()
		}
	}()
	test(w)
}

// start runs a runner until stop is called or the test ends. Unless the options say
// otherwise, each delta is a record: how deltas are merged depends on the scheduler.
func (w *world) start(a *agent.Agent, o *runner.Options) (r *runner.Runner, stop func()) {
	w.t.Helper()
	var options runner.Options
	if o != nil {
		options = *o
	}
	if options.Linger == 0 {
		options.Linger = -1
	}
	r, err := runner.New(w.logs, []*agent.Agent{a}, &options)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	*w.ends = append(*w.ends, stop)
	return r, stop
}

func (w *world) log(session string) *spool.Log {
	w.t.Helper()
	g, err := w.logs.Log(session)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func (w *world) command(session string, chunks ...chunk.Chunk) {
	w.t.Helper()
	if _, err := w.log(session).Command(w.t.Context(), spool.Row{}, chunks...); err != nil {
		w.t.Fatal(err)
	}
}

func say(id, text string) *chunk.UserMessage {
	return &chunk.UserMessage{CommandID: id, Message: chunk.Message{ID: id, Role: chunk.RoleUser,
		Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
}

func (w *world) say(session, id, text string) {
	w.t.Helper()
	w.command(session, say(id, text))
}

func (w *world) stop(session, id string) {
	w.t.Helper()
	w.command(session, &chunk.StopRequested{CommandID: id})
}

// settled waits until the session is quiet and returns its records.
func (w *world) settled(session string) []chunk.Record {
	w.t.Helper()
	var records []chunk.Record
	for r, err := range w.log(session).Records(w.t.Context(), spool.ReadOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// until waits for the first record of a type for which match, if given, holds.
func (w *world) until(session string, typ chunk.Type, match func(chunk.Chunk) bool) chunk.Record {
	w.t.Helper()
	for r, err := range w.log(session).Records(w.t.Context(), spool.ReadOptions{Follow: true}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if r.Type == typ && (match == nil || match(w.decode(r))) {
			return r
		}
	}
	w.t.Fatalf("no %s", typ)
	return chunk.Record{}
}

func (w *world) decode(r chunk.Record) chunk.Chunk {
	w.t.Helper()
	c, err := chunk.Decode(r.Data)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// fold checks that the cached fold, one of all records and one of the kept
// records agree, and returns it.
func (w *world) fold(session string) *fold.Fold {
	w.t.Helper()
	all, kept := fold.New(session), fold.New(session)
	for _, r := range w.settled(session) {
		if err := all.Apply(r); err != nil {
			w.t.Fatal(err)
		}
		if r.Class == chunk.Kept {
			if err := kept.Apply(r); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	var view string
	err := w.log(session).View(w.t.Context(), func(f *fold.Fold) error {
		view = mustJSON(f)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if view != mustJSON(all) {
		w.t.Errorf("the view is not the fold of the log:\n%s\n%s", view, mustJSON(all))
	}
	kept.Seq = all.Seq
	if mustJSON(kept) != mustJSON(all) {
		w.t.Errorf("kept records say something else:\n%s\n%s", mustJSON(kept), mustJSON(all))
	}
	return all
}

// finished returns the ends of the session's runs.
func (w *world) finished(session string) []*chunk.RunFinished {
	w.t.Helper()
	var ends []*chunk.RunFinished
	for _, r := range w.settled(session) {
		if c, ok := w.decode(r).(*chunk.RunFinished); ok {
			ends = append(ends, c)
		}
	}
	return ends
}

func kinds(records []chunk.Record) string {
	var b strings.Builder
	last := chunk.Type("")
	for _, r := range records {
		if r.Type == last && r.Class == chunk.Trace {
			continue // how many deltas there are is the model's business
		}
		last = r.Type
		b.WriteString(string(r.Type))
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// wait is a scene part source that takes time.
func sayFor(deltas int, each time.Duration) scripted.Scene {
	return func(scripted.Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			for i := range deltas {
				time.Sleep(each)
				if !yield(model.TextDelta{ID: "t", Delta: fmt.Sprintf("w%d ", i)}, nil) {
					return
				}
			}
		}
	}
}

type city struct {
	City string `json:"city"`
}

type trips struct {
	Itinerary []string `json:"itinerary,omitempty"`
}

// tools are the tools of the scripted model's scene, and some that misbehave.
func tools() []tool.Tool {
	return []tool.Tool{
		tool.New("get_weather", "", func(ctx tool.Context, in city) (map[string]string, error) {
			time.Sleep(20 * time.Millisecond)
			_ = ctx.Progress(tool.Progress{Label: "asking"})
			_ = ctx.Progress(tool.Progress{Label: "done", State: "done"})
			return map[string]string{"city": in.City, "sky": "clear"}, ctx.Err()
		}),
		tool.New("search_notes", "", func(ctx tool.Context, in struct {
			Query string `json:"query"`
		}) ([]string, error) {
			time.Sleep(50 * time.Millisecond)
			return []string{"pack light"}, ctx.Emit("notes-found", map[string]int{"count": 1}, nil)
		}),
		tool.New("plan_trip", "", func(ctx tool.Context, in struct {
			City string `json:"city"`
			Days int    `json:"days"`
		}) (string, error) {
			return "planned", tool.UpdateState(ctx, func(s *trips) error {
				s.Itinerary = append(s.Itinerary, fmt.Sprintf("%d days in %s", in.Days, in.City))
				return nil
			})
		}),
		tool.New("fails", "", func(ctx tool.Context, _ struct{}) (int, error) {
			_ = tool.UpdateState(ctx, func(s *trips) error { s.Itinerary = append(s.Itinerary, "never"); return nil })
			return 0, errors.New("it did not work")
		}),
		tool.New("panics", "", func(tool.Context, struct{}) (int, error) { panic("out of cheese") }),
		tool.New("fatal", "", func(tool.Context, struct{}) (int, error) { return 0, tool.Fatal(errors.New("no licence")) }),
		tool.New("slow", "", func(ctx tool.Context, _ struct{}) (string, error) {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(time.Hour):
				return "late", nil
			}
		}),
		tool.New("deaf", "", func(ctx tool.Context, _ struct{}) (string, error) {
			time.Sleep(time.Minute)
			ctx.Context = context.WithoutCancel(ctx)
			return "late", ctx.Emit("late", 1, nil)
		}),
		tool.New("dutiful", "", func(ctx tool.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "finished nevertheless", nil
		}),
	}
}

func call(id, name, args string) scripted.ToolCall {
	return scripted.ToolCall{ID: id, Name: name, Arguments: args}
}

// demo is an agent with those tools and extra scenes.
func demo(scenes map[string]scripted.Scene) *agent.Agent {
	all := map[string]scripted.Scene{
		"slowly": sayFor(100, 100*time.Millisecond),
		"silent": func(scripted.Call) iter.Seq2[model.Part, error] {
			return func(yield func(model.Part, error) bool) {
				time.Sleep(time.Minute)
				yield(model.TextDelta{Delta: "late"}, nil)
			}
		},
	}
	for name, s := range scenes {
		all[name] = s
	}
	return &agent.Agent{Name: "demo", Model: scripted.New(&scripted.Options{Scenes: all}), Tools: tools()}
}

// useTool is a scene that makes calls, then says done.
func useTool(calls ...scripted.ToolCall) scripted.Scene {
	return scripted.Steps(scripted.Say(scripted.Calls(calls...)), scripted.Say(scripted.Text("done")))
}

func toolParts(f *fold.Fold) []*chunk.ToolPart {
	var parts []*chunk.ToolPart
	for _, m := range f.Messages {
		for _, p := range m.Parts {
			if p.Tool != nil {
				parts = append(parts, p.Tool)
			}
		}
	}
	for _, c := range f.Children {
		parts = append(parts, toolParts(c)...)
	}
	return slices.Clip(parts)
}
