package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/server/chat"
)

// Why a reader ended; the label of the metric.
const (
	endDone    = "done"    // its terminal frame was sent
	endGone    = "gone"    // the client left
	endSlow    = "slow"    // a write deadline passed
	endDrained = "drained" // the server shut down
	endCut     = "cut"     // its view cannot continue on this connection
	endError   = "error"   // the log could not be read
)

// writeBytes bounds one write under one deadline, so that a slow reader does not count
// as stalled. A batch of a reader that catches up fits, so it is one chunk of the response.
const writeBytes = 72 << 10

// An EventSource that is disconnected waits as long as its stream has said in its retry
// field. Each stream says another time, so that the readers of a server that dies do not
// all reconnect in the same moment.
const (
	retryMin    = time.Second
	retrySpread = 3 * time.Second
)

// stream copies a source to the client until the source ends. A source that ends with
// io.EOF has sent its terminal frame, and the response is completed. After any other
// end the connection is broken off, so that the client reconnects.
func (s *Server) stream(w *counted, r *http.Request, a *answer) {
	hijacked := false
	defer func() {
		if !hijacked {
			s.leave()
		}
	}()
	var o *outgoing
	if o, hijacked = s.begin(w, r, a); o == nil {
		return
	}
	defer o.stop()
	s.metrics.reader(o.view, 1)
	defer s.metrics.reader(o.view, -1)
	o.end(s.copy(o.ctx, &o.sink, o.src, o.opening))
}

// outgoing is a stream that net/http carries.
type outgoing struct {
	sink
	s       *Server
	r       *http.Request
	src     chat.Source
	view    string
	opening []byte
	ctx     context.Context
	stop    func()
}

// begin writes the response's head. It returns nil if nothing more is to be done here:
// there is no body, or the connection was hijacked.
func (s *Server) begin(w *counted, r *http.Request, a *answer) (o *outgoing, hijacked bool) {
	h := w.Header()
	sse.SetHeaders(h)
	if a.mediaType != "" {
		h.Set("Content-Type", a.mediaType)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	if s.hijack(w, r, a.src, a.view) {
		return nil, true
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil, false
	}
	o = &outgoing{s: s, r: r, src: a.src, view: a.view, opening: s.opening(r)}
	o.ctx, o.stop = s.readerContext(spool.WaitForStore(r.Context()))
	o.to, o.timeout = response{w, http.NewResponseController(w)}, s.o.WriteTimeout
	if o.ends = r.ProtoMajor > 1; o.ends {
		o.timeout = max(o.timeout, s.o.Heartbeat)
	}
	return o, false
}

// end completes the response, or breaks the connection off.
func (o *outgoing) end(reason string) {
	s := o.s
	s.metrics.end(reason)
	s.metrics.bytes.Add(float64(o.n))
	if reason == endDone {
		_ = o.to.SetWriteDeadline(time.Time{}) // the connection is used again
		return
	}
	if reason == endDrained {
		s.spread()
	}
	s.log.Debug("reader disconnected", "path", o.r.URL.Path, "view", o.view, "reason", reason)
	panic(http.ErrAbortHandler)
}

// opening returns the first bytes of a stream. Who reconnects to it does so by GET.
func (s *Server) opening(r *http.Request) []byte {
	if r.Method != http.MethodGet {
		return []byte(": spool\n\n")
	}
	wait := retryMin + time.Duration(s.jitter(int(retrySpread)))
	return sse.AppendRetry([]byte(": spool\n"), int(wait.Milliseconds()))
}

func (s *Server) copy(ctx context.Context, out *sink, src chat.Source, opening []byte) string {
	if err := out.send(opening); err != nil {
		return out.reason(ctx, err)
	}
	// The wait is renewed at half the heartbeat: a busy stream does not make a timer
	// for each write, and a quiet one is never silent for longer than the heartbeat.
	var wait waiter
	wait.renew(ctx, s.o.Heartbeat/2)
	defer func() { wait.cancel() }()
	silent := false
	for {
		buf, err := next(wait.ctx, src)
		if len(buf) > 0 {
			silent = false
			werr := out.write(buf)
			if werr == nil && !more(src) {
				werr = out.flush()
			}
			if werr != nil {
				return out.reason(ctx, werr)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return endDone
		case ctx.Err() != nil:
			return s.left(ctx)
		case wait.ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
			if silent {
				if err := out.send([]byte(": hb\n\n")); err != nil {
					return out.reason(ctx, err)
				}
			}
			if err := out.rest(); err != nil {
				return out.reason(ctx, err)
			}
			wait.cancel()
			wait.renew(ctx, s.o.Heartbeat/2)
			silent = true
		default:
			return s.failed(err)
		}
	}
}

// next is src.Next. A source that can be polled waits here, so that what it needs of the
// stack to read the log is not kept by each reader that has nothing to read.
func next(ctx context.Context, src chat.Source) ([]byte, error) {
	p, ok := src.(chat.Polled)
	if !ok {
		return src.Next(ctx)
	}
	for {
		buf, err := p.Poll(ctx)
		if err == nil && len(buf) == 0 {
			err = p.Await(ctx)
		} else {
			return buf, err
		}
		if err != nil {
			return nil, err
		}
	}
}

// failed is why a reader ends whose source has failed.
func (s *Server) failed(err error) string {
	if errors.Is(err, chat.ErrCut) || spool.Final(err) {
		return endCut // trimmed, deleted or closed while it was read
	}
	s.log.Error("stream failed", "err", err)
	return endError
}

// more reports whether a source has its next bytes at hand.
func more(src chat.Source) bool {
	s, ok := src.(interface{ More() bool })
	return ok && s.More()
}

// waiter is a context that is renewed when it ends.
type waiter struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (w *waiter) renew(parent context.Context, d time.Duration) {
	w.ctx, w.cancel = context.WithTimeout(parent, d)
}

// readerContext ends with the request or with the server's drain.
func (s *Server) readerContext(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(s.drain, func() { cancel(errDraining) })
	return ctx, func() { stop(); cancel(nil) }
}

func (s *Server) left(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), errDraining) {
		return endDrained
	}
	return endGone
}

// spread waits a random part of the drain's spread, so that the readers of one server
// do not all reconnect at the same moment.
func (s *Server) spread() {
	if s.o.DrainSpread <= 0 {
		return
	}
	t := time.NewTimer(time.Duration(s.jitter(int(s.o.DrainSpread))))
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.closed.Done():
	}
}

// transport carries a response's body.
type transport interface {
	io.Writer
	Flush() error
	SetWriteDeadline(time.Time) error
}

// response is the transport of net/http.
type response struct {
	io.Writer
	*http.ResponseController
}

// sink writes with a deadline on each piece.
type sink struct {
	to      transport
	timeout time.Duration
	ends    bool      // a deadline ends the stream even if nothing is being written: HTTP/2
	until   time.Time // the write deadline of the connection, or of the stream
	n       int64
}

// send writes p and flushes it.
func (k *sink) send(p []byte) error {
	if err := k.write(p); err != nil {
		return err
	}
	return k.flush()
}

// write writes p in pieces, each with a deadline of its own.
func (k *sink) write(p []byte) error {
	for len(p) > 0 {
		piece := p[:min(len(p), writeBytes)]
		p = p[len(piece):]
		if err := k.extend(); err != nil {
			return err
		}
		n, err := k.to.Write(piece)
		k.n += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// flush ends a chunk of the response. The end is a packet of its own, which wakes the
// client, so it waits while more is at hand.
func (k *sink) flush() error {
	if err := k.to.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// extend sets the deadline of the next write. That costs as much as a small write, so
// it moves the deadline only once a tenth of it has passed.
func (k *sink) extend() error {
	now := time.Now()
	if k.until.Sub(now) > k.timeout*9/10 {
		return nil
	}
	k.until = now.Add(k.timeout)
	if err := k.to.SetWriteDeadline(k.until); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// rest keeps the deadline away from a stream that has nothing to write. It is called at
// least twice within the timeout.
func (k *sink) rest() error {
	if !k.ends {
		return nil
	}
	return k.extend()
}

func (k *sink) reason(ctx context.Context, err error) string {
	// Over HTTP/2 a stream that its deadline has ended looks like one that the client has
	// closed.
	if errors.Is(err, os.ErrDeadlineExceeded) || k.ends && !time.Now().Before(k.until) {
		return endSlow
	}
	if errors.Is(context.Cause(ctx), errDraining) {
		return endDrained
	}
	return endGone
}
