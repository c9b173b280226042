package mcptool

//lint:file-ignore SA1019 The protocol gives logging up, but servers still log so.

import (
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// hears makes a client log what its server says.
func (s *Server) hears(o *mcp.ClientOptions) *mcp.ClientOptions {
	o.LoggingMessageHandler = s.logged
	return o
}

// askForLogsOf adds to a call what makes servers of newer protocols log.
func (s *Server) askForLogsOf(ctx context.Context, params *mcp.CallToolParams) {
	if level := s.logLevel(ctx); level != "" {
		params.Meta[mcp.MetaKeyLogLevel] = level
	}
}

// logLevel is the level from which on servers are to log, "" for not at all.
// Servers of newer protocols are told with each call.
func (s *Server) logLevel(ctx context.Context) mcp.LoggingLevel {
	switch {
	case s.o.Logger == nil:
		return ""
	case s.log.Enabled(ctx, slog.LevelDebug):
		return "debug"
	}
	return "info"
}

// askForLogs tells servers of older protocols.
func (s *Server) askForLogs(ctx context.Context, cs *mcp.ClientSession) {
	info := cs.InitializeResult()
	level := s.logLevel(ctx)
	if level == "" || info == nil || info.Capabilities == nil || info.Capabilities.Logging == nil {
		return
	}
	if err := cs.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: level}); err != nil {
		s.log.Debug("an MCP server does not log", "server", s.called(), "err", err)
	}
}

func (s *Server) logged(ctx context.Context, r *mcp.LoggingMessageRequest) {
	level := slog.LevelInfo
	switch r.Params.Level {
	case "debug":
		level = slog.LevelDebug
	case "warning":
		level = slog.LevelWarn
	case "error", "critical", "alert", "emergency":
		level = slog.LevelError
	}
	s.log.Log(ctx, level, "an MCP server says", "server", s.called(), "logger", r.Params.Logger, "data", r.Params.Data)
}
