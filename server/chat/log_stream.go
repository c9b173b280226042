package chat

import (
	"context"
	"errors"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// ErrStreamFailed is the error for a reader that has seen all of a failed log.
var ErrStreamFailed = &chunk.Error{Code: "stream_failed", Message: "the stream has failed"}

// log is the view of a reader of the log itself: the records after a cursor. For a
// cursor that cannot be served, the stream contains the reason. It fails with
// [spool.ErrCursorMalformed] for a place in a plan that is not of the log, and with
// [ErrStreamFailed] for a reader that has all of a failed log.
func (a *attach) log(ctx context.Context, c spool.Cursor) (Source, error) {
	if c.InPlan && c.InIncarnation(a.g.At) && c.Seq > a.g.At.TraceFloor {
		return nil, spool.ErrCursorMalformed.Because("this position is inside a replay of a turn, and a reader of the log needs a position in the log")
	}
	if reason := lost(c, a.g.At); reason != "" {
		return static(a.as.Log.Lost(reason)), nil
	}
	if !a.as.Log.Follow {
		if err := a.failed(ctx, c); err != nil {
			return nil, err
		}
	}
	return &logStream{g: a.g, of: a.as.Log, f: a.g.projection(a.as, nil).FollowLog(a.g.At, c)}, nil
}

func lost(c spool.Cursor, h spool.Head) string {
	switch err := c.CheckInLog(h); {
	case err == nil:
		return ""
	case errors.Is(err, spool.ErrTrimmed):
		return "trimmed"
	case !c.InIncarnation(h):
		return "incarnation"
	}
	return "ahead"
}

// failed is the error for a reader that has seen all of a failed log.
func (a *attach) failed(ctx context.Context, c spool.Cursor) error {
	status, err := a.g.status(ctx)
	if err != nil || status != chunk.StatusFailed {
		return err
	}
	head := a.g.At
	if !a.g.Child() && (head.Due != 0 || c.Seq != head.Seq || c.InPlan) {
		return nil
	}
	return a.g.View(ctx, func(f *fold.Fold) error {
		if a.g.Child() && (c.Seq < last(f) || c.InPlan) {
			return nil
		}
		failed := ErrStreamFailed
		if f.Error != nil {
			failed = failed.Because(f.Error.Error)
		}
		return failed.With(a.g.ID, nil)
	})
}

// logStream shows a log, or a child's part of it.
type logStream struct {
	g  Session
	of *wire.LogView
	f  *spool.Follower

	more bool
}

func (s *logStream) Replaying() bool { return false }

// More reports whether the next call of Next has records at hand. What this one has
// returned need not be flushed before it.
func (s *logStream) More() bool { return s.more }

func (s *logStream) Next(ctx context.Context) ([]byte, error) {
	out, err := s.next(ctx)
	return s.result(ctx, out, err)
}

// Poll implements [Polled].
func (s *logStream) Poll(ctx context.Context) ([]byte, error) {
	out, rests, err := s.poll(ctx)
	if rests {
		return nil, nil
	}
	return s.result(ctx, out, err)
}

// Await implements [Polled].
func (s *logStream) Await(ctx context.Context) error { return s.f.Await(ctx) }

// Root implements [Polled].
func (s *logStream) Root() string { return s.g.Session() }

// result completes what next returns: the stream's last event follows if there is nothing.
func (s *logStream) result(ctx context.Context, out []byte, err error) ([]byte, error) {
	switch {
	case errors.Is(err, spool.ErrTrimmed):
		return s.of.Lost("trimmed"), io.EOF
	case errors.Is(err, spool.ErrCursorAhead):
		return s.of.Lost("incarnation"), io.EOF
	case err != nil || len(out) > 0:
		return out, err
	}
	end, err := s.end(ctx)
	if err != nil {
		return nil, err
	}
	if end == nil { // it has just continued
		return nil, ErrCut
	}
	return end, io.EOF
}

// next returns the next frames. If it returns neither frames nor an error, the log or
// the child is quiet at the reader's position.
func (s *logStream) next(ctx context.Context) ([]byte, error) {
	switch {
	case s.of.Follow:
		b, err := s.f.NextFollowing(ctx)
		s.more = b.More
		return b.Bytes, err
	case !s.g.Child():
		b, err := s.f.Next(ctx)
		s.more = b.More
		return b.Bytes, err
	}
	for { // a child's turn ends before its parent's
		out, rests, err := s.poll(ctx)
		if err != nil || !rests {
			return out, err
		}
		if err := s.f.Await(ctx); err != nil {
			return nil, err
		}
	}
}

// poll is next without waiting: rests says that the reader has to wait.
func (s *logStream) poll(ctx context.Context) (out []byte, rests bool, err error) {
	for {
		b, err := s.f.Poll(ctx)
		if err != nil {
			return nil, false, err
		}
		if s.more = b.More; s.of.Follow || !s.g.Child() {
			return b.Bytes, len(b.Bytes) == 0 && (s.of.Follow || !b.Quiet), nil
		}
		end, err := s.childEnd(ctx) // as of now or later, so that Await misses no end
		if err != nil {
			return nil, false, err
		}
		if out := s.upTo(end, b); len(out) > 0 || end == 0 || end <= s.f.At() {
			return out, len(out) == 0 && end == 0, nil
		}
	}
}

// childEnd is the sequence of the last record of a child whose turn is over, or 0.
func (s *logStream) childEnd(ctx context.Context) (end uint64, err error) {
	err = s.g.View(ctx, func(f *fold.Fold) error {
		if (len(f.Turns) > 0 || f.Ended > 0) && (!f.Live() || f.Asks()) {
			end = last(f)
		}
		return nil
	})
	return end, err
}

// upTo renders the frames of a batch up to a sequence; 0: all.
func (s *logStream) upTo(end uint64, b spool.Batch) []byte {
	if end == 0 || end >= b.At || b.Remains {
		return b.Bytes
	}
	var out []byte
	for _, f := range b.Frames {
		if f.Seq <= end {
			out = append(s.g.cursor(f.Seq).AppendID(out), f.Data...)
		}
	}
	return out
}

// end returns the event that closes the stream, if the log or the child is quiet at the
// reader's position. Its id is that position.
func (s *logStream) end(ctx context.Context) (event []byte, err error) {
	err = s.g.viewAtEnd(ctx, func(f *fold.Fold) error {
		if !s.g.Child() && f.Seq != s.f.At() {
			return nil
		}
		text := ""
		if f.Error != nil {
			text = f.Error.Error
		}
		if event = s.of.End(f.Status, f.Reason, text); event != nil {
			event = append(s.g.cursor(s.f.At()).AppendID(nil), event...)
		}
		return nil
	})
	return event, err
}
