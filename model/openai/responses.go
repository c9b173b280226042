package openai

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/wait"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// Responses is a [model.Model] over OpenAI's Responses API. It is safe for
// concurrent use.
//
// With [Options.Background] an answer survives its connection and our process:
// Stream goes on where a lost connection broke off, without asking again, and
// yields positions, with which any process may [Responses.Resume] it. Then only
// [Responses.CancelAnswer] ends the provider's work, never a context.
type Responses struct{ m *Model }

var _ model.Resumer = (*Responses)(nil)

// NewResponses returns a model. Options may be nil.
func NewResponses(o *Options) *Responses {
	r := &Responses{New(o)}
	if r.m.o.Sleep == nil {
		r.m.o.Sleep = wait.Sleep
	}
	return r
}

// ID is [Model.ID].
func (r *Responses) ID(ctx context.Context) (string, error) { return r.m.ID(ctx) }

// Stream asks for an answer, once.
func (r *Responses) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		body, err := provider.Prepare(ctx, r.m.ID, func(id string) ([]byte, error) { return r.body(req, id) })
		if err != nil {
			yield(nil, err)
			return
		}
		a := r.attach(yield)
		err = a.read(ctx, provider.Request{Method: http.MethodPost, Path: "/responses", Body: body})
		if !a.in.out.Stopped && a.in.marks && a.in.id != "" {
			if err = a.follow(ctx, err); isGone(err) {
				err = &model.Error{Code: model.CodeTruncated, Message: "the connection was lost, and the provider does not have the answer any more", Retryable: true, Err: err}
			}
		}
		a.fail(err)
	}
}

// Resume yields what comes after a cursor. It asks for the answer's events from
// their start, since only they say what has been said, and mutes what was seen.
func (r *Responses) Resume(ctx context.Context, cursor string) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		id, seq, err := parseCursor(cursor)
		if err != nil {
			yield(nil, err)
			return
		}
		a := r.attach(yield)
		a.in.id, a.in.begun, a.in.marks = id, true, true
		a.in.seq = 0 // the first one only says that the answer exists
		a.muted = seq
		err = a.follow(ctx, nil)
		if isGone(err) {
			err = gone("the provider does not have the answer any more", err)
		}
		a.fail(err)
	}
}

// isGone reports whether the provider said that there is no such answer.
func isGone(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && (e.StatusCode == http.StatusNotFound || e.StatusCode == http.StatusGone || e.StatusCode == http.StatusBadRequest)
}

func gone(message string, err error) *model.Error {
	return &model.Error{Code: model.CodeGone, Message: message, Err: err}
}

// CancelAnswer ends the work on a background answer.
func (r *Responses) CancelAnswer(ctx context.Context, cursor string) error {
	id, _, err := parseCursor(cursor)
	if err != nil {
		return err
	}
	_, err = r.m.client.Bytes(ctx, provider.Request{Method: http.MethodPost, Path: "/responses/" + url.PathEscape(id) + "/cancel", Body: []byte("{}")})
	if e, ok := errors.AsType[*model.Error](err); ok {
		switch e.StatusCode {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict: // there is nothing to cancel
			return nil
		}
	}
	return err
}

func parseCursor(cursor string) (id string, seq int64, err error) {
	i := strings.LastIndexByte(cursor, ':')
	if i > 0 {
		if seq, err = strconv.ParseInt(cursor[i+1:], 10, 64); err == nil {
			return cursor[:i], seq, nil
		}
	}
	return "", 0, gone("the cursor is none of this model's", nil)
}

// How a lost background answer is looked for.
const (
	maxAttempts  = 6 // in a row that bring nothing
	firstPause   = 500 * time.Millisecond
	longestPause = 15 * time.Second
	pollPause    = 2 * time.Second
)

// noneSeen is a sequence number before all events, also those without a number.
const noneSeen = -2

// attached is an answer across its connections.
type attached struct {
	r     *Responses
	in    *response
	muted int64 // events up to here were seen before; noneSeen: none
	cut   error // how the last connection ended
}

func (r *Responses) attach(yield func(model.Part, error) bool) *attached {
	a := &attached{r: r, muted: noneSeen}
	a.in = newResponse(func(p model.Part, err error) bool {
		if e, ok := errors.AsType[*model.Error](err); ok {
			err = r.m.client.Clean(e)
		} else if err == nil && a.in.seq <= a.muted {
			return true
		}
		return yield(p, err)
	})
	a.in.marks, a.in.from = r.m.o.Background, r.m.host()
	a.in.out.Hold = func(err error) bool {
		a.cut = err
		return true
	}
	return a
}

// read takes one connection's bytes. It returns nil once the answer has ended.
func (a *attached) read(ctx context.Context, req provider.Request) error {
	return a.r.m.client.Read(ctx, req, func(src io.Reader, onData func()) error {
		a.cut = nil
		a.in.read(src, &IngestOptions{MaxLine: a.r.m.o.MaxLine, OnData: onData})
		if a.in.out.Stopped {
			return nil
		}
		if failure, ok := errors.AsType[*model.Error](a.cut); ok {
			return failure
		}
		err := a.cut
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return &model.Error{Code: model.CodeTruncated, Message: "the provider's stream ended before the answer did", Retryable: true, Err: err}
	})
}

// fail ends the stream with an error, unless it has ended.
func (a *attached) fail(err error) {
	switch e, ok := errors.AsType[*model.Error](err); {
	case err == nil || a.in.out.Stopped:
	case ok:
		a.in.out.Fail(e)
	default:
		a.in.out.Yield(nil, err) // the caller's own cancellation
		a.in.out.Stopped = true
	}
}

// follow reattaches to the answer until it ends or is lost. The provider keeps its
// events for some minutes only; after that it has nothing but the whole answer.
func (a *attached) follow(ctx context.Context, err error) error {
	path := "/responses/" + url.PathEscape(a.in.id)
	pause := firstPause
	for attempts := 0; attempts < maxAttempts; attempts++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if attempts > 0 {
			if busy, ok := errors.AsType[*model.Error](err); ok {
				pause = min(max(pause, busy.RetryAfter), longestPause)
			}
			if err := a.r.m.o.Sleep(ctx, pause); err != nil {
				return err
			}
			pause = min(2*pause, longestPause)
		}
		query := url.Values{"stream": {"true"}}
		if a.in.seq >= 0 {
			query.Set("starting_after", strconv.FormatInt(a.in.seq, 10))
		}
		before := a.in.seq
		err = a.read(ctx, provider.Request{Method: http.MethodGet, Path: path, Query: query})
		if a.in.out.Stopped {
			return nil
		}
		e, ok := errors.AsType[*model.Error](err)
		switch {
		case !ok, e.Code == model.CodeAuthentication, e.Code == model.CodeProtocol:
			return err
		case e.StatusCode >= 400 && e.StatusCode < 500 && !e.Retryable:
			return a.poll(ctx, path)
		case a.in.seq > before:
			attempts, pause = -1, firstPause
		}
	}
	return err
}

// poll asks for the whole answer until it is complete.
func (a *attached) poll(ctx context.Context, path string) error {
	for attempts := 0; ; {
		data, err := a.r.m.client.Bytes(ctx, provider.Request{Method: http.MethodGet, Path: path})
		var body responseBody
		if err == nil && (provider.Decode(data, &body) != nil || body.Status == "") {
			return &model.Error{Code: model.CodeProtocol, Message: "the provider's answer is not a response: " + provider.Excerpt(string(data))}
		}
		if e, ok := errors.AsType[*model.Error](err); err != nil && (!ok || !e.Retryable || attempts >= maxAttempts) {
			return err
		}
		if err != nil {
			attempts++
		} else if attempts = 0; body.Status != "queued" && body.Status != "in_progress" {
			a.whole(&body)
			return nil
		}
		if err := a.r.m.o.Sleep(ctx, pollPause); err != nil {
			return err
		}
	}
}

// whole ends the answer with all of it. A reader that lacks what was said before gets
// it from the beginning.
func (a *attached) whole(body *responseBody) {
	if a.in.seq < a.muted {
		a.in.reset()
		a.muted = noneSeen
		a.in.out.Emit(model.Restart{})
	}
	a.muted = noneSeen // what comes is the rest
	a.in.conclude(body)
}
