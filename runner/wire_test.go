package runner_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

// recoveredLog is the log of a scenario whose first owner died.
func recoveredLog(t *testing.T, s scenario, died moment) (records []chunk.Record) {
	died.goOn(t, func(w *world) {
		w.hasten(s)
		w.start(s.on(w.logs, func(tool.Call) {}), nil)
		w.finish(s)
		records = w.settled("s")
	})
	return records
}

// A reader of a run on the AI SDK wire that died, paused or both, that attaches
// anywhere in it, ends with what the log says.
func TestRecoveredRunsOnTheWire(t *testing.T) {
	t.Parallel()
	list := slices.DeleteFunc(append(scenarios(), hasty()...), func(s scenario) bool {
		return s.unknown || s.again && os.Getenv(envChaos) == "" // the suite's own log has a rollback, too
	})
	for i := range matrix.Points(t, len(list), 5) {
		s := list[i]
		t.Run(s.title(), func(t *testing.T) {
			t.Parallel()
			moments := undisturbed(t, s).moments
			first, each := len(moments)*2/3, len(moments)
			if os.Getenv(envChaos) != "" {
				first, each = 2, 5
			}
			for k := first; k < len(moments); k += each {
				log := recoveredLog(t, s, moments[k])
				for _, ui7 := range []bool{false, true} {
					if os.Getenv(envChaos) == "" && ui7 != (i%2 == 0) {
						continue // in turn
					}
					t.Run(fmt.Sprintf("%v, ui7 %v", moments[k], ui7), func(t *testing.T) {
						onTheWire(t, log, ui7)
					})
				}
			}
		})
	}
}

// onTheWire checks that a reader that attaches anywhere in a log ends with what it says.
func onTheWire(t *testing.T, log []chunk.Record, ui7 bool) {
	t.Helper()
	wiretest.Run(t, wiretest.Wire{
		Log:     log,
		OnlyLog: true, // the wire's own tests have the others
		Profile: aisdk.Options{UI7: ui7}.Profile(),
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
		log := undisturbed(t, s).log
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
