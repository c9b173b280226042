package server_test

import (
	"net/http"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/tool"
)

type place struct {
	Lat float64 `json:"lat"`
}

// TestResultsAreChecked: a result that is not what its tool declares is refused,
// whichever way it comes and whosever call it is, and the call still waits.
func TestResultsAreChecked(t *testing.T) {
	t.Parallel()
	locator := func(name string) *agent.Agent {
		return &agent.Agent{Name: name, Tools: []tool.Tool{tool.ClientOf[struct{}, place]("locate", "")},
			Model: scripted.New(&scripted.Options{Default: scripted.Steps(
				scripted.Say(scripted.Calls(scripted.ToolCall{ID: "c1", Name: "locate", Arguments: `{}`})),
				scripted.Say(scripted.Text("found")))})}
	}
	asker := &agent.Agent{Name: "asker", Tools: []tool.Tool{agent.SubAgent(locator("helper"), agent.SubAgentOptions{})},
		Model: scripted.New(&scripted.Options{Default: scripted.Steps(
			scripted.Say(scripted.Calls(scripted.ToolCall{ID: "c1", Name: "subagent__helper", Arguments: `{"task":"find me"}`})),
			scripted.Say(scripted.Text("found")))})}
	for _, tt := range []struct {
		name, session string // whose call it is
		agent         *agent.Agent
	}{
		{"its own", "s", locator("locator")},
		{"a child's", "s.1", asker},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t, &server.Options{Chat: chat.Options{Agents: []*agent.Agent{tt.agent}}})
			k.execute(tt.agent)

			k.say("s", "u1", "where am I?").all()
			before := len(k.log("s"))
			snap := k.snapshot("s")
			message := snap.Messages[len(snap.Messages)-1]
			call := message.Parts[len(message.Parts)-1].ToolCallID // as the root's stream names it
			_, own := chunk.SplitCallID("s", call)
			wrong := map[string]any{"toolCallId": call, "state": "output-available", "output": map[string]string{"lat": "north"}}
			k.problem(http.StatusUnprocessableEntity, "result_invalid", "POST", "/api/chat/s", answers(message.ID, wrong))
			route := "/api/chat/" + tt.session + "/tools/" + own
			k.problem(http.StatusUnprocessableEntity, "result_invalid", "POST", route, `{"output":7}`)
			if n := len(k.log("s")); n != before {
				t.Errorf("%d records were written", n-before)
			}
			right := map[string]any{"toolCallId": call, "state": "output-available", "output": map[string]int{"lat": 38}}
			if got := textOf(k.stream("POST", "/api/chat/s", answers(message.ID, right)).all()); got != "found" {
				t.Errorf("the answer is %q", got)
			}
			// The same again is known, and not looked at.
			k.status(http.StatusOK, "POST", route, `{"output":{"lat":38}}`)
		})
	}
}
