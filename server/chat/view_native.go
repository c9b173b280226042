package chat

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire/native"
)

// NativeOptions are a native reader's wishes.
type NativeOptions struct {
	Cursor  spool.Cursor
	Follow  bool // follow the session for ever
	Framing native.Framing
	// Self leaves out what the agents below the session's do. Without it a
	// session's stream has the records of its whole subtree.
	Self bool
}

// ErrStreamFailed answers a native reader that has seen all of a failed log.
var ErrStreamFailed = &chunk.Error{Code: "stream_failed", Message: "the stream has failed"}

// Native streams a log's records after a cursor. A cursor that cannot be served
// is answered on the stream, with one resync event. Errors: [spool.ErrNotFound],
// and [ErrStreamFailed] for a reader that has all of a failed log.
func Native(ctx context.Context, logs *spool.Logs, session string, o NativeOptions) (*Response, error) {
	g, err := (&Deps{Logs: logs}).subject(session)
	if err != nil {
		return nil, err
	}
	h, err := g.Head(ctx)
	if err != nil {
		return nil, err
	}
	res := &Response{Session: session, Incarnation: max(h.Incarnation, 1), View: ViewNative}
	if reason := resyncReason(o.Cursor, h); reason != "" {
		res.Stream = static(native.Resync(reason))
		return res, nil
	}
	if !o.Follow && h.Status == chunk.StatusFailed && (g.child() || h.Due == 0 && o.Cursor.Seq == h.Seq) {
		failed := ErrStreamFailed.With(session, nil)
		seen := false
		err := g.View(ctx, func(f *fold.Fold) error {
			if f.Error != nil {
				failed = ErrStreamFailed.Because(f.Error.Error).With(session, nil)
			}
			seen = !g.child() || o.Cursor.Seq >= last(f)
			return nil
		})
		if seen {
			return nil, failed
		}
		if err != nil {
			return nil, err
		}
	}
	src := &nativeSource{g: g, framing: o.Framing, incarnation: h.Incarnation, self: o.Self, follow: o.Follow, ends: true,
		// A child's turn ends while its parent's goes on.
		r: g.Reader(spool.ReadOptions{After: o.Cursor, Follow: o.Follow || g.child(), Max: 256})}
	res.Stream = src
	return res, nil
}

func resyncReason(c spool.Cursor, h spool.Head) string {
	switch err := c.Check(h); {
	case err == nil:
		return ""
	case errors.Is(err, spool.ErrTrimmed):
		return "trimmed"
	case max(c.Incarnation, 1) != max(h.Incarnation, 1):
		return "incarnation"
	}
	return "ahead"
}

type nativeSource struct {
	g           subject
	self        bool // without what is below
	follow      bool
	ends        bool // of a child: its turn may have ended where the reader stands
	r           *spool.Reader
	framing     native.Framing
	incarnation uint64
	buf         []byte
}

func (s *nativeSource) Next(ctx context.Context) ([]byte, error) {
	for {
		out, err := s.next(ctx)
		if len(out) > 0 || err != nil {
			return out, err
		}
	}
}

// next returns what the next records are to this reader, which may be nothing.
func (s *nativeSource) next(ctx context.Context) ([]byte, error) {
	if s.g.child() && !s.follow && s.ends {
		if frame, err := s.childEnd(ctx); frame != nil || err != nil {
			return frame, cmp.Or(err, io.EOF)
		}
		s.ends = false
	}
	recs, err := s.r.Next(ctx)
	s.buf = s.buf[:0]
	for _, r := range recs {
		below := s.below(r.Agent)
		s.ends = s.ends || r.Class == chunk.Kept && (below || r.Agent == s.g.agent)
		switch {
		case r.Agent == s.g.agent, below && !s.self:
		case s.g.child() && r.Type == chunk.TypeExecutorSuperseded: // of all agents
		case s.self, s.g.child():
			continue
		}
		s.buf = appendID(s.buf, spool.Cursor{Seq: r.Seq, Incarnation: s.incarnation})
		s.buf = native.AppendRecord(s.buf, s.framing, r)
	}
	switch {
	case errors.Is(err, io.EOF):
		return s.end(ctx)
	case errors.Is(err, spool.ErrTrimmed):
		return native.Resync("trimmed"), io.EOF
	case errors.Is(err, spool.ErrCursorAhead):
		return native.Resync("incarnation"), io.EOF
	}
	return s.buf, err
}

// end says how the log stands where the reader stands.
func (s *nativeSource) end(ctx context.Context) ([]byte, error) {
	var frame []byte
	err := s.g.View(ctx, func(f *fold.Fold) error {
		text := ""
		if f.Error != nil {
			text = f.Error.Error
		}
		if f.Seq == s.r.Cursor().Seq {
			frame = native.Terminal(f.Status, f.Reason, text)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if frame == nil { // it went on in this very moment
		return nil, ErrCut
	}
	return frame, io.EOF
}

// below reports whether an agent is one below the reader's.
func (s *nativeSource) below(agent string) bool {
	own := s.g.agent
	return len(agent) > len(own) && agent[len(own)] == '.' && agent[:len(own)] == own
}

// childEnd returns the end of a child's stream if its turn is over and the reader
// has all of it.
func (s *nativeSource) childEnd(ctx context.Context) ([]byte, error) {
	var frame []byte
	err := s.g.View(ctx, func(f *fold.Fold) error {
		if len(f.Turns) == 0 && f.Ended == 0 || f.Live() && !f.Asks() || last(f) > s.r.Cursor().Seq {
			return nil
		}
		text := ""
		if f.Error != nil {
			text = f.Error.Error
		}
		frame = native.Terminal(f.Status, f.Reason, text)
		return nil
	})
	return frame, err
}
