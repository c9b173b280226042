package mcptool_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool/mcptool"
)

// An agent uses the server's tools, also those that come while a run is open, and
// a stop of the run reaches the server.
func TestAgentUsesServer(t *testing.T) {
	var cancelled atomic.Int64
	server := newServer(&cancelled)
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	s := connect(t, mcptool.HTTP(h.URL, nil), nil)
	steps := func(calls ...scripted.ToolCall) scripted.Scene {
		var steps []scripted.Step
		for _, c := range calls {
			steps = append(steps, scripted.Say(scripted.Calls(c)))
		}
		return scripted.Steps(append(steps, scripted.Say(scripted.Text("done")))...)
	}
	a := &agent.Agent{Name: "clerk", MoreTools: s.Tools, Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
		"use": steps(scripted.ToolCall{ID: "a", Name: "add", Arguments: `{"a":2,"b":2}`}, scripted.ToolCall{ID: "b", Name: "media", Arguments: `{}`},
			scripted.ToolCall{ID: "c", Name: "add", Arguments: `{}`}, scripted.ToolCall{ID: "d", Name: "nothing", Arguments: `{}`}),
		"wait": steps(scripted.ToolCall{ID: "w", Name: "waits", Arguments: `{}`}),
	}})}
	store := memstore.New(nil)
	defer store.Close()
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	r, err := runner.New(logs, []*agent.Agent{a}, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(t.Context()) }()
	defer func() { _ = r.Close(); <-done }()
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	say := func(id, text string) {
		t.Helper()
		if _, err := g.Command(t.Context(), spool.Row{}, &chunk.UserMessage{CommandID: id, Message: chunk.Message{ID: id, Role: chunk.RoleUser,
			Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}); err != nil {
			t.Fatal(err)
		}
	}
	settled := func(until chunk.Type) (last *chunk.Message) {
		t.Helper()
		for r, err := range g.Records(t.Context(), spool.ReadOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Type == until {
				break
			}
		}
		if err := g.View(t.Context(), func(f *fold.Fold) error {
			m := f.Messages[len(f.Messages)-1].Clone()
			last = &m
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return last
	}
	say("u1", "use")
	m := settled("")
	var outputs, kinds []string
	for _, p := range m.Parts {
		switch {
		case p.Tool != nil:
			outputs = append(outputs, string(p.Tool.Output)+p.Tool.Error)
		case p.Type == chunk.PartFile || p.Type == chunk.PartSource:
			kinds = append(kinds, string(p.Type))
		}
	}
	if len(outputs) != 4 || outputs[0] != `{"sum":4}` || !strings.Contains(outputs[1], `"shown":true`) || !strings.Contains(outputs[2], "required") ||
		!strings.Contains(outputs[3], "there is no tool") || strings.Join(kinds, " ") != "file source file" || m.Text() != "done" {
		t.Errorf("%q %q %q", outputs, kinds, m.Text())
	}
	say("u2", "wait")
	settled(chunk.TypeProgress)
	if _, err := g.Command(t.Context(), spool.Row{}, &chunk.StopRequested{CommandID: "stop"}); err != nil {
		t.Fatal(err)
	}
	settled("")
	for cancelled.Load() == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the server never heard of it")
		}
	}
}
