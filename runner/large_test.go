package runner_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

// TestLargeWordsAboutFailure: an error text or metadata too large for a record
// must not keep a run from ending, nor a tool's from reaching the model.
func TestLargeWordsAboutFailure(t *testing.T) {
	large := strings.Repeat("é", 300<<10)
	inWorld(t, func(w *world) {
		a := demo(map[string]scripted.Scene{
			"broken": func(scripted.Call) iter.Seq2[model.Part, error] {
				return func(yield func(model.Part, error) bool) {
					_ = yield(model.TextDelta{Delta: "half"}, nil) && yield(nil, &model.Error{Code: "rejected", Message: large})
				}
			},
			"go": useTool(call("a", "loud", "{}")),
		})
		a.Tools = append(a.Tools, tool.New("loud", "", func(tool.Context, struct{}) (int, error) { return 0, errors.New(large) }))
		a.FinishMetadata = func(_ context.Context, _ agent.RunInfo) any { return map[string]string{"all": large} }
		w.start(a, nil)
		begun := time.Now()
		w.say("s", "u1", "broken")
		f := w.fold("s")
		if f.Status != spool.StatusFailed || f.Error.Code != "rejected" || len(f.Error.Error) > 16<<10 || !strings.HasPrefix(f.Error.Error, "éééé") {
			t.Errorf("status %s, error %.100v", f.Status, f.Error)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		w.say("s", "u2", "go")
		f = w.fold("s")
		calls := toolParts(f)
		if f.Reason != "completed" || len(calls) != 1 || calls[0].State != spool.ToolFailed || !strings.HasPrefix(calls[0].Error, "éééé") {
			t.Errorf("%s, error %.100v", f.Reason, f.Error)
		}
	})
}
