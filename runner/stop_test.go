package runner_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
)

func (w *world) wantStopped(session string) *fold.Fold {
	w.t.Helper()
	f := w.fold(session)
	if f.Status != chunk.StatusEnded || f.Reason != "stopped" {
		w.t.Errorf("status %s %s", f.Status, f.Reason)
	}
	w.wantMarked(f)
	return f
}

// wantMarked checks that nothing of a cut answer is left open or due, and that
// its message says so.
func (w *world) wantMarked(f *fold.Fold) {
	w.t.Helper()
	m := f.Messages[len(f.Messages)-1]
	for _, p := range m.Parts {
		if p.Open || p.Tool != nil && !p.Tool.State.Done() {
			w.t.Errorf("left open: %s", mustJSON(p))
		}
	}
	if p := m.Parts[len(m.Parts)-1]; p.Name != "run-interrupted" {
		w.t.Errorf("not marked: %s", mustJSON(p))
	}
	info, err := w.store.(spool.Lister).Session(w.t.Context(), f.Session)
	if err != nil || info.Status != f.Status || info.Head.Due != 0 || f.Live() {
		w.t.Errorf("live %v, row %+v, %v", f.Live(), info, err)
	}
}

// stopBeforeTheLast folds a log as it were if a stop had landed before its last
// record, and checks that the stop is not forgotten.
func (w *world) stopBeforeTheLast(session string) *fold.Fold {
	w.t.Helper()
	records := w.records(session)
	last := records[len(records)-1]
	f := fold.New(session)
	for _, r := range records[:len(records)-1] {
		if err := f.Apply(r); err != nil {
			w.t.Fatal(err)
		}
	}
	f.ApplyChunk(chunk.Record{Seq: last.Seq, Type: chunk.TypeStopRequested, Agent: session}, &chunk.StopRequested{CommandID: "x"})
	last.Seq++
	if err := f.Apply(last); err != nil {
		w.t.Fatal(err)
	}
	if f.Continue == nil || f.Continue.Mode != chunk.ModeStop || f.Stop == nil {
		w.t.Errorf("the stop is forgotten: %s", mustJSON(f))
	}
	return f
}

func TestStopInMidText(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return c.(*chunk.TextDelta).Delta == "w4 " })
		begun := time.Now()
		w.stop("s", "x1")
		w.stop("s", "x1") // a double click
		w.stop("s", "x2") // another tab
		f := w.wantStopped("s")
		if took := time.Since(begun); took > 200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if got := f.Messages[1].Text(); got != "w0 w1 w2 w3 w4 " {
			t.Errorf("kept %q", got)
		}
		if n := len(w.finished("s")); n != 1 {
			t.Errorf("%d ends", n)
		}
	})
}

func TestStopBeforeTheFirstToken(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), &runner.Options{StopGrace: time.Second})
		w.say("s", "u1", "silent") // and deaf to its context
		w.until("s", chunk.TypeStepStarted, nil)
		synctest.Wait()
		w.stop("s", "x1")
		f := w.wantStopped("s")
		if got := f.Messages[1].Text(); got != "" {
			t.Errorf("kept %q", got)
		}
		time.Sleep(2 * time.Minute) // the model wakes up and finds nobody
		if got := kinds(w.settled("s")); !strings.HasSuffix(got, "run_finished") {
			t.Errorf("something was written after the end: %s", got)
		}
	})
}

func TestStopBeforeAnyoneClaims(t *testing.T) {
	inWorld(t, func(w *world) {
		w.say("s", "u1", "slowly")
		w.stop("s", "x1")
		w.start(demo(nil), nil)
		w.wantStopped("s")
		if got := kinds(w.settled("s")); got != "user_message stop_requested run_started run_finished" {
			t.Error(got)
		}
	})
}

func TestStopInATool(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(map[string]scripted.Scene{"go": useTool(
			call("a", "slow", "{}"), call("b", "deaf", "{}"), call("c", "plan_trip", `{"city":"Rome","days":1}`), call("d", "dutiful", "{}"))}),
			&runner.Options{StopGrace: time.Second})
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolEnd, nil)
		synctest.Wait()
		w.stop("s", "x1")
		f := w.wantStopped("s")
		var states []string
		for _, c := range toolParts(f) {
			states = append(states, string(c.State))
		}
		if got := strings.Join(states, " "); got != "error error completed completed" {
			t.Errorf("calls: %s", got)
		}
		if string(f.State) != `{"itinerary":["1 days in Rome"]}` {
			t.Errorf("what a finished call did to the state is lost: %s", f.State)
		}
		w.say("s", "u2", "hello")
		if f := w.fold("s"); f.Reason != "completed" {
			t.Errorf("the session did not go on: %s", f.Reason)
		}
		time.Sleep(time.Minute) // until the deaf tool is back
	})
}

func TestStopWithNothingRunning(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "hello")
		before := w.settled("s")
		w.stop("s", "x1")
		synctest.Wait()
		after := w.settled("s")
		if len(after) != len(before)+1 {
			t.Errorf("%d records became %d", len(before), len(after))
		}
		head, err := w.log("s").Head(w.t.Context())
		if err != nil || head.Due != 0 || head.Status != chunk.StatusEnded {
			t.Errorf("%+v, %v", head, err)
		}
		w.say("s", "u2", "hello") // the old stop does not hit it
		if f := w.fold("s"); f.Reason != "completed" || len(f.Turns) != 2 {
			t.Errorf("%s, %d turns", f.Reason, len(f.Turns))
		}
	})
}

func TestQueuedMessageIsServedNext(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		queued := say("u2", "hello")
		queued.WhenBusy = chunk.BusyQueue
		w.command("s", queued)
		refused := say("u3", "hello")
		w.command("s", refused)
		f := w.fold("s")
		if len(f.Turns) != 2 || f.Turns[1].ID != "u2" || len(f.Messages) != 4 {
			t.Errorf("%s", mustJSON(f.Turns))
		}
		if got := f.Messages[1].Text(); !strings.HasSuffix(got, "w99 ") {
			t.Errorf("the first answer was cut: %q", got)
		}
		if v := f.Verdict("u3"); v.State != fold.VerdictRefused || v.Code != fold.RefusedBusy {
			t.Errorf("u3: %+v", v)
		}
	})
}

func edit(id, after, text string) []chunk.Chunk {
	return []chunk.Chunk{
		&chunk.HistoryRewound{CommandID: id + "-rewind", AfterMessageID: after, Trigger: "edit", WhenBusy: chunk.BusyInterrupt},
		say(id, text),
	}
}

func TestEditAndRegenerate(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "hello")
		w.settled("s")
		w.say("s", "u2", "think")
		w.settled("s")
		w.command("s", edit("u3", w.fold("s").Messages[1].ID, "tools")...)
		f := w.fold("s")
		if len(f.Messages) != 4 || f.Messages[2].ID != "u3" || len(toolParts(f)) != 3 {
			t.Errorf("after the edit: %s", mustJSON(f.Messages))
		}
		answer := f.Messages[3].ID
		w.command("s", &chunk.HistoryRewound{CommandID: "g1", AfterMessageID: "u3", Trigger: "regenerate", WhenBusy: chunk.BusyInterrupt})
		f = w.fold("s")
		if len(f.Messages) != 4 || f.Messages[3].ID == answer || f.LastTurn().ID != "g1" || len(toolParts(f)) != 3 {
			t.Errorf("after the regenerate: %s", mustJSON(f.Messages))
		}
	})
}

func TestEditAndRegenerateWhileRunning(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		w.command("s", edit("u2", "", "slowly again")...)
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return c.ChunkBase().RunID != w.run("s", "u1") })
		w.command("s", &chunk.HistoryRewound{CommandID: "g1", AfterMessageID: "u2", Trigger: "regenerate", WhenBusy: chunk.BusyInterrupt})
		w.command("s", edit("u2", "", "slowly again")...) // the edit's POST comes once more
		f := w.fold("s")
		if len(f.Turns) != 3 || f.Turns[0].LastRun().Outcome != "stopped" || f.Turns[1].LastRun().Outcome != "stopped" || f.Reason != "completed" {
			t.Errorf("turns %s", mustJSON(f.Turns))
		}
		if len(f.Messages) != 2 || f.Messages[0].ID != "u2" || !strings.HasSuffix(f.Messages[1].Text(), "w99 ") {
			t.Errorf("messages %s", mustJSON(f.Messages))
		}
	})
}

// run returns the id of a turn's run.
func (w *world) run(session, turn string) (id string) {
	w.t.Helper()
	err := w.log(session).View(w.t.Context(), func(f *fold.Fold) error {
		id = f.Turn(turn).LastRun().ID
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func TestReplacedHistory(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "hello")
		w.settled("s")
		messages := []chunk.Message{say("m1", "tools").Message}
		w.command("s", &chunk.HistoryReplaced{CommandID: "h1", Messages: &messages, State: []byte(`{"itinerary":["home"]}`)})
		w.settled("s")
		head, err := w.log("s").Head(w.t.Context())
		if err != nil || head.Due != 0 {
			t.Errorf("%+v, %v", head, err)
		}
		w.say("s", "u2", "tools")
		f := w.fold("s")
		if len(f.Messages) != 3 || f.Messages[0].ID != "m1" || string(f.State) != `{"itinerary":["home","3 days in Lisbon"]}` {
			t.Errorf("%d messages, state %s", len(f.Messages), f.State)
		}
	})
}

func TestInterruptDoesNotHitWhatIsQueuedBeforeIt(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, nil)
		for _, id := range []string{"u2", "u3"} {
			m := say(id, "slowly")
			m.WhenBusy = chunk.BusyQueue
			if id == "u3" {
				m.WhenBusy = chunk.BusyInterrupt
			}
			w.command("s", m)
		}
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return c.ChunkBase().RunID != w.run("s", "u1") })
		m := say("u4", "hello")
		m.WhenBusy = chunk.BusyQueue
		w.command("s", m)
		var ends []string
		for _, turn := range w.fold("s").Turns {
			ends = append(ends, turn.ID+" "+string(turn.LastRun().Outcome))
		}
		if got := strings.Join(ends, ", "); got != "u1 stopped, u2 completed, u3 completed, u4 completed" {
			t.Error(got)
		}
	})
}

func TestToolThatIsLeftBehindWritesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(map[string]scripted.Scene{"go": useTool(call("b", "deaf", "{}")), "longer": sayFor(100, time.Second)}), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeToolStart, nil)
		next := say("u2", "longer") // the same owner goes on with it when the tool comes back
		next.WhenBusy = chunk.BusyQueue
		w.command("s", next)
		w.stop("s", "x1")
		f := w.fold("s")
		if f.Reason != "completed" || len(f.Turns) != 2 || f.Turns[0].LastRun().Outcome != "stopped" {
			t.Errorf("turns %s", mustJSON(f.Turns))
		}
		if got := kinds(w.settled("s")); strings.Contains(got, "custom") {
			t.Errorf("the tool wrote after the end of its run: %s", got)
		}
	})
}
