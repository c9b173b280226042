package merlin

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool/wire"
)

// Pace is a line of a pacing table: while fewer than Below frames wait behind
// the one that is being written, it is written in slices of Size characters with
// a pause after each. A line with Below 0 is for any number of waiting frames.
type Pace struct {
	Below int
	Size  int
	Pause time.Duration
}

// DefaultPacing is the streamer's table: the less there is to say, the slower it
// is said, and a backlog is worked off at once.
func DefaultPacing() []Pace {
	return []Pace{
		{1, 2, 15 * time.Millisecond},
		{5, 3, 10 * time.Millisecond},
		{10, 4, 5 * time.Millisecond},
		{0, 5, 0},
	}
}

const (
	firstSlice = 5       // characters of the first slice, before the backlog is known
	sliceBytes = 4 << 10 // of slices without pauses, in one write
)

// pacer cuts the content of a V1 stream into slices and spaces them. What is not
// content passes between them, in order, and so does what brings a new reader to
// the present.
//
// It reads ahead only as far as its table can tell the difference.
type pacer struct {
	src wire.Stream
	now func() time.Time

	slicer
	until     time.Time // no content before
	err       error     // src has ended with it
	buf       []byte
	replaying bool // all of buf is
}

// pacedFrame is a frame that waits. Content is what is left of it.
type pacedFrame struct {
	data      []byte
	id        []byte // its id line
	content   string // "" if it is written as it is
	replaying bool
}

// slicer is a queue of frames whose content leaves it in slices.
type slicer struct {
	table []Pace
	most  int // frames that are worth reading ahead
	queue []pacedFrame
	size  int
}

func newSlicer(table []Pace) slicer {
	q := slicer{table: table, size: firstSlice}
	for _, l := range table {
		q.most = max(q.most, l.Below+1)
	}
	return q
}

// Paced returns a V1 stream whose content is cut into slices and spaced by a
// table, such as [DefaultPacing].
func Paced(s wire.Stream, table []Pace, now func() time.Time) wire.Stream {
	return &pacer{src: s, now: now, slicer: newSlicer(table)}
}

// Next returns what may be written now.
func (p *pacer) Next(ctx context.Context) ([]byte, error) {
	p.buf, p.replaying = p.buf[:0], false
	for len(p.buf) < sliceBytes {
		if len(p.queue) == 0 {
			if p.err != nil || len(p.buf) > 0 {
				return p.buf, p.err
			}
			if err := p.fill(ctx); err != nil {
				return nil, err
			}
			continue
		}
		head := &p.queue[0]
		if head.content == "" {
			p.replaying = head.replaying && (p.replaying || len(p.buf) == 0)
			p.buf = append(p.buf, head.data...)
			p.queue = p.queue[1:]
			continue
		}
		if !p.until.IsZero() {
			if len(p.buf) > 0 {
				return p.buf, nil
			}
			if err := p.pause(ctx); err != nil {
				return nil, err
			}
		}
		var pause time.Duration
		p.buf, pause = p.slice(p.buf)
		p.replaying, p.until = false, time.Time{}
		if pause > 0 {
			p.until = p.now().Add(pause)
		}
	}
	return p.buf, nil
}

// Replaying reports whether all of what Next gave last only brings the reader to
// the present.
func (p *pacer) Replaying() bool { return p.replaying }

// slice appends the next slice of the first frame, and returns the pause after it, by
// what waits behind. The last slice carries the frame's id: who has it has the record.
func (q *slicer) slice(dst []byte) ([]byte, time.Duration) {
	head := &q.queue[0]
	n := 0
	for range q.size {
		if n == len(head.content) {
			break
		}
		_, size := utf8.DecodeRuneInString(head.content[n:])
		n += size
	}
	last := n == len(head.content)
	if last {
		dst = append(dst, head.id...)
	}
	dst = appendContent(dst, head.content[:n])
	head.content = head.content[n:]
	backlog := len(q.queue) - 1
	if last {
		q.queue = q.queue[1:]
	}
	for _, l := range q.table {
		if backlog < l.Below || l.Below == 0 {
			q.size = max(l.Size, 1)
			return dst, l.Pause
		}
	}
	return dst, 0
}

// pause waits until the next slice may be written, and takes in what comes
// meanwhile.
func (p *pacer) pause(ctx context.Context) error {
	left := p.until.Sub(p.now())
	wait, cancel := context.WithTimeout(ctx, max(left, 0))
	defer cancel()
	for left > 0 && wait.Err() == nil {
		if p.err != nil || len(p.queue) >= p.most {
			<-wait.Done()
		} else {
			_ = p.fill(wait) // fails with wait's end alone
		}
	}
	if ctx.Err() != nil && p.now().Before(p.until) {
		return ctx.Err()
	}
	p.until = time.Time{}
	return nil
}

// fill takes what the stream has, and remembers how it ended. It fails with
// ctx's error alone.
func (p *pacer) fill(ctx context.Context) error {
	data, err := p.src.Next(ctx)
	replaying := p.src.Replaying()
	for len(data) > 0 {
		n := bytes.Index(data, []byte("\n\n")) + 2
		if n < 2 {
			n = len(data)
		}
		f := pacedFrame{data: bytes.Clone(data[:n]), replaying: replaying}
		if !replaying {
			f.content = contentOf(f.data)
		}
		if id := bytes.IndexByte(f.data, '\n'); bytes.HasPrefix(f.data, []byte("id:")) && id > 0 {
			f.id = f.data[:id+1]
		}
		p.queue = append(p.queue, f)
		data = data[n:]
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // if the stream has ended too, it says so again
	}
	p.err = err
	return nil
}

// appendContent appends a V1 message with this content.
func appendContent(dst []byte, content string) []byte {
	return wire.AppendEvent(dst, eventMessage, encode(Message{Content: &content}))
}

// markers are what [marker] makes.
var markers = regexp.MustCompile(`^\[citation: [0-9]+: [0-9]+\]$`)

// contentOf returns the content of an event that a [Projector] made, with or
// without an id line, if it may be written in slices, and else "". Only V1 has
// such content; markers of citations are not sliced, since clients look for them.
func contentOf(event []byte) string {
	if bytes.HasPrefix(event, []byte("id:")) {
		_, event, _ = bytes.Cut(event, []byte("\n"))
	}
	data, ok := bytes.CutPrefix(event, []byte("event: message\ndata: "))
	if !ok || !bytes.HasPrefix(data, []byte(`{"content":`)) {
		return ""
	}
	var m Message
	if json.Unmarshal(data, &m) != nil || m.Content == nil || m.Type != "" || m.Error != nil || markers.MatchString(*m.Content) {
		return ""
	}
	return *m.Content
}
