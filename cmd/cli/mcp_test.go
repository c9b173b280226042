package cli

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
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

// TestServersGetNoKeys: what a server that is started here sees of our environment.
func TestServersGetNoKeys(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "secret")
	t.Setenv("SPOOL_MODEL", "secret")
	t.Setenv("FORGE_TOKEN", "theirs")
	cmd := shell("env")().(*mcp.CommandTransport).Command
	cmd.Stderr = io.Discard
	out, err := (&exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env}).Output()
	if err != nil {
		t.Fatal(err)
	}
	if env := string(out); strings.Contains(env, "secret") || !strings.Contains(env, "FORGE_TOKEN=theirs") || !strings.Contains(env, "PATH=") {
		t.Errorf("a server's environment:\n%s", env)
	}
}

// --mcp can be repeated, and its environment variable has one value per line.
func TestMCPFlag(t *testing.T) {
	want := []string{"http://a", "stdio:b, c"}
	for name, args := range map[string][]string{"flags": {"serve", "--mcp", want[0], "--mcp=" + want[1]}, "environment": {"serve"}} {
		t.Run(name, func(t *testing.T) {
			if name == "environment" {
				t.Setenv("SPOOL_MCP", strings.Join(want, "\n"))
			}
			var c cli
			parser, err := kong.New(&c, kong.DefaultEnvars("SPOOL"), kong.Vars{"server": localServer, "version": "", "wires": "native"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(args); err != nil || !slices.Equal(c.Serve.MCP, want) {
				t.Errorf("%q, %v", c.Serve.MCP, err)
			}
		})
	}
}
