package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
)

// late is a source that is found only after its reader has been answered: a
// queued message's run, say. open blocks until it is there.
type late struct {
	open func(ctx context.Context) (Source, error)
	src  Source
}

func (l *late) Next(ctx context.Context) ([]byte, error) {
	if l.src == nil {
		src, err := l.open(ctx)
		if err != nil {
			return nil, err
		}
		l.src = src
	}
	return l.src.Next(ctx)
}

// static is a source of fixed bytes.
type static []byte

func (s static) Next(context.Context) ([]byte, error) { return s, io.EOF }

// turnSource reads one turn through its shared projection: the frames of the
// records after a sequence, optionally after an attach plan.
//
// Terminal frames are held back until the turn is known to be over, because a
// paused turn may have gone on in the meantime, and are dropped if it has.
type turnSource struct {
	g           subject
	f           *spool.Follower
	turn        string
	incarnation uint64

	plan   []spool.Frame // still to be sent
	planAt uint64        // the plan's cut
	planN  uint64        // number of the plan's frames that were sent or skipped

	run   uint64 // of a segment, its run's first record: it ends with that run, whatever the turn does
	begun bool   // that record's frames were sent
	skip  int    // frames to leave out, of a reader that counts

	held    []byte
	at      uint64 // the position that the reader has been brought to
	quiet   bool
	planned bool  // what Next gave last is of the plan
	end     error // io.EOF, or ErrCut
	buf     []byte
}

func (s *turnSource) Next(ctx context.Context) ([]byte, error) {
	if s.end != nil {
		return nil, s.end
	}
	if s.plan != nil {
		if out := s.sendPlan(); len(out) > 0 {
			s.planned = true
			return out, nil
		}
	}
	s.planned = false
	for {
		if len(s.held) > 0 {
			over, err := s.over(ctx)
			if err != nil {
				return nil, err
			}
			if over {
				s.end = io.EOF
				return s.held, s.end
			}
		}
		b, err := s.f.Next(ctx)
		if err != nil {
			return nil, err
		}
		s.at, s.quiet = b.At, b.Quiet
		out := s.take(&b)
		if s.end == nil && s.quiet && len(s.held) == 0 && len(out) == 0 {
			s.end = io.EOF // the reader has seen the turn's end before
		}
		if len(out) > 0 || s.end != nil {
			return out, s.end
		}
	}
}

// take returns what of a batch is to be sent now, and holds the rest.
func (s *turnSource) take(b *spool.Batch) []byte {
	plain, rest := b.Bytes[:b.Plain], b.Bytes[b.Plain:]
	last := b.Frames[b.PlainFrames:]
	if s.skip > 0 || s.run != 0 && !s.begun {
		plain, rest = s.pick(b)
	}
	switch {
	case len(last) == 0:
		if len(b.Frames) > 0 {
			s.held = nil
		}
		return plain
	case last[len(last)-1].Cut:
		s.end = ErrCut
	case s.run != 0:
		s.end = io.EOF
	default:
		s.held = rest
		return plain
	}
	s.buf = append(append(s.buf[:0], plain...), rest...)
	return s.buf
}

// pick renders a batch frame by frame, without what this reader is not sent.
func (s *turnSource) pick(b *spool.Batch) (plain, rest []byte) {
	var out []byte
	at := 0
	for i, f := range b.Frames {
		if i == b.PlainFrames {
			at = len(out)
		}
		switch {
		case s.run != 0 && !s.begun && own(f.Data):
		case s.skip > 0 && !isDone(f.Data):
			s.skip--
		default:
			if f.Seq != 0 {
				out = appendID(out, spool.Cursor{Seq: f.Seq, Incarnation: s.incarnation})
			}
			out = append(out, f.Data...)
		}
		s.begun = s.begun || f.Seq >= s.run && f.Seq != 0
	}
	if b.PlainFrames == len(b.Frames) {
		at = len(out)
	}
	return out[:at:at], out[at:]
}

// own says whether a frame of a run's first record tells the client what it has
// just told the server itself.
func own(data []byte) bool {
	for _, prefix := range [...]string{
		`data: {"type":"tool-output-available"`,
		`data: {"type":"tool-output-error"`,
		`data: {"type":"tool-approval-response"`,
	} {
		if bytes.HasPrefix(data, []byte(prefix)) {
			return true
		}
	}
	return false
}

// sendPlan returns the frames of the attach plan that are not terminal, each
// with its place in the plan as id, and holds the others.
func (s *turnSource) sendPlan() []byte {
	var out []byte
	for i, f := range s.plan {
		s.planN++
		c := spool.Cursor{Seq: s.planAt, Incarnation: s.incarnation}
		if i < len(s.plan)-1 {
			c.InPlan, c.PlanFrames = true, s.planN
		}
		to := &out
		if f.Terminal {
			to = &s.held
		}
		*to = append(appendID(*to, c), f.Data...)
	}
	s.plan, s.at = nil, s.planAt
	return out
}

// over says whether the turn has ended for good, as far as the log knows, and
// with what the reader has been given: it may stand at a pause that a later run
// has ended long ago.
func (s *turnSource) over(ctx context.Context) (over bool, err error) {
	err = s.g.View(ctx, func(f *fold.Fold) error {
		over = turnOver(f, s.turn, s.quiet || s.g.child())
		if t := f.Turn(s.turn); t != nil && t.LastRun().Start > s.at {
			over = false
		}
		return nil
	})
	return over, err
}

// turnOver is false while a run of the turn is open, and while it is paused and
// an answer that may reopen it is due.
func turnOver(f *fold.Fold, turn string, quiet bool) bool {
	if open := f.OpenRun(); open != nil {
		return open.TurnID != turn
	}
	switch last := f.LastTurn(); {
	case last != nil && last.ID != turn:
		return true
	case f.Continue != nil: // a run of this turn is to come
		return false
	case len(f.Waiting) > 0:
		return true
	}
	return f.Status != chunk.StatusPaused || quiet
}

func appendID(dst []byte, c spool.Cursor) []byte {
	dst = append(dst, "id: "...)
	dst = c.AppendText(dst)
	return append(dst, '\n')
}

func isDone(data []byte) bool { return string(data) == "data: [DONE]\n\n" }

// settledFrames end a stream that shows no run: a start that names the message,
// a finish, and the end.
func settledFrames(messageID, reason string) static {
	b := []byte(`data: {"type":"start"`)
	if messageID != "" {
		id, _ := json.Marshal(messageID) // strings always encode
		b = append(append(b, `,"messageId":`...), id...)
	}
	b = append(b, "}\n\n"...)
	return append(b, `data: {"type":"finish","finishReason":"`+reason+`"}`+"\n\ndata: [DONE]\n\n"...)
}

// await blocks until the log has something after seq or, unless something is
// sure to come, is quiet (io.EOF).
func await(ctx context.Context, g subject, incarnation, seq uint64, sure bool) error {
	_, err := g.Reader(spool.ReadOptions{After: spool.Cursor{Seq: seq, Incarnation: incarnation}, Max: 1, Follow: sure}).Next(ctx)
	if errors.Is(err, spool.ErrTrimmed) {
		return nil // there was more, and it is gone already
	}
	return err
}

// aisdk returns the profile's options.
func (d *Deps) aisdk(ctx context.Context, g subject, as wire) *aisdk.Options {
	return &aisdk.Options{
		UI7:           as.ui == 7,
		StaticTools:   d.Transformer.StaticTools,
		NoStepEvents:  d.Transformer.NoStepEvents,
		LiteralErrors: d.Transformer.LiteralErrors,
		ChunkFilter:   d.Transformer.ChunkFilter,
		SubAgents:     as.agents,
		Agent:         g.agent,
		Resolve:       func(v json.RawMessage) (json.RawMessage, error) { return g.Blob(ctx, v) },
	}
}

// projection is the turn on a wire, shared by all its readers, so that none of
// their contexts ends it. A turn of the same id in another incarnation is another
// turn.
func (d *Deps) projection(g subject, incarnation uint64, turn *fold.Turn, as wire) *spool.Projection {
	id := turn.ID
	suffix := "/" + strconv.FormatUint(incarnation, 10) + "/" + g.agent + "/" + id
	if as.merlin != 0 {
		o := d.merlinOptions(g, as)
		return g.Projection(fmt.Sprintf("merlin/%d/%s/%v", as.merlin, as.agents, d.Merlin.Literal)+suffix, turn.Start(), func() spool.Projector { return merlin.NewProjector(id, o) })
	}
	t := d.Transformer
	key := fmt.Sprint("aisdk/", as.ui, "/", t.StaticTools, t.NoStepEvents, t.LiteralErrors, "/", as.agents)
	if t.ChunkFilter != nil {
		key += fmt.Sprintf("/%p", d) // functions cannot be compared: nobody else has this one
	}
	return g.Projection(key+suffix, turn.Start(), func() spool.Projector { return aisdk.NewProjector(id, d.aisdk(context.Background(), g, as)) })
}
