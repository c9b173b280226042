package cli

import (
	"io"
	"log/slog"

	"github.com/spool-run/spool/internal/redact"
)

// newLogger returns a logger that removes secrets from its output.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	return redact.Logger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}
