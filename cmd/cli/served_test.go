package cli

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/agent"
)

// asked is what a provider is asked for: the system prompt and the names of the tools.
type asked struct{ prompt, tools string }

// chatProvider is a provider of chat completions that says hello.
func chatProvider(t *testing.T) (url string, requests chan asked) {
	t.Helper()
	requests = make(chan asked, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct {
				Role    string
				Content any
			}
			Tools []struct{ Function struct{ Name string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		var a asked
		for _, m := range body.Messages {
			if text, ok := m.Content.(string); ok && m.Role == "system" {
				a.prompt += text
			}
		}
		for _, tl := range body.Tools {
			a.tools += tl.Function.Name + " "
		}
		requests <- a
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// serves starts the agent that flags describe, and says something to it.
func serves(t *testing.T, c serveCmd) *servedAgent {
	t.Helper()
	s, err := c.newAgent(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	url := live(t, s.agents[0])
	res, err := http.Post(url+"/api/chat/s", "application/json", strings.NewReader(`{"message":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", res.Status, err)
	}
	return s
}

// A provider's model is asked with what the flags say and nothing else: no prompt and
// no tools of the demo, unless somebody wants them.
func TestProviderGetsWhatTheFlagsSay(t *testing.T) {
	provider, requests := chatProvider(t)
	t.Setenv("OPENAI_BASE_URL", provider)
	t.Setenv("OPENAI_API_KEY", "")
	m := mcp.NewServer(&mcp.Implementation{Name: "t"}, nil)
	m.AddTool(&mcp.Tool{Name: "look_up", InputSchema: map[string]string{"type": "object"}}, nil)
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, nil))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "prompt.md")
	if err := os.WriteFile(file, []byte("From a file.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const demoTools = "get_weather search_notes plan_trip book_trip get_location subagent__researcher "
	const demoPrompt = "You are the demo agent"
	for name, tt := range map[string]struct {
		flags         serveCmd
		prompt, tools string
		agent         string
	}{
		"nothing":         {serveCmd{}, "", "", agentName},
		"text":            {serveCmd{Prompt: "Be brief."}, "Be brief.", "", agentName},
		"file":            {serveCmd{Prompt: "@" + file}, "From a file.", "", agentName},
		"tools of others": {serveCmd{MCP: []string{server.URL}}, "", "look_up ", agentName},
		"demo":            {serveCmd{DemoTools: true}, demoPrompt, demoTools, demoName},
		"all":             {serveCmd{DemoTools: true, Prompt: "Be brief.", MCP: []string{server.URL}}, "Be brief.", demoTools + "look_up ", demoName},
	} {
		t.Run(name, func(t *testing.T) {
			tt.flags.Model = "openai:m"
			s := serves(t, tt.flags)
			got := <-requests
			if got.tools != tt.tools || !strings.HasPrefix(got.prompt, tt.prompt) || tt.prompt == "" && got.prompt != "" {
				t.Errorf("asked with %+v", got)
			}
			if s.agents[0].Name != tt.agent || s.info.Demo || s.info.Model != "openai:m" {
				t.Errorf("%s, %+v", s.agents[0].Name, s.info)
			}
		})
	}
}

// The scripted model has the demo's tools, whatever the flags say, as its scenes need
// them. A recording gets none.
func TestDemoIsServedWithItsTools(t *testing.T) {
	for model, want := range map[string]int{"scripted": 6, "replay:../../model/modeltest/testdata/openai-chat": 0} {
		c := serveCmd{Model: model}
		s, err := c.newAgent(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(s.agents[0].Tools); got != want {
			t.Errorf("%s has %d tools", model, got)
		}
		s.close()
	}
}

// A session that was begun with the demo goes on with a provider, and the other way
// round: the agent answers to both names.
func TestAgentHasBothNames(t *testing.T) {
	provider, _ := chatProvider(t)
	t.Setenv("OPENAI_BASE_URL", provider)
	for _, model := range []string{"scripted", "openai:m"} {
		c := serveCmd{Model: model}
		s, err := c.newAgent(t.Context(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		for _, name := range []string{demoName, agentName} {
			i := slices.IndexFunc(s.agents, func(a *agent.Agent) bool { return a.Name == name })
			if i < 0 || s.agents[i].Model != s.agents[0].Model {
				t.Errorf("%s: there is no %s", model, name)
			}
		}
	}
}

func TestInstructionsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"empty": " \n", "binary": "\xff\xfe", "large": strings.Repeat("x", maxInstructions+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"nothing": "no such file", "empty": "is empty", "binary": "UTF-8", "large": "1 MiB", ".": "is a directory"} {
		c := serveCmd{Model: "scripted", Prompt: "@" + filepath.Join(dir, path)}
		_, err := c.newAgent(t.Context(), slog.New(slog.DiscardHandler))
		if u, ok := errors.AsType[*usageError](err); !ok || !strings.Contains(u.msg, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
