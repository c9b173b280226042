package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/wire/aisdk"
)

// lead runs an agent with two helpers at once: one needs a human, one a client.
func (k *kit) lead() {
	k.Helper()
	helper := &agent.Agent{Name: "helper",
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"wipe":   scripted.Steps(scripted.Say(scripted.Text("may I? "), scripted.Calls(scripted.ToolCall{ID: "c1", Name: "wipe", Arguments: `{}`})), scripted.Say(scripted.Text("so be it"))),
			"locate": scripted.Steps(scripted.Say(scripted.Calls(scripted.ToolCall{ID: "c1", Name: "locate", Arguments: `{}`})), scripted.Say(scripted.Text("there you are"))),
		}}),
		Tools: []tool.Tool{
			tool.With(tool.New("wipe", "", func(tool.Context, struct{}) (string, error) { return "wiped", nil }), tool.Options{Approval: true}),
			tool.Client[struct{}]("locate", ""),
		}}
	call := func(id, task string) scripted.ToolCall {
		return scripted.ToolCall{ID: id, Name: "subagent__helper", Arguments: `{"task":"` + task + `"}`}
	}
	lead := &agent.Agent{Name: "lead",
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"both": scripted.Steps(scripted.Say(scripted.Text("two of mine. "), scripted.Calls(call("c1", "wipe"), call("c2", "locate"))), scripted.Say(scripted.Text("done"))),
		}}),
		Tools: []tool.Tool{agent.SubAgent(helper, agent.SubAgentOptions{})}}
	k.execute(lead)
}

// waiting returns the message of a turn that waits, as a client has it, and the
// parts that the client may answer.
func (k *kit) waiting(agents string) (m aisdk.UIMessage, parts []aisdk.UIPart) {
	k.Helper()
	c := aisdk.Client{}
	for _, e := range k.stream("POST", "/api/chat/s"+agents, userBody("s", "u1", "both")).all() {
		if err := c.Write([]byte("data: " + e.Data + "\n\n")); err != nil {
			k.Fatal(err)
		}
	}
	for _, p := range c.Message.Parts {
		switch {
		case p.Type == "dynamic-tool" && (p.State == aisdk.StateApprovalRequested || p.State == aisdk.StateInputAvailable):
			parts = append(parts, p)
		case p.Type == "dynamic-tool" && (p.State != aisdk.StateOutputAvailable || p.Preliminary || !strings.Contains(string(p.Output), "subSessionId")):
			k.Errorf("a call that waits for its agent is %+v", p)
		}
	}
	if len(parts) != 2 {
		k.Fatalf("the client can answer %+v of %s", parts, mustJSON(c.Message.Parts))
	}
	slices.SortFunc(parts, func(a, b aisdk.UIPart) int { return strings.Compare(a.ToolName, b.ToolName) })
	return c.Message, parts // locate, wipe
}

// TestChildrenAskByChat: what children wait for is answered by the stock client's
// POST on their root, whose own calls it sends along.
func TestChildrenAskByChat(t *testing.T) {
	t.Parallel()
	for _, agents := range []string{"?agents=nest", "?agents=summary", "?agents=flatten"} {
		for _, approved := range []bool{true, false} {
			t.Run(fmt.Sprint(agents, approved), func(t *testing.T) {
				t.Parallel()
				k := newKit(t, nil)
				k.lead()
				m, parts := k.waiting(agents)
				var sent []any
				for _, p := range m.Parts {
					switch {
					case p.ToolCallID == parts[0].ToolCallID:
						p.State, p.Output = aisdk.StateOutputAvailable, []byte(`"home"`)
					case p.ToolCallID == parts[1].ToolCallID:
						p.State, p.Approval.Approved = aisdk.StateApprovalResponded, &approved
					}
					sent = append(sent, p)
				}
				body := mustJSON(map[string]any{"id": "s", "trigger": "submit-message", "messageId": m.ID,
					"messages": []any{map[string]any{"id": m.ID, "role": "assistant", "parts": sent}}})
				list := k.stream("POST", "/api/chat/s"+agents, body).all()
				want := []string{"done"}
				if agents == "?agents=flatten" { // at the same time as the root's calls
					want = []string{"done", "so be it", "there you are"}
				}
				if got := blocksOf(list); !slices.Equal(got, want) {
					t.Errorf("the answer goes on with %q, want %q: %s", got, want, datas(list))
				}
				if again := k.stream("POST", "/api/chat/s"+agents, body).all(); datas(again) != datas(list) {
					t.Errorf("the same answers again: %s\nwas: %s", datas(again), datas(list))
				}
				snap := k.snapshot("s")
				if snap.Status != chunk.StatusEnded {
					t.Errorf("the session is %s", snap.Status)
				}
				states := map[string]string{parts[0].ToolCallID: aisdk.StateOutputAvailable, parts[1].ToolCallID: aisdk.StateOutputAvailable}
				if !approved {
					states[parts[1].ToolCallID] = aisdk.StateOutputDenied
				}
				for _, p := range snap.Messages[1].Parts {
					if state, ok := states[p.ToolCallID]; ok && p.State != state {
						t.Errorf("%s is %s, want %s", p.ToolName, p.State, state)
					}
				}
			})
		}
	}
}

// TestChildrenAskByRoute: the same by the root's routes and by the child's own;
// the first answer counts on both.
func TestChildrenAskByRoute(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"root", "child"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, nil)
			k.lead()
			_, parts := k.waiting("")
			locator, call := chunk.SplitCallID("s", parts[0].ToolCallID)
			wiper, _ := chunk.SplitCallID("s", parts[1].ToolCallID)
			if locator == "s" || call == "" || wiper == "s" || wiper == locator {
				t.Fatalf("the calls are %s and %s", parts[0].ToolCallID, parts[1].ToolCallID)
			}
			approvals, result := "/api/chat/s/approvals/", "/api/chat/s/tools/"+strings.ReplaceAll(parts[0].ToolCallID, "/", "%2F")
			others := [2]string{"/api/chat/" + wiper + "/approvals/", "/api/chat/" + locator + "/tools/" + call}
			if by == "child" {
				approvals, result, others = others[0], others[1], [2]string{approvals, result}
			}
			id := parts[1].Approval.ID
			k.problem(http.StatusNotFound, "no_such_call", "POST", "/api/chat/"+locator+"/approvals/"+id, `{"approved":true}`)
			k.problem(http.StatusNotFound, "no_such_call", "POST", "/api/chat/s/tools/s.9%2Fc1", `{"output":1}`)
			k.status(http.StatusConflict, "POST", "/api/chat/s/tools/c1", `{"output":"forged"}`) // it waits for its agent
			k.status(http.StatusOK, "POST", approvals+id, `{"approved":true}`)
			k.problem(http.StatusConflict, "already_answered", "POST", others[0]+id, `{"approved":false}`)
			k.status(http.StatusOK, "POST", result, `{"output":"home"}`)
			k.status(http.StatusOK, "POST", others[1], `{"output":"home"}`)
			k.problem(http.StatusConflict, "already_answered", "POST", others[1], `{"output":"abroad"}`)
			k.await("s")
			if got := textOfMessage(k.snapshot("s").Messages[1]); got != "two of mine. done" {
				t.Errorf("the session says %q", got)
			}
			if got := textOfMessage(k.snapshot(locator).Messages[1]); got != "there you are" {
				t.Errorf("the child says %q", got)
			}
		})
	}
}

// TestStopOfAChild: a child that is stopped fails its parent's call, and its
// parent goes on; stopping the root stops all.
func TestStopOfAChild(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.lead()
	_, parts := k.waiting("")
	locator, _ := chunk.SplitCallID("s", parts[0].ToolCallID)
	wiper, _ := chunk.SplitCallID("s", parts[1].ToolCallID)
	k.status(http.StatusOK, "POST", "/api/chat/"+wiper+"/approvals/"+parts[1].Approval.ID, `{"approved":true}`)
	k.status(http.StatusOK, "POST", "/api/chat/"+locator+"/stop", "")
	k.await("s")
	snap := k.snapshot("s")
	if got := textOfMessage(snap.Messages[1]); snap.Status != chunk.StatusEnded || got != "two of mine. done" {
		t.Errorf("the session is %s and says %q", snap.Status, got)
	}
	if c := k.snapshot(locator); c.Status != chunk.StatusEnded || c.Reason != string(chunk.OutcomeStopped) {
		t.Errorf("the child is %s (%s)", c.Status, c.Reason)
	}
}

// await waits until nothing is done in a session and nothing is due.
func (k *kit) await(session string) {
	k.Helper()
	k.stream("GET", "/stream/"+session, "").all()
}

// blocksOf returns the texts of a stream's blocks, sorted: those of several agents grow
// at the same time.
func blocksOf(list []event) []string {
	texts := map[string]string{}
	for _, e := range list {
		var f struct{ Type, ID, Delta string }
		if json.Unmarshal([]byte(e.Data), &f) == nil && f.Type == "text-delta" {
			texts[f.ID] += f.Delta
		}
	}
	return slices.Sorted(maps.Values(texts))
}

func textOfMessage(m aisdk.UIMessage) string {
	text := ""
	for _, p := range m.Parts {
		if p.Type == "text" {
			text += p.Text
		}
	}
	return text
}
