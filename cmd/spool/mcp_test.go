package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestMCPFlags(t *testing.T) {
	s := mcp.NewServer(&mcp.Implementation{Name: "t"}, nil)
	s.AddTool(&mcp.Tool{Name: "look.up", InputSchema: map[string]string{"type": "object"}}, nil)
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	defer h.Close()
	servers, err := connectMCP(t.Context(), []string{h.URL, " web=" + h.URL, "", h.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer servers.close()
	var names []string
	for _, x := range servers.tools() {
		names = append(names, x.Spec().Name)
	}
	if got := strings.Join(names, " "); got != "look_up web_look_up look_up" {
		t.Errorf("%s", got)
	}
	for flag, want := range map[string]string{
		"stdio:":                        "want a URL",
		"ftp://example.org":             "want a URL",
		"no such thing":                 "want a URL",
		"http:///nowhere":               "want a URL",
		"x=stdio:/nonexistent/program":  "the MCP server x cannot be reached",
		"http://127.0.0.1:1/mcp":        "cannot be reached",
		"stdio:cat " + os.DevNull + "x": "cannot be reached",
	} {
		if _, err := connectMCP(t.Context(), []string{h.URL, flag}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
