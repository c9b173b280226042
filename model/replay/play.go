package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// address is the path of a recording's endpoint. Clients append to it.
func address(name string) string {
	return "/" + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// play answers with a recording.
func (m *Model) play(w http.ResponseWriter, r *http.Request) {
	segment, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	name, err := base64.RawURLEncoding.DecodeString(segment)
	if err != nil || !m.isFile(string(name)) {
		http.NotFound(w, r)
		return
	}
	f, err := m.root.Open(filepath.FromSlash(string(name)))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	body := bufio.NewReaderSize(f, 64<<10)
	w.Header().Set("Content-Type", "text/event-stream")
	if start, _ := body.Peek(5); string(start) == "HTTP/" {
		resp, err := http.ReadResponse(body, r)
		if err != nil {
			http.Error(w, "the recording's HTTP head cannot be read", http.StatusInternalServerError)
			return
		}
		defer resp.Body.Close()
		for _, key := range []string{"Content-Type", "Retry-After", "Retry-After-Ms", "Date"} {
			if v := resp.Header.Get(key); v != "" {
				w.Header().Set(key, v)
			}
		}
		w.WriteHeader(resp.StatusCode)
		body = bufio.NewReaderSize(resp.Body, 64<<10)
	}
	m.pace(r.Context(), w, body)
}

// pace copies a recording as it is, line by line, with its pauses.
func (m *Model) pace(ctx context.Context, w http.ResponseWriter, body *bufio.Reader) {
	flush := http.NewResponseController(w).Flush
	data := false // since the last empty line
	for {
		line, err := body.ReadSlice('\n')
		if _, werr := w.Write(line); werr != nil {
			return
		}
		pause := time.Duration(0)
		switch trimmed := bytes.TrimSpace(line); {
		case len(trimmed) == 0 && data:
			data = false
			_ = flush()
			if m.o.Rate > 0 {
				pause = time.Duration(float64(time.Second) / m.o.Rate)
			}
		case bytes.HasPrefix(trimmed, []byte("data")):
			data = true
		case m.o.Rate == 0 && bytes.HasPrefix(trimmed, []byte(": +")):
			if pause, _ = time.ParseDuration(string(trimmed[3:])); pause > 0 {
				_ = flush()
			}
		}
		if pause > 0 && m.o.Sleep(ctx, pause) != nil {
			return
		}
		if err == io.EOF || err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}
