package chat

import (
	"context"
	"errors"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire/native"
)

// NativeOptions are a native reader's wishes.
type NativeOptions struct {
	Cursor  spool.Cursor
	Follow  bool // follow the session for ever
	Framing native.Framing
}

// ErrStreamFailed answers a native reader that has seen all of a failed log.
var ErrStreamFailed = &spool.Error{Code: "stream_failed", Message: "the stream has failed"}

// Native streams a log's records after a cursor. A cursor that cannot be served
// is answered on the stream, with one resync event. Errors: [spool.ErrNotFound],
// and [ErrStreamFailed] for a reader that has all of a failed log.
func Native(ctx context.Context, logs *spool.Logs, session string, o NativeOptions) (*Response, error) {
	g, err := logs.Log(session)
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
	if !o.Follow && h.Status == spool.StatusFailed && h.Due == 0 && o.Cursor.Seq == h.Seq {
		failed := ErrStreamFailed.With(session, nil)
		_ = g.View(ctx, func(f *spool.Fold) error {
			if f.Error != nil {
				failed = ErrStreamFailed.Because(f.Error.Error).With(session, nil)
			}
			return nil
		})
		return nil, failed
	}
	res.Stream = &nativeSource{g: g, framing: o.Framing, incarnation: h.Incarnation,
		r: g.Reader(spool.ReadOptions{After: o.Cursor, Follow: o.Follow, Max: 256})}
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
	g           *spool.Log
	r           *spool.Reader
	framing     native.Framing
	incarnation uint64
	buf         []byte
}

func (s *nativeSource) Next(ctx context.Context) ([]byte, error) {
	recs, err := s.r.Next(ctx)
	s.buf = s.buf[:0]
	for _, r := range recs {
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
	err := s.g.View(ctx, func(f *spool.Fold) error {
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
