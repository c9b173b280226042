package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server/chat"
)

// hijacked is a reader whose connection the server has taken over from net/http. While it
// has nothing to read it has no goroutine but one with a small stack, which notices that
// the client leaves. Whoever has something for it rouses it, and a worker serves it.
type hijacked struct {
	s          *Server
	src        chat.Polled
	conn       net.Conn
	view, path string
	chunks     chunks
	out        sink         // of the goroutine that serves it
	written    atomic.Int64 // when something was written last
	bytes      atomic.Int64 // out.n, as of then

	mu     sync.Mutex
	due    due
	busy   bool               // a goroutine serves it, or is about to
	cancel context.CancelFunc // of the context in which it is served
	ended  bool
}

// due is what a reader has to do.
type due uint8

const (
	dueRead due = 1 << iota // its log has changed
	dueBeat                 // it was silent
)

// maxIgnored is how many bytes a client may send while it gets a stream.
const maxIgnored = 64 << 10

// hijack takes the connection of a request over and streams a source on it, if the option
// is set and the request and the source allow it. Then the handler must do nothing more.
func (s *Server) hijack(c *counted, r *http.Request, from chat.Source, view string) bool {
	src, polled := from.(chat.Polled)
	if !s.o.HijackStreams || !polled || r.Method != http.MethodGet || r.TLS != nil || !r.ProtoAtLeast(1, 1) || r.ProtoMajor != 1 || r.ContentLength != 0 {
		return false
	}
	// A ResponseWriter that only wraps another one may change what is written to it.
	h, ok := c.ResponseWriter.(http.Hijacker)
	if !ok {
		return false
	}
	conn, _, err := h.Hijack()
	if err != nil {
		return false
	}
	c.status = http.StatusOK
	d := &hijacked{s: s, src: src, conn: conn, view: view, path: r.URL.Path, busy: true, due: dueRead}
	d.chunks.Conn = conn
	d.out = sink{to: &d.chunks, timeout: s.o.WriteTimeout}
	s.metrics.reader(view, 1)
	s.hijacks.add(d)
	if s.drain.Err() != nil {
		d.end(endDrained, nil)
		return true
	}
	if err := d.begin(c.Header(), s.opening(r)); err != nil {
		d.end(d.reason(err), nil)
		return true
	}
	s.logs.Go(d.watch)
	d.serve()
	return true
}

// begin writes the response's head and the first bytes of the stream.
func (d *hijacked) begin(h http.Header, opening []byte) error {
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Set("Transfer-Encoding", "chunked")
	h.Set("Connection", "close")
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(&head)
	head.WriteString("\r\n")
	if err := d.out.extend(); err != nil {
		return err
	}
	if _, err := d.conn.Write(head.Bytes()); err != nil {
		return err
	}
	return d.write(opening)
}

// write writes a part of the stream. Only the goroutine that serves the reader calls it.
func (d *hijacked) write(p []byte) error {
	err := d.out.write(p)
	d.bytes.Store(d.out.n)
	d.written.Store(time.Now().UnixNano())
	return err
}

func (d *hijacked) reason(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return endSlow
	}
	return endGone
}

// watch ends the reader when its client leaves. What the client sends is ignored.
func (d *hijacked) watch() {
	buf := make([]byte, 16)
	for ignored := 0; ignored < maxIgnored; {
		n, err := d.conn.Read(buf)
		if ignored += n; err != nil {
			break
		}
	}
	d.end(endGone, nil)
}

// rouse has the reader do what is due, by a worker if it is not being served.
func (d *hijacked) rouse(what due) {
	d.mu.Lock()
	d.due |= what
	served := d.busy || d.ended
	d.busy = true
	d.mu.Unlock()
	if !served {
		d.s.hijacks.dispatch(d)
	}
}

// serve does what is due until nothing is.
func (d *hijacked) serve() {
	ctx, cancel := context.WithCancel(spool.WaitForStore(context.Background()))
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			d.s.log.Error("stream panicked", "path", d.path, "panic", v, "stack", string(debug.Stack()))
			d.end(endError, nil)
		}
	}()
	for {
		d.mu.Lock()
		what := d.due
		if d.due, d.cancel = 0, cancel; what == 0 || d.ended {
			d.busy, d.cancel = false, nil
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		if what&dueRead != 0 {
			d.read(ctx)
		} else if err := d.write([]byte(": hb\n\n")); err != nil {
			d.end(d.reason(err), nil)
		}
	}
}

// read writes everything that there is to read, and then has the reader wait for more.
func (d *hijacked) read(ctx context.Context) {
	for {
		buf, err := d.src.Poll(ctx)
		if len(buf) > 0 {
			if werr := d.write(buf); werr != nil {
				d.end(d.reason(werr), nil)
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			d.end(endDone, []byte("0\r\n\r\n"))
			return
		case ctx.Err() != nil:
			return // it was ended
		case err != nil:
			d.end(d.s.failed(err), nil)
			return
		case len(buf) == 0 && d.s.hijacks.park(d):
			return
		}
	}
}

// end ends the reader, after the last bytes of its response.
func (d *hijacked) end(reason string, last []byte) {
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return
	}
	d.ended = true // from here on the client may close the connection
	cancel := d.cancel
	d.mu.Unlock()
	if len(last) > 0 && d.out.extend() == nil {
		_, _ = d.conn.Write(last)
	}
	_ = d.conn.Close()
	if cancel != nil {
		cancel()
	}
	d.s.hijacks.remove(d)
	d.s.metrics.reader(d.view, -1)
	d.s.metrics.end(reason)
	d.s.metrics.bytes.Add(float64(d.bytes.Load()))
	if reason != endDone {
		d.s.log.Debug("reader disconnected", "path", d.path, "view", d.view, "reason", reason)
	}
	d.s.leave()
}

// chunks is the chunked encoding of a body.
type chunks struct {
	net.Conn
	size  [18]byte
	parts [3][]byte
}

// Write writes one chunk.
func (c *chunks) Write(p []byte) (int, error) {
	head := append(strconv.AppendUint(c.size[:0], uint64(len(p)), 16), '\r', '\n')
	c.parts = [3][]byte{head, p, []byte("\r\n")}
	buffers := net.Buffers(c.parts[:])
	n, err := buffers.WriteTo(c.Conn)
	c.parts = [3][]byte{} // frames that nobody else needs
	return min(max(int(n)-len(head), 0), len(p)), err
}

// Flush does nothing: chunks are written at once.
func (c *chunks) Flush() error { return nil }

// hijacks are a server's hijacked readers.
type hijacks struct {
	s       *Server
	work    chan *hijacked // for workers that are done with what they did
	workers atomic.Int32

	mu      sync.Mutex
	readers map[*hijacked]struct{}
	parked  map[string]*parked // by the session whose log they wait for
	open    context.Context    // as long as there are readers
	stop    context.CancelFunc // ends open; nil without readers
}

// parked are readers that wait for the same log.
type parked struct {
	root    string
	readers map[*hijacked]struct{}
	cancel  context.CancelFunc // of the goroutine that waits
}

func (h *hijacks) init(s *Server) {
	h.s, h.work = s, make(chan *hijacked)
	h.readers, h.parked = map[*hijacked]struct{}{}, map[string]*parked{}
}

func (h *hijacks) add(d *hijacked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers[d] = struct{}{}
	if h.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.open, h.stop = ctx, cancel
		h.s.logs.Go(func() { h.beat(ctx) })
	}
}

func (h *hijacks) remove(d *hijacked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, d)
	if len(h.readers) == 0 && h.stop != nil {
		h.stop()
		h.stop = nil
	}
	if p := h.parked[d.src.Root()]; p != nil {
		h.unparkLocked(p, d)
	}
}

// park has the log's next change rouse the reader. It returns false if the log has changed
// already since the reader has found nothing.
func (h *hijacks) park(d *hijacked) bool {
	root := d.src.Root()
	h.mu.Lock()
	if _, open := h.readers[d]; !open {
		h.mu.Unlock()
		return true // it has ended
	}
	p := h.parked[root]
	if p == nil {
		ctx, cancel := context.WithCancel(context.Background())
		p = &parked{root: root, readers: map[*hijacked]struct{}{d: {}}, cancel: cancel}
		h.parked[root] = p
		h.mu.Unlock()
		h.s.logs.Go(func() { h.await(ctx, p, d.src) })
		return true
	}
	p.readers[d] = struct{}{}
	h.mu.Unlock()
	// The others may wait for the change of a head that is newer than the one at which this
	// reader has found nothing.
	if d.src.Await(overdue) != nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waits := p.readers[d]; !waits {
		return true // it is about to be roused, and must not be served twice
	}
	h.unparkLocked(p, d)
	return false
}

// overdue is a context that has ended.
var overdue = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// unparkLocked takes a reader out of those that wait.
func (h *hijacks) unparkLocked(p *parked, d *hijacked) {
	delete(p.readers, d)
	if len(p.readers) == 0 && h.parked[p.root] == p {
		delete(h.parked, p.root)
		p.cancel()
	}
}

// await rouses parked readers when the log has changed. The source is that of one of them,
// which nobody else uses meanwhile.
func (h *hijacks) await(ctx context.Context, p *parked, src chat.Polled) {
	defer p.cancel()
	err := src.Await(ctx)
	h.mu.Lock()
	readers := p.readers
	p.readers = nil
	if h.parked[p.root] == p {
		delete(h.parked, p.root)
	}
	h.mu.Unlock()
	for d := range readers {
		if err != nil {
			d.end(h.s.failed(err), nil)
		} else {
			d.rouse(dueRead)
		}
	}
}

// dispatch has a worker serve a reader. There are a few per processor. Only if all of them
// take long, because clients do not read, are there more.
func (h *hijacks) dispatch(d *hijacked) {
	if int(h.workers.Add(1)) <= 2*runtime.GOMAXPROCS(0) {
		h.s.logs.Go(func() { h.serve(d) })
		return
	}
	h.workers.Add(-1)
	t := time.NewTimer(time.Millisecond)
	defer t.Stop()
	select {
	case h.work <- d:
	case <-t.C:
		h.workers.Add(1)
		h.s.logs.Go(func() { h.serve(d) })
	}
}

// serve is a worker: it serves readers until there is none.
func (h *hijacks) serve(d *hijacked) {
	defer h.workers.Add(-1)
	for {
		d.serve()
		select {
		case d = <-h.work:
		default:
			return
		}
	}
}

// beat has readers that were silent send a heartbeat. It looks often, so that they do not
// all send one at the same time.
func (h *hijacks) beat(ctx context.Context) {
	t := time.NewTicker(max(h.s.o.Heartbeat/8, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			var silent []*hijacked
			before := now.Add(-h.s.o.Heartbeat * 3 / 4).UnixNano()
			h.mu.Lock()
			for d := range h.readers {
				if d.written.Load() <= before {
					silent = append(silent, d)
				}
			}
			h.mu.Unlock()
			for _, d := range silent {
				d.rouse(dueBeat)
			}
		}
	}
}

// drainHijacked disconnects the hijacked readers within the drain's spread.
func (s *Server) drainHijacked() {
	s.hijacks.mu.Lock()
	defer s.hijacks.mu.Unlock()
	if len(s.hijacks.readers) == 0 {
		return
	}
	type leaving struct {
		d  *hijacked
		at time.Duration
	}
	list := make([]leaving, 0, len(s.hijacks.readers))
	for d := range s.hijacks.readers {
		list = append(list, leaving{d, time.Duration(s.jitter(int(s.o.DrainSpread)))})
	}
	open := s.hijacks.open
	slices.SortFunc(list, func(a, b leaving) int { return int(a.at - b.at) })
	s.logs.Go(func() {
		begun := time.Now()
		for _, l := range list {
			if wait := l.at - time.Since(begun); wait > 0 {
				t := time.NewTimer(wait)
				select {
				case <-t.C:
				case <-open.Done():
				case <-s.closed.Done():
				}
				t.Stop()
			}
			l.d.end(endDrained, nil)
		}
	})
}
