package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spool-run/spool/chunk"
)

// bodyRate is the least rate of a body, once BodyTimeout has passed.
const bodyRate = 16 << 10 // bytes a second

// limitBody ends a request whose body does not arrive. Without it such a request would
// hold its connection for ever, even if no handler reads the body.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := &pacedBody{ReadCloser: r.Body, rc: http.NewResponseController(w), until: time.Now().Add(s.o.BodyTimeout)}
	_ = b.rc.SetReadDeadline(b.until)
	r.Body = b
}

// pacedBody moves the connection's read deadline as the body is read. At the end
// net/http removes the deadline.
type pacedBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	until time.Time
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		b.until = b.until.Add(time.Duration(n) * time.Second / bodyRate)
		_ = b.rc.SetReadDeadline(b.until)
	}
	return n, err
}

// body reads a request's body up to limit bytes.
func body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, chunk.ErrTooLarge.Because("the body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, errBodyTimeout
	}
	if err != nil {
		return nil, errMalformed.With("", err)
	}
	return data, nil
}
