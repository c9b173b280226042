package cli

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// What is typed answers the question that stood before it. If that was answered
// elsewhere meanwhile, the line is not taken for the answer to the next one.
func TestQuestionAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	posts := make(chan string, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		posts <- r.URL.Path
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ch := &conversation{s: c.Session("s"), in: &console{}, out: bufio.NewWriter(&out), remote: &remote{Server: server.URL}, done: make(chan outcome), sent: map[string]bool{}}
	ch.p = newPrinter(ch.out, "s", 80, false)
	arrives := func(c chunk.Chunk) {
		c.ChunkBase().AgentID = "s"
		ch.arrived(client.Entry{Record: chunk.Record{Agent: "s", Type: c.ChunkType()}, Chunk: c})
	}
	types := func(line string) {
		ch.asked = false
		if err := ch.typed(t.Context(), typed{text: line + "\n"}); err != nil {
			t.Fatal(err)
		}
	}
	arrives(&chunk.RunStarted{Base: chunk.Base{RunID: "r1"}})
	arrives(&chunk.ToolApprovalRequest{ApprovalID: "a1", ToolCallID: "c1", ToolName: "buy"})
	arrives(&chunk.ToolApprovalRequest{ApprovalID: "a2", ToolCallID: "c2", ToolName: "sell"})
	if ch.idle() {
		t.Error("it is not the person's turn while a run is open")
	}
	arrives(&chunk.RunSuspended{Kind: "awaiting_approval"})
	if got := ch.prompt(); !ch.idle() || !strings.HasPrefix(got, "allow buy") {
		t.Fatalf("the prompt is %q", got)
	}
	arrives(&chunk.ToolApprovalResponse{ApprovalID: "a1", CommandID: "d1", Approved: false})
	types("y")
	_ = ch.out.Flush()
	if len(posts) != 0 || !strings.Contains(out.String(), "answered elsewhere") || !ch.idle() {
		t.Fatalf("%d requests after %q", len(posts), out.String())
	}
	if got := ch.prompt(); !strings.HasPrefix(got, "allow sell") {
		t.Fatalf("the prompt is %q", got)
	}
	types("perhaps")
	types("Yes, it is late")
	if path := <-posts; path != "/api/chat/s/approvals/a2" {
		t.Errorf("%s was posted", path)
	}
	o := <-ch.done
	ch.busy--
	if err := o.then(); err != nil || ch.idle() {
		t.Errorf("before the answer is in the log it is not the person's turn: %v", err)
	}
	arrives(&chunk.ToolApprovalResponse{ApprovalID: "a2", CommandID: "d2", Approved: true})
	if ch.idle() {
		t.Error("the last answer lets the run go on, and that is waited for")
	}
	arrives(&chunk.RunStarted{Base: chunk.Base{RunID: "r2"}, Commands: []string{"d1", "d2"}})
	arrives(&chunk.RunFinished{Outcome: chunk.OutcomeCompleted})
	if !ch.idle() || ch.prompt() != "> " {
		t.Errorf("after the run: %v, %q", ch.sent, ch.prompt())
	}
	if d, ok := decision("No! not today"); !ok || d.Approved || d.Reason != "not today" {
		t.Errorf("%+v", d)
	}
}

// A message that waits behind a question does not keep the question from being asked.
func TestQueuedBehindAQuestion(t *testing.T) {
	t.Parallel()
	ch := &conversation{s: &client.Session{}, in: &console{}, remote: &remote{}, sent: map[string]bool{"c2": true, waitingKey + "u3": true}}
	if ch.idle() {
		t.Error("what was sent waits for its run")
	}
	ch.runs = "r1"
	ch.ask(pendingCall{approval: "a1", call: "c1", tool: "buy"})
	if ch.idle() {
		t.Error("a run is open")
	}
	ch.runs = ""
	if !ch.idle() {
		t.Error("the question waits for the person")
	}
	ch.sent[answerKey+"a1"] = true
	if ch.idle() {
		t.Error("an answer is on its way")
	}
}
