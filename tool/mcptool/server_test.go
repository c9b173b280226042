package mcptool_test

//lint:file-ignore SA1019 The protocol gives logging up, but servers still log so.

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/tool/mcptool"
)

const envServe = "SPOOL_TEST_MCP_SERVER"

// As a process of its own, this binary is a server on its standard input.
func TestMain(m *testing.M) {
	if os.Getenv(envServe) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "a server begins")
	if err := newServer(new(atomic.Int64)).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// newServer returns a server of tools that show what there is. It counts the
// calls whose cancellation it saw.
func newServer(cancelled *atomic.Int64) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "tests", Version: "1"}, &mcp.ServerOptions{PageSize: 3,
		Capabilities: &mcp.ServerCapabilities{Logging: &mcp.LoggingCapabilities{}, Tools: &mcp.ToolCapabilities{ListChanged: true}}})
	type numbers struct {
		A int `json:"a" jsonschema:"the first"`
		B int `json:"b,omitempty"`
	}
	yes := true
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Adds.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, map[string]int, error) {
			return nil, map[string]int{"sum": in.A + in.B}, nil
		})
	say := func(content ...mcp.Content) mcp.ToolHandler {
		return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: content}, nil
		}
	}
	object := json.RawMessage(`{"type":"object"}`)
	add := func(t mcp.Tool, h mcp.ToolHandler) {
		if t.InputSchema == nil {
			t.InputSchema = object
		}
		s.AddTool(&t, h)
	}
	add(mcp.Tool{Name: "text"}, say(&mcp.TextContent{Text: "one"}, &mcp.TextContent{Text: "two"}))
	add(mcp.Tool{Name: "media", Title: "Shows things."}, say(&mcp.TextContent{Text: "look"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("png")},
		&mcp.ResourceLink{URI: "https://example.org/a", Name: "a", MIMEType: "text/html"},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///n.txt", MIMEType: "text/plain", Text: "note"}},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///b.bin", Blob: []byte("bytes")}}))
	add(mcp.Tool{Name: "fails"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no such city"}}}, nil
	})
	add(mcp.Tool{Name: "refuses"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("refused on the protocol's level")
	})
	add(mcp.Tool{Name: "files/wipe.all", Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}}, say(&mcp.TextContent{Text: "wiped"}))
	add(mcp.Tool{Name: "files_wipe_all", Annotations: &mcp.ToolAnnotations{IdempotentHint: true}}, say(&mcp.TextContent{Text: "another"}))
	add(mcp.Tool{Name: "exotic", InputSchema: json.RawMessage(`{"type":"object","properties":{"x":{"$ref":"https://example.org/elsewhere.json"}}}`)},
		say(&mcp.TextContent{Text: "as you say"}))
	add(mcp.Tool{Name: "meta"}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(r.Params.Meta["spool.run/effectId"])}}}, nil
	})
	add(mcp.Tool{Name: "waits"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 2 {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(),
				Message: fmt.Sprint("step ", i+1), Progress: float64(i + 1), Total: 4})
		}
		<-ctx.Done()
		cancelled.Add(1)
		return nil, ctx.Err()
	})
	add(mcp.Tool{Name: "cancelled"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: cancelled.Load()}, nil
	})
	add(mcp.Tool{Name: "dies"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	add(mcp.Tool{Name: "pid"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: os.Getpid()}, nil
	})
	add(mcp.Tool{Name: "logs"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "warning", Logger: "deep", Data: "look out"})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(err)}}}, nil
	})
	add(mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.RemoveTools("text")
		s.AddTool(&mcp.Tool{Name: "late", InputSchema: object}, say(&mcp.TextContent{Text: "here"}))
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	return s
}

// process is a way to a server in a process of its own.
func process(t *testing.T) mcptool.Dial {
	t.Setenv(envServe, "1")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return mcptool.Command(exe)
}

// loopback is a way to a server over HTTP, and what its handler counts.
func loopback(t *testing.T) (dial mcptool.Dial, h *httptest.Server) {
	s := newServer(new(atomic.Int64))
	h = httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return mcptool.HTTP(h.URL, nil), h
}

func connect(t *testing.T, dial mcptool.Dial, o *mcptool.Options) *mcptool.Server {
	t.Helper()
	s, err := mcptool.Connect(t.Context(), dial, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// logTo is a logger whose lines go to a channel.
func logTo(lines chan<- string) *slog.Logger {
	return slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		select {
		case lines <- string(p):
		default:
		}
		return len(p), nil
	}), nil))
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }
