package frontend

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// Deps are the dependencies of snapshots and histories.
type Deps struct {
	chat.Deps
	AISDK aisdk.Options // how messages are shown: the wire's options
}

// Request is a POST with a body or a GET of a stream.
type Request struct {
	Method   string // POST or GET
	Body     []byte // POST: {message, sessionId?, messages?, state?}, or a stock client's
	StreamID string // GET: the session
	// ResumeAt is where the client of a GET stands, from [ExtractResumePosition] or
	// [ResumeAfter]. If it is zero, Header is read.
	ResumeAt wire.Position
	Header   http.Header
}

// ExtractResumePosition reads from a request's headers where its client stands: the
// first of Last-Event-ID, X-Resume-From-Sequence and X-Resume-At that is well-formed.
// It is zero if there is none. The position says whether the client has seen the stream
// up to its cursor, or has loaded the snapshot at it: the streams of the two differ.
func ExtractResumePosition(h http.Header) wire.Position { return wire.HeaderPosition(h) }

// ResumeAfter is the position of a client that has seen the stream up to an event, from
// the value of its Last-Event-ID header. It is zero if the value is malformed.
func ResumeAfter(lastEventID string) wire.Position {
	c, err := spool.ParseCursor(lastEventID)
	if err != nil {
		return wire.Position{}
	}
	return wire.Position{Kind: wire.Seen, Cursor: c}
}

// Response is a response independent of any framework.
type Response struct {
	Status  int
	Headers map[string]string
	// Body is the stream; empty for 204. If a Read fails with any error but io.EOF, the
	// connection must be broken off, so that the client reconnects. Close it when done.
	Body io.ReadCloser
}

// HandleRequest answers a request. A GET of an unknown or settled stream gives 204.
// Errors are [HandlerError]s.
func (h *Handler) HandleRequest(ctx context.Context, r Request) (*Response, error) {
	p, err := h.params(r)
	if err != nil {
		return nil, frontendError(err, StreamCreationError)
	}
	res, err := chat.Handle(ctx, &h.deps.Deps, p)
	if err != nil {
		h.logger.Debug("request refused", "session", r.StreamID, "err", err)
		return nil, frontendError(err, StreamCreationError)
	}
	out := &Response{Status: http.StatusNoContent, Headers: map[string]string{HeaderSession: res.Session}, Body: http.NoBody}
	if res.Incarnation > 0 {
		out.Headers[HeaderIncarnation] = strconv.FormatUint(res.Incarnation, 10)
	}
	if res.Stream != nil {
		out.Status = http.StatusOK
		for k, v := range SSEHeaders(nil) {
			out.Headers[k] = v
		}
		out.Body = newBody(ctx, res.Stream)
	}
	return out, nil
}

// params reads a request.
func (h *Handler) params(r Request) (p chat.Params, err error) {
	p.Session = r.StreamID
	of := wire.Request{Query: url.Values{}, Header: r.Header}
	if p.Profile, err = h.wire.Profile(of); err != nil {
		return p, err
	}
	switch r.Method {
	case http.MethodPost:
		if !h.executes {
			return p, ConfigurationError.With("no runner of this process executes the runs: set Options.Runner, or Options.RunsElsewhere if another process or a loop of your own does", nil)
		}
		p.Body, err = aisdk.ParseBody(r.Body)
		return p, err
	case http.MethodGet:
		if r.StreamID == "" {
			return p, ValidationError.With("a GET needs a stream id", nil)
		}
		if p.Position = r.ResumeAt; p.Position.Kind == wire.NoPosition {
			p.Position = ExtractResumePosition(r.Header)
		}
		return p, nil
	}
	return p, ValidationError.With("the method must be POST or GET", nil)
}

// GetSnapshot returns the session's snapshot, or nil if there is no such session.
// Adjacent assistant messages are merged into one, except the one that a stream may
// still show. include overrides the handler's setting whether a live turn's message is
// included. It fails with [ConfigurationError] if the handler has no state.
func (h *Handler) GetSnapshot(ctx context.Context, session string, include *bool) (*Snapshot, error) {
	if err := h.history(); err != nil {
		return nil, err
	}
	s, err := BuildSnapshot(ctx, &h.deps, SnapshotParams{Session: session, IncludePartialContent: include})
	if errors.Is(err, spool.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, frontendError(err, ExecutionError)
	}
	s.merge()
	return s, nil
}

// merge joins adjacent assistant messages. The message of a turn that is live or paused
// stays by itself: the stream shows it under its own id.
func (s *Snapshot) merge() {
	n := len(s.Messages)
	if n == 0 {
		return
	}
	last := s.Messages[n-1]
	open := (s.Status == chunk.StatusActive || s.Status == chunk.StatusPaused) && strings.TrimSuffix(last.ID, PartialSuffix) == s.ExistingMessageID
	if open {
		n--
	}
	merged := aisdk.MergeAssistantMessages(s.Messages[:n], nil)
	if open {
		merged = append(merged, last)
	} else if k := len(merged); k > 0 && last.ID == s.ExistingMessageID && last.Role == "assistant" {
		s.ExistingMessageID = merged[k-1].ID
	}
	s.Messages = merged
}

// GetMessages returns a page of the session's history. It fails with
// [ConfigurationError] if the handler has no state.
func (h *Handler) GetMessages(ctx context.Context, session string, o MessagesOptions) (*MessagesPage, error) {
	if err := h.history(); err != nil {
		return nil, err
	}
	page, err := Messages(ctx, &h.deps, session, o)
	return page, frontendError(err, ExecutionError)
}

// GetAllMessages returns the session's whole history. It fails with
// [ConfigurationError] if the handler has no state.
func (h *Handler) GetAllMessages(ctx context.Context, session string) ([]aisdk.UIMessage, error) {
	if err := h.history(); err != nil {
		return nil, err
	}
	all, err := LoadAllUIMessages(ctx, &h.deps, session)
	return all, frontendError(err, ExecutionError)
}

// history fails if the handler has no state.
func (h *Handler) history() error {
	if !h.hasState {
		return ConfigurationError.With("this handler has no state to load a history from: set Options.State, or Options.Logs", nil)
	}
	return nil
}

// SSEHeaders returns the headers of a chat stream, with custom ones added or replaced.
func SSEHeaders(custom map[string]string) map[string]string {
	h := map[string]string{
		"Content-Type":                  "text/event-stream",
		"Cache-Control":                 "no-cache, no-transform",
		"X-Accel-Buffering":             "no",
		"X-Vercel-AI-UI-Message-Stream": "v1",
	}
	for k, v := range custom {
		h[k] = v
	}
	return h
}

// newBody makes a source readable. Reads end with io.EOF after the terminal frame, and
// with another error if the connection must be broken off.
func newBody(ctx context.Context, src wire.Stream) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	return &bodyReader{ctx: ctx, cancel: cancel, src: src}
}

type bodyReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	src    wire.Stream
	rest   []byte
	err    error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.rest, b.err = b.src.Next(b.ctx)
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *bodyReader) Close() error {
	b.cancel()
	return nil
}

// Serve is the adapter to net/http. It writes a response to w and flushes after each
// write. It panics with http.ErrAbortHandler if the stream was cut.
func (r *Response) Serve(w http.ResponseWriter) {
	defer r.Body.Close()
	for k, v := range r.Headers {
		w.Header().Set(k, v)
	}
	w.WriteHeader(r.Status)
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return
			}
			_ = rc.Flush()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
