package telemetry

import (
	lru "container/list"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Handler returns a handler that makes a span of each request that changes something:
// every method but GET, HEAD and OPTIONS. The span continues the trace that the request's
// traceparent names. It is linked with the run that answers the request, if that begins in
// this process.
func (t *Telemetry) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			next.ServeHTTP(w, r)
			return
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, s := t.tracer.Start(ctx, method(r.Method), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", method(r.Method)), attribute.String("url.path", r.URL.Path), attribute.String("url.scheme", scheme(r))))
		defer s.End()
		noted := &status{ResponseWriter: w}
		next.ServeHTTP(noted, r.WithContext(ctx))
		if noted.code == 0 {
			noted.code = http.StatusOK
		}
		s.SetAttributes(attribute.Int("http.response.status_code", noted.code))
		if noted.code >= http.StatusInternalServerError {
			s.SetStatus(codes.Error, "")
		}
	})
}

// method is a request's method; those that HTTP does not define are not told apart.
func method(m string) string {
	switch m {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return m
	}
	return other
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// status notes the status that was written.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	if s.code == 0 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// maxRequests bounds the requests of which it is not known yet which run answers them.
const maxRequests = 10_000

// requests are the spans of the requests whose commands were stored, until a run begins in
// their session: the first of each session.
type requests struct {
	mu       *sync.Mutex
	sessions map[string]*lru.Element
	order    *lru.List // of waiting, oldest first
}

type waiting struct {
	session string
	span    trace.Span
}

func newRequests() requests {
	return requests{mu: new(sync.Mutex), sessions: map[string]*lru.Element{}, order: lru.New()}
}

func (q *requests) put(session string, s trace.Span) {
	if !s.SpanContext().IsValid() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sessions[session] != nil {
		return
	}
	q.sessions[session] = q.order.PushBack(waiting{session, s})
	if q.order.Len() > maxRequests {
		oldest := q.order.Remove(q.order.Front()).(waiting)
		delete(q.sessions, oldest.session)
	}
}

// take returns the span of the request that waits for a run of the session, or nil.
func (q *requests) take(session string) trace.Span {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.sessions[session]
	if e == nil {
		return nil
	}
	delete(q.sessions, session)
	return q.order.Remove(e).(waiting).span
}
