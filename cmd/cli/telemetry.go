package cli

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/telemetry"
)

// flushLimit bounds how long the last traces and metrics may take to be sent.
const flushLimit = 5 * time.Second

// exporter is the telemetry of a server; without one nothing is exported.
type exporter struct {
	*telemetry.Telemetry // nil: none
	log                  *slog.Logger
}

// exporter returns what exports if the flag or the environment names an endpoint.
func (c *serveCmd) exporter(ctx context.Context, info server.Info, version release, log *slog.Logger) (*exporter, error) {
	e := &exporter{log: log}
	if c.OTLP == "" && !telemetry.Configured() {
		return e, nil
	}
	if c.OTLP != "" && !webAddress(c.OTLP) {
		return nil, wrong("--otlp-endpoint", withoutPassword(c.OTLP), "an address like http://127.0.0.1:4318")
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("telemetry cannot be sent", "error", err) }))
	provider, name, _ := strings.Cut(info.Model, ":")
	provider, _, _ = strings.Cut(provider, "-") // openai-responses is openai, too
	var err error
	e.Telemetry, err = telemetry.New(ctx, telemetry.Options{Endpoint: c.OTLP, Version: string(version),
		Model: func(string) (string, string) { return provider, name }})
	if err != nil {
		return nil, &usageError{err.Error()}
	}
	return e, nil
}

// store is the store as the logs see it.
func (e *exporter) store(s Store) spool.Store {
	if e.Telemetry == nil {
		return s
	}
	return e.Store(s)
}

// handler is the handler of all requests.
func (e *exporter) handler(h http.Handler) http.Handler {
	if e.Telemetry == nil {
		return h
	}
	return e.Handler(h)
}

// close sends what is left.
func (e *exporter) close() {
	if e.Telemetry == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	if err := e.Shutdown(ctx); err != nil {
		e.log.Warn("telemetry cannot be sent", "error", err)
	}
}
