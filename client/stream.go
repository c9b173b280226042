package client

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/native"
)

// AttachOptions say what a stream shows and where it begins. The zero value is the
// session's whole log on the native wire, until its turn ends.
type AttachOptions struct {
	// Wire is the protocol, such as aisdk.Wire(aisdk.Options{}). The zero value is the
	// native wire.
	Wire wire.Wire
	// Query has the wire's own parameters, such as ui, agents or framing.
	Query url.Values
	// After is the id of the last event that was seen. The stream has what follows it.
	After string
	// Snapshot is the snapshot that the caller has built from. The stream has what the
	// snapshot lacks: of a turn that still runs, all of it.
	Snapshot *Snapshot
	// Follow keeps the stream open when the turn ends. It fails with [ErrNoFollow] on
	// wires whose streams show one turn.
	Follow bool
	// Wait waits for a session that does not exist yet, on the native wire.
	Wait bool
	// Resync continues when the position can no longer be served (it was trimmed or
	// retracted, or the log was replaced): the stream gives an event with a snapshot, and
	// then what follows that. Without it, Next fails with spool.ErrTrimmed,
	// spool.ErrCursorRetracted or spool.ErrCursorAhead.
	Resync bool
}

// Event is one event of a stream.
type Event struct {
	ID   string // the position after it; "" if it has none of its own
	Name string // its SSE name; "" for a plain message
	Data []byte
	// Snapshot is set on an event that has nothing else: forget what the stream has
	// said, and build from this.
	Snapshot *Snapshot
}

// Stream is a stream of events that is connected again whenever its connection breaks,
// after the last event that it gave. Use it from one goroutine at a time.
//
// It gives an event once, and never half of what one record became: events without an
// id wait for the one that carries their record's.
type Stream struct {
	s       *Session
	o       AttachOptions
	read    func(event string, data []byte) wire.Event
	ctx     context.Context
	cancel  context.CancelFunc
	base    string      // the id after which the stream begins, for the first connection
	from    string      // or the snapshot's position
	last    string      // id of the last event that was given
	con     *connection // nil while there is none
	ready   []Event     // read, and to be given
	held    []Event     // read, and waiting for their id
	fails   int         // attempts in a row that came to nothing
	resyncs int         // in a row, without an event
	end     error       // why there is no more
	older   url.Values  // instead of the options' Query, where a server of before refuses that
}

// Attach returns a stream of the session. It connects when Next is called; the stream
// ends with ctx.
func (s *Session) Attach(ctx context.Context, o AttachOptions) *Stream {
	if o.Wire.Attach == nil {
		o.Wire = native.Wire()
	}
	st := &Stream{s: s, o: o, read: o.Wire.Read(), base: o.After}
	st.ctx, st.cancel = context.WithCancel(ctx)
	if o.Snapshot != nil && o.After == "" {
		st.begin(o.Snapshot)
	}
	if o.Follow && o.Wire.Follow == "" {
		st.end = ErrNoFollow.With(s.id, nil)
	}
	return st
}

// Position is the id of the last event that Next has given, for AttachOptions.After.
func (st *Stream) Position() string {
	if st.last == "" {
		return st.base
	}
	return st.last
}

// Close ends the stream.
func (st *Stream) Close() error {
	st.cancel()
	st.drop()
	if st.end == nil {
		st.end = io.EOF
	}
	return nil
}

// Next returns the next event. It fails with io.EOF at the stream's end: after the
// wire's terminal event, which it has given, or because there is nothing to show. After
// a failed run's last event the error is the run's, a [*chunk.RunError] on the native
// wire. Other errors are an [*Error], [ErrUnreachable] after the retries, and ctx's.
func (st *Stream) Next() (Event, error) {
	for {
		if len(st.ready) > 0 {
			e := st.ready[0]
			st.ready = st.ready[1:]
			if e.ID != "" {
				st.last = e.ID
			}
			return e, nil
		}
		if st.end != nil {
			st.drop()
			return Event{}, st.end
		}
		if err := st.advance(); err != nil {
			st.end = err
		}
	}
}

// advance reads until there are events to give, and connects before that if it must. Its
// error is the stream's end.
func (st *Stream) advance() error {
	var err error
	if st.con == nil {
		err = st.connect()
	}
	if err == nil {
		err = st.receive()
	}
	switch {
	case err == nil:
		return nil
	case st.ctx.Err() != nil:
		return context.Cause(st.ctx)
	case errors.Is(err, errNothing):
		return io.EOF
	case lost(err):
		return st.resync(err)
	}
	if st.con != nil && st.con.lived() >= st.s.c.o.Retry.Cap {
		st.fails = 0 // a quiet stream, whose connections somebody ends now and then
	}
	st.drop()
	if refused, ok := errors.AsType[*Error](err); ok && refused.Status < http.StatusInternalServerError && !temporary(err) {
		if refused.Status == http.StatusBadRequest && st.older != nil {
			st.o.Query, st.older = st.older, nil
			return nil
		}
		return err
	}
	if errors.As(err, new(*prepareError)) {
		return err
	}
	st.fails++
	return st.s.c.o.Retry.pause(st.ctx, st.s.id, st.fails, err)
}

// lost reports whether a position can no longer be served.
func lost(err error) bool {
	return errors.Is(err, spool.ErrTrimmed) || errors.Is(err, spool.ErrCursorAhead) || errors.Is(err, spool.ErrCursorRetracted)
}

// resync begins again from a snapshot, because the position cannot be served.
func (st *Stream) resync(cause error) error {
	st.drop()
	if !st.o.Resync {
		return cause
	}
	if st.resyncs++; st.resyncs > 1 { // the snapshot's own position was refused
		if err := st.s.c.o.Retry.pause(st.ctx, st.s.id, st.resyncs-1, cause); err != nil {
			return err
		}
	}
	snap, err := st.s.Snapshot(st.ctx, SnapshotOptions{Agents: st.o.Query.Get("agents")})
	if err != nil {
		return err
	}
	st.begin(snap)
	st.ready = append(st.ready, Event{Snapshot: snap})
	return nil
}

// begin sets the position to a snapshot's. A log's reader gets all records of a turn that
// still runs, since the snapshot lacks its message.
func (st *Stream) begin(snap *Snapshot) {
	st.base, st.from, st.last = "", "", ""
	at := snap.Position()
	if st.o.Wire.Name != native.Wire().Name {
		st.from = at.String()
		return
	}
	if snap.Status == chunk.StatusActive && !snap.partial() {
		at.Seq = snap.StartSequence
	}
	st.base = at.String()
}

// partial reports whether the snapshot has the message that is still being written.
// Servers without content replay put it there.
func (s *Snapshot) partial() bool {
	return slices.ContainsFunc(s.Messages, func(m aisdk.UIMessage) bool { return strings.HasSuffix(m.ID, "-partial") })
}

// connection is one response's body.
type connection struct {
	body   io.ReadCloser
	events *sse.Reader
	idle   *alarm
	cancel context.CancelCauseFunc
	ctx    context.Context
	since  time.Time
}

func (c *connection) lived() time.Duration { return time.Since(c.since) }

// Read notes that the connection is alive.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if n > 0 {
		c.idle.reset()
	}
	return n, err
}

func (st *Stream) drop() {
	st.held = nil
	if st.con == nil {
		return
	}
	st.con.idle.stop()
	st.con.cancel(context.Canceled)
	_ = st.con.body.Close()
	st.con = nil
}

// errNothing is the answer that there is nothing to show, or nothing more.
var errNothing = errors.New("nothing to show")

// connect opens the stream after its position. It fails with [errNothing].
func (st *Stream) connect() error {
	q := maps.Clone(st.o.Query)
	if q == nil {
		q = url.Values{}
	}
	if st.o.Follow {
		follow, err := url.ParseQuery(st.o.Wire.Follow)
		if err != nil {
			return err
		}
		maps.Copy(q, follow)
	}
	if st.o.Wait {
		q.Set("wait", "1")
	}
	h := http.Header{"Accept": {"text/event-stream, application/json"}}
	switch {
	case st.last != "":
		h.Set(wire.HeaderLastEventID, st.last)
	case st.base != "":
		q.Set("after", st.base) // unlike a header, a malformed parameter is refused
	case st.from != "":
		h.Set(wire.HeaderResumeFrom, st.from)
	}
	ctx, cancel := context.WithCancelCause(st.ctx)
	head := newAlarm(st.s.c.o.Timeout, errSlow, cancel)
	res, err := st.s.c.send(ctx, request{method: http.MethodGet, path: pattern(st.o.Wire.Attach[0], st.s.id), query: q, header: h})
	head.stop()
	if err != nil {
		cancel(err)
		return err
	}
	if res.StatusCode == http.StatusNoContent {
		_ = res.Body.Close()
		cancel(errNothing)
		return errNothing
	}
	st.con = &connection{body: res.Body, cancel: cancel, ctx: ctx, since: time.Now()}
	st.con.idle = newAlarm(st.s.c.o.Idle, errIdle, cancel)
	st.con.events = sse.NewReader(st.con, nil)
	return nil
}

// receive reads until events can be given.
func (st *Stream) receive() error {
	for len(st.ready) == 0 {
		got, err := st.con.events.Next()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF // without a terminal event
		}
		if err != nil {
			return caused(st.con.ctx, err)
		}
		e := Event{Name: string(got.Name), Data: append([]byte(nil), got.Data...)}
		at := st.last
		if at == "" {
			at = st.base
		}
		if id := string(got.ID); id != "" && id != at {
			e.ID = id
		}
		said := st.read(e.Name, e.Data)
		if said.Last && lost(said.Err) {
			return said.Err
		}
		st.held = append(st.held, e)
		if e.ID == "" && !said.Last {
			continue
		}
		st.ready, st.held = append(st.ready, st.held...), nil
		st.fails, st.resyncs = 0, 0
		if said.Last {
			st.end = io.EOF
			if said.Err != nil {
				st.end = said.Err
			}
		}
	}
	return nil
}
