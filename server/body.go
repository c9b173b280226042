package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// bodyRate is the least rate of a body, which may be behind it by BodyTimeout.
const bodyRate = 16 << 10 // bytes a second

// limitBody ends a request whose body does not arrive. Without it such a request would
// hold its connection for ever, even if no handler reads the body.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := &pacedBody{ReadCloser: r.Body, rc: http.NewResponseController(w), slack: s.o.BodyTimeout, until: time.Now().Add(s.o.BodyTimeout), left: r.ContentLength}
	_ = b.rc.SetReadDeadline(b.until)
	r.Body = b
}

// pacedBody moves the connection's read deadline as the body is read. What came fast gives
// no credit, or a large body could stall and hold its memory for long. At the end net/http
// removes the deadline.
type pacedBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	slack time.Duration
	until time.Time
	left  int64 // what has not been read of a body that tells its length
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if err == nil && b.left != 0 {
		b.until = b.until.Add(time.Duration(n) * time.Second / bodyRate)
		if latest := time.Now().Add(b.slack); b.until.After(latest) {
			b.until = latest
		}
		_ = b.rc.SetReadDeadline(b.until)
	}
	return n, err
}

// bodyLimit bounds one request's body while it is read.
type bodyLimit struct {
	bytes  int
	values int // JSON values
}

var (
	chatBody  = bodyLimit{16 << 20, 1 << 20}
	otherBody = bodyLimit{1 << 20, 1 << 18}
)

const (
	// bodyDepth bounds how deep a body's values are nested: as deep as a stored value, in
	// the members around it.
	bodyDepth = chunk.MaxDepth + 16
	// firstRead is what a body gets at first, unless it says that it is smaller. It then
	// grows to twice its size as it arrives, whatever it says.
	firstRead = 4 << 10
	// smallBody is the size up to which a body may use the whole budget.
	smallBody = 64 << 10
)

// budget counts the bytes of all request bodies in memory.
type budget struct {
	limit int64 // 0: no limit
	used  atomic.Int64
}

// take adds n bytes to a body that has held bytes. It reports false if they do not fit.
// Large bodies leave a quarter of the budget to small ones, so that a few large and slow
// requests cannot keep out every message.
func (b *budget) take(n, held int64) bool {
	limit := b.limit
	if held+n > smallBody {
		limit -= limit / 4
	}
	if used := b.used.Add(n); limit > 0 && used > limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// body reads a request's body. The body counts in the budget until it is released.
func (s *Server) body(w http.ResponseWriter, r *request, limit bodyLimit) ([]byte, error) {
	in := http.MaxBytesReader(w, r.Body, int64(limit.bytes))
	var buf []byte
	var meter jsonenc.Meter
	first := firstRead
	if n := r.ContentLength; n >= 0 && n < firstRead {
		first = int(n) + 1 // and the end is seen without growing
	}
	for {
		if len(buf) == cap(buf) {
			to := min(max(2*cap(buf), first), limit.bytes+1)
			if !s.bodies.take(int64(to-cap(buf)), r.held) {
				return nil, afterRest(in, errBodies)
			}
			r.held += int64(to - cap(buf))
			buf = append(make([]byte, 0, to), buf...)
		}
		n, err := in.Read(buf[len(buf):cap(buf)])
		meter.Add(buf[len(buf) : len(buf)+n])
		buf = buf[:len(buf)+n]
		switch {
		case meter.Values > limit.values:
			return nil, afterRest(in, chunk.ErrTooLarge.Because("the body has more than "+strconv.Itoa(limit.values)+" values"))
		case meter.Depth > bodyDepth:
			return nil, afterRest(in, errMalformed.Because("the body is nested too deep"))
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, bodyError(err)
		}
	}
}

// release ends the time for which a request's body counts in the budget.
func (s *Server) release(r *request) {
	s.bodies.used.Add(-r.held)
	r.held = 0
}

// afterRest returns the error of a refused body, once it has read the rest without keeping
// it: a client that still sends would not read the answer.
func afterRest(rest io.Reader, why *chunk.Error) error {
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return bodyError(err)
	}
	return why
}

func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return chunk.ErrTooLarge.Because("the body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errBodyTimeout
	}
	return errMalformed.With("", err)
}
