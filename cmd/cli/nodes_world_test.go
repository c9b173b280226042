//go:build nodes

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// outside is what the nodes of a test have in common but their store: a provider of chat
// completions, and an MCP server whose tools have effects. It counts what it is asked for.
type outside struct {
	provider, tools *httptest.Server

	mu       sync.Mutex
	requests map[string]int // to the provider, by session
	effects  map[string]int // of tools, by tool and session
}

// scenes are what the user says before the session's name, and the tools that the model then
// calls, one in a step.
var scenes = map[string][]string{
	"say":   nil,
	"look":  {"look", "look"},
	"pay":   {"look", "pay"},
	"book":  {"book"}, // after an approval
	"story": nil,      // so long that it can be stopped
}

func newOutside(t *testing.T) *outside {
	w := &outside{requests: map[string]int{}, effects: map[string]int{}}
	w.provider = httptest.NewServer(http.HandlerFunc(w.complete))
	s := mcp.NewServer(&mcp.Implementation{Name: "world", Version: "1"}, nil)
	yes, no := true, false
	w.tool(s, "look", &mcp.ToolAnnotations{ReadOnlyHint: true})
	w.tool(s, "pay", &mcp.ToolAnnotations{DestructiveHint: &no})
	w.tool(s, "book", &mcp.ToolAnnotations{DestructiveHint: &yes}) // so it needs an approval
	w.tools = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() {
		for _, h := range []*httptest.Server{w.provider, w.tools} {
			h.CloseClientConnections()
			h.Close()
		}
	})
	return w
}

// tool adds a tool that does its work once for each call that it gets.
func (w *outside) tool(s *mcp.Server, name string, a *mcp.ToolAnnotations) {
	s.AddTool(&mcp.Tool{Name: name, Annotations: a, InputSchema: json.RawMessage(`{"type":"object","properties":{"session":{"type":"string"}}}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct{ Session string }
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			w.mu.Lock()
			w.effects[name+" "+in.Session]++
			w.mu.Unlock()
			select {
			case <-time.After(150 * time.Millisecond): // a fault may come between the effect and its outcome
			case <-ctx.Done():
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " done"}}}, nil
		})
}

// completion is as much of a request for a chat completion as scenes depend on.
type completion struct {
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
}

// complete plays the next step of the scene that the user's message names.
func (w *outside) complete(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.NotFound(rw, r)
		return
	}
	var in completion
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	scene, session, outcomes := in.scene()
	w.mu.Lock()
	w.requests[session]++
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "text/event-stream")
	out := events{rw, http.NewResponseController(rw)}
	if calls := scenes[scene]; outcomes < len(calls) {
		name := calls[outcomes]
		out.say(r.Context(), "Step "+name+". ")
		arguments, _ := json.Marshal(map[string]string{"session": session})
		out.delta(map[string]any{"tool_calls": []any{map[string]any{"index": 0, "id": fmt.Sprintf("call-%s-%d", session, outcomes), "type": "function",
			"function": map[string]string{"name": name, "arguments": string(arguments)}}}}, "")
		out.delta(map[string]any{}, "tool_calls")
	} else {
		out.say(r.Context(), finalText(scene, session))
		out.delta(map[string]any{}, "stop")
	}
	out.write("[DONE]")
}

// finalText is the last text of a scene's answer.
func finalText(scene, session string) string {
	words := 12
	if scene == "story" {
		words = 400
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This is %s:", session)
	for n := range words {
		fmt.Fprintf(&b, " word %d,", n)
	}
	b.WriteString(" the end.")
	return b.String()
}

// scene returns what the last message of the user asks for, and how many calls have an
// outcome since.
func (c completion) scene() (scene, session string, outcomes int) {
	for _, m := range slices.Backward(c.Messages) {
		switch m.Role {
		case "tool":
			outcomes++
		case "user":
			var text string
			if json.Unmarshal(m.Content, &text) != nil {
				var parts []struct{ Text string }
				_ = json.Unmarshal(m.Content, &parts)
				for _, p := range parts {
					text += p.Text
				}
			}
			scene, session, _ = strings.Cut(text, " ")
			return scene, session, outcomes
		}
	}
	return "", "", 0
}

// events writes the events of a completion.
type events struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// say sends a text in pieces of a word, at a pace at which faults find runs at work.
func (e events) say(ctx context.Context, text string) {
	for word := range strings.SplitAfterSeq(text, " ") {
		e.delta(map[string]any{"content": word}, "")
		select {
		case <-time.After(15 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

func (e events) delta(d map[string]any, finish string) {
	choice := map[string]any{"index": 0, "delta": d}
	if finish != "" {
		choice["finish_reason"] = finish
	}
	data, _ := json.Marshal(map[string]any{"id": "c", "object": "chat.completion.chunk", "choices": []any{choice}})
	e.write(string(data))
}

func (e events) write(data string) {
	_, _ = fmt.Fprintf(e.w, "data: %s\n\n", data)
	_ = e.c.Flush()
}

func (w *outside) asked(session string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[session]
}

func (w *outside) done(tool, session string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[tool+" "+session]
}
