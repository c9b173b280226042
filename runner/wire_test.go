package runner_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

// recoveredLog is a scenario's log, whose first owner died at an append.
func recoveredLog(t *testing.T, s scenario, k int) (records []chunk.Record) {
	inWorld(t, func(w *world) {
		first, store := w.second("first")
		store.lives = k
		_, stop := first.start(s.on(w.logs, func(tool.Call) {}), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
		w.say("s", "u1", s.name)
		w.hasten(s)
		time.Sleep(time.Minute)
		if w.reply(s, w.peek()) {
			time.Sleep(time.Minute)
		}
		stop()
		w.start(s.on(w.logs, func(tool.Call) {}), nil)
		w.finish(s)
		records = w.settled("s")
	})
	return records
}

// Whoever reads a run on the AI SDK wire that died, paused or both, and attaches
// anywhere in it, ends with what the log says.
func TestRecoveredRunsOnTheWire(t *testing.T) {
	for i, s := range append(scenarios(), hasty()...) {
		if s.unknown || s.again && os.Getenv(envChaos) == "" { // the suite's own log has a rollback, too
			continue
		}
		_, n, _ := undisturbed(t, s)
		first, each := n*2/3, n
		if os.Getenv(envChaos) != "" {
			first, each = 2, 5
		}
		for k := first; k < n; k += each {
			log := recoveredLog(t, s, k)
			for _, ui7 := range []bool{false, true} {
				if os.Getenv(envChaos) == "" && ui7 != (i%2 == 0) {
					continue // in turn
				}
				t.Run(fmt.Sprintf("%s, died at %d, ui7 %v", s.title(), k, ui7), func(t *testing.T) {
					onTheWire(t, log, ui7)
				})
			}
		}
	}
}

// onTheWire checks that whoever attaches anywhere in a log ends with what it says.
func onTheWire(t *testing.T, log []chunk.Record, ui7 bool) {
	t.Helper()
	wiretest.Run(t, wiretest.Wire{
		Log:     log,
		PerTurn: true,
		New: func(turn *fold.Turn) spool.Projector {
			return aisdk.NewProjector(turn.ID, &aisdk.Options{UI7: ui7})
		},
		Fold: func(stream []byte) (json.RawMessage, error) {
			c := &aisdk.Client{UI7: ui7}
			if err := c.Write(stream); err != nil {
				return nil, err
			}
			return canonical(c.Message, ui7), nil
		},
	})
}

// canonical leaves out what the older profile does not tell: a user's decision.
func canonical(m aisdk.UIMessage, ui7 bool) json.RawMessage {
	m.Parts = append([]aisdk.UIPart{}, m.Parts...)
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Approval != nil && !ui7 {
			p.Approval = &aisdk.UIApproval{ID: p.Approval.ID}
			if p.State == aisdk.StateApprovalResponded {
				p.State = aisdk.StateApprovalRequested
			}
		}
	}
	return json.RawMessage(mustJSON(m))
}

// A fold that was saved while the run waits goes on like one that was not.
func TestSavedFoldOfAPause(t *testing.T) {
	for _, s := range scenarios() {
		if s.answer == nil && s.during == nil {
			continue
		}
		log := recoveredLog(t, s, 0) // nobody dies
		whole, part := fold.New("s"), fold.New("s")
		loads := 0
		for _, r := range log {
			if err := whole.Apply(r); err != nil {
				t.Fatal(err)
			}
			if err := part.Apply(r); err != nil {
				t.Fatal(err)
			}
			if part.OpenRun() == nil {
				saved, err := part.Save()
				if err != nil {
					t.Fatal(err)
				}
				if part, err = fold.Load(saved); err != nil {
					t.Fatal(err)
				}
				loads++
			}
			if a, b := mustJSON(whole), mustJSON(part); a != b {
				t.Fatalf("%s, after %d %s:\n%s\n%s", s.name, r.Seq, r.Type, a, b)
			}
			an, ai := whole.Step().Number, whole.Step().ID
			bn, bi := part.Step().Number, part.Step().ID
			if whole.OpenRun() != nil && (an != bn || ai != bi || whole.Phase() != part.Phase()) {
				t.Fatalf("%s, after %d: step %d %s %s, loaded %d %s %s", s.name, r.Seq, an, ai, whole.Phase(), bn, bi, part.Phase())
			}
		}
		if loads < 3 {
			t.Errorf("%s: saved %d times", s.name, loads)
		}
	}
}
