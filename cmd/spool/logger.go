package main

import (
	"io"
	"log/slog"

	"github.com/spool-run/spool/internal/redact"
)

// newLogger returns a logger from which secrets are taken out.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			a.Value = slog.StringValue(redact.Text(v))
		case error:
			a.Value = slog.StringValue(redact.Text(v.Error()))
		}
		return a
	}}))
}
