// Package telemetry tells OpenTelemetry what runs do: traces and metrics, exported over
// OTLP/HTTP. A run is a trace. Its steps, model calls and tool calls are spans, with the
// attributes of the conventions for generative AI. Nothing of what was said is exported:
// no messages, no arguments, no results, and of errors only their codes.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options configure a [Telemetry]. The zero value works.
type Options struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, such as
	// http://localhost:4318. "": that of the environment.
	Endpoint string
	// Version is that of the program, for the resource that sends the data.
	Version string
	// Model returns the provider and the name of the model that an agent asks; either may
	// be "". nil: both are unknown.
	Model func(agent string) (provider, name string)
}

// Telemetry exports traces and metrics. See [Telemetry.Observer], [Telemetry.Store] and
// [Telemetry.Handler] for what it is told. Shut it down to send what is left.
type Telemetry struct {
	o      Options
	tracer trace.Tracer

	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider

	modelSeconds metric.Float64Histogram
	tokens       metric.Int64Histogram
	storeSeconds metric.Float64Histogram

	mu       sync.Mutex
	runs     map[string]*run // by session
	requests requests
}

// Configured reports whether the environment wants telemetry: whether it names an
// endpoint, and does not disable the SDK.
func Configured() bool {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
		if os.Getenv(name) != "" {
			return !strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true")
		}
	}
	return false
}

// New begins to export. What the options do not say, the standard variables OTEL_… of the
// environment do. It fails if one of them asks for what is not supported: of the
// protocols that is everything but http/protobuf, of the exporters all but otlp and none.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	if err := checkEnvironment(); err != nil {
		return nil, err
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "spool"), attribute.String("service.version", cmp.Or(o.Version, "unknown"))),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t := &Telemetry{o: o, runs: map[string]*run{}, requests: newRequests()}
	traces := []sdktrace.TracerProviderOption{sdktrace.WithResource(res), sdktrace.WithIDGenerator(ids{})}
	metrics := []sdkmetric.Option{sdkmetric.WithResource(res)}
	if exported("OTEL_TRACES_EXPORTER") {
		e, err := traceExporter(ctx, o.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
		traces = append(traces, sdktrace.WithBatcher(e))
	}
	if exported("OTEL_METRICS_EXPORTER") {
		e, err := metricExporter(ctx, o.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
		metrics = append(metrics, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e)))
	}
	t.traces, t.metrics = sdktrace.NewTracerProvider(traces...), sdkmetric.NewMeterProvider(metrics...)
	t.tracer = t.traces.Tracer(scope)
	return t, t.instruments()
}

// scope names this package as what measures.
const scope = "github.com/spool-run/spool/telemetry"

// checkEnvironment refuses what would silently be something else.
func checkEnvironment() error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"} {
		if v := os.Getenv(name); v != "" && v != "http/protobuf" {
			return fmt.Errorf("telemetry: %s=%s is not supported: want http/protobuf", name, v)
		}
	}
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"} {
		if v := os.Getenv(name); v != "" && v != "otlp" && v != "none" {
			return fmt.Errorf("telemetry: %s=%s is not supported: want otlp or none", name, v)
		}
	}
	return nil
}

func exported(env string) bool { return os.Getenv(env) != "none" }

func traceExporter(ctx context.Context, endpoint string) (sdktrace.SpanExporter, error) {
	if endpoint == "" {
		return otlptracehttp.New(ctx)
	}
	u, err := signalURL(endpoint, "v1/traces")
	if err != nil {
		return nil, err
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u))
}

func metricExporter(ctx context.Context, endpoint string) (sdkmetric.Exporter, error) {
	if endpoint == "" {
		return otlpmetrichttp.New(ctx)
	}
	u, err := signalURL(endpoint, "v1/metrics")
	if err != nil {
		return nil, err
	}
	return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(u))
}

// signalURL is where a collector takes one kind of data.
func signalURL(endpoint, path string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("the endpoint is not an http or https URL")
	}
	return u.JoinPath(path).String(), nil
}

func (t *Telemetry) instruments() (err error) {
	m := t.metrics.Meter(scope)
	histogram := func(name, unit, what string, bounds ...float64) metric.Float64Histogram {
		h, e := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		err = errors.Join(err, e)
		return h
	}
	t.modelSeconds = histogram("gen_ai.client.operation.duration", "s", "How long model calls take.",
		0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
	t.storeSeconds = histogram("spool.store.call.duration", "s", "How long calls of the store take that do not wait for something to happen.",
		0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
	var e error
	t.tokens, e = m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"), metric.WithDescription("Tokens that model calls use."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304))
	return errors.Join(err, e)
}

// Shutdown sends what is left, until ctx ends.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}
