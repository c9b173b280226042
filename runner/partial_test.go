package runner_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
)

// A killed process's answer that cannot be resumed ends as it was shown, if the agent
// says so: nothing is retracted, and the model is not asked again.
func TestKilledOwnersAnswerIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		keeping := func() *agent.Agent {
			a := demo(nil)
			a.FailPartial = true
			return a
		}
		first, store := w.second("first")
		first.start(keeping(), nil)
		w.say("s", "u1", "slowly")
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool { return c.(*chunk.TextDelta).Delta == "w2 " })
		store.die()
		w.start(keeping(), nil)
		w.wantLost("s")
	})
}

// A child's lost answer is its agent's to keep. The parent goes on.
func TestKilledChildsAnswerIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		keeping := func() *agent.Agent {
			kid := demo(map[string]scripted.Scene{"dig": sayFor(100, 100*time.Millisecond)})
			kid.FailPartial = true
			return parent(map[string]scripted.Scene{"go": ask("dig")}, agent.SubAgentOptions{}, kid)
		}
		first, store := w.second("first")
		first.start(keeping(), nil)
		w.say("s", "u1", "go")
		w.until("s", chunk.TypeTextDelta, func(c chunk.Chunk) bool {
			return c.ChunkBase().AgentID == "s.1" && c.(*chunk.TextDelta).Delta == "w2 "
		})
		store.die()
		w.start(keeping(), nil)
		f := w.fold("s")
		kid := f.Child("s.1")
		if f.Reason != "completed" || kid.Status != chunk.StatusFailed || kid.Error.Code != runner.CodeExecutorLost || !strings.HasPrefix(kid.Messages[1].Text(), "w0 w1 w2 ") {
			t.Errorf("%s, child %s %+v %q", f.Reason, kid.Status, kid.Error, kid.Messages[1].Text())
		}
		if call := toolParts(f)[0]; call.State != chunk.ToolFailed || !strings.Contains(call.Error, "was lost") {
			t.Errorf("%s", mustJSON(call))
		}
	})
}
