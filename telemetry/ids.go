package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	"go.opentelemetry.io/otel/trace"
)

// runIDs are the ids of a run's trace and of the trace's first span. They follow from the
// run's id, so that a process that takes a run over continues its trace.
func runIDs(session, run string) (t trace.TraceID, s trace.SpanID) {
	h := sha256.Sum256([]byte("spool run\x00" + session + "\x00" + run))
	copy(t[:], h[:16])
	copy(s[:], h[16:])
	return t, s
}

type idsKey struct{}

// given are the ids of a trace's first span that does not get random ones.
type given struct {
	trace trace.TraceID
	span  trace.SpanID
}

// ids makes ids of traces and spans: random ones, or those that the context has.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	if g, ok := ctx.Value(idsKey{}).(given); ok {
		return g.trace, g.span
	}
	_, _ = rand.Read(t[:]) // it never fails
	return t, newSpanID()
}

func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

func newSpanID() (s trace.SpanID) {
	_, _ = rand.Read(s[:])
	return s
}
