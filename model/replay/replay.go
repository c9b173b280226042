// Package replay plays recorded provider streams: a bug report becomes a run. A
// recording goes over HTTP on the loopback interface and through the same client
// and ingester that the provider's own bytes would.
package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/wait"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/openai"
)

// Options are a model's settings. The zero value plays at the recorded speed.
type Options struct {
	// Rate is events per second. 0: the recorded speed, that is, a comment line
	// such as ": +250ms" in a recording is a pause; without them as fast as it goes.
	Rate float64
	// Sleep waits; nil: by the clock.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Model is a [model.Model] that answers with recordings: the bytes of a chat
// completions, Responses or messages stream, or of any other answer, optionally
// with its HTTP status line and headers, as curl -i prints them.
//
// The recording of a run's step n > 1 is called NAME.n.EXT; a run ends where there
// is none.
type Model struct {
	o      Options
	root   *os.Root
	file   string // "": the user's message names it
	server *http.Server
	base   string
}

var _ model.Model = (*Model)(nil)

// New returns a model that plays the recording at name, or, if that is a folder,
// the one in it that the user's last message names. Options may be nil.
func New(name string, o *Options) (*Model, error) {
	m := new(Model)
	if o != nil {
		m.o = *o
	}
	if m.o.Sleep == nil {
		m.o.Sleep = wait.Sleep
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	folder := name
	if !info.IsDir() {
		folder, m.file = filepath.Split(filepath.Clean(name))
		if folder == "" {
			folder = "."
		}
	}
	if m.root, err = os.OpenRoot(folder); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replay: %w", err), m.root.Close())
	}
	m.base = "http://" + l.Addr().String()
	m.server = &http.Server{Handler: http.HandlerFunc(m.play), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = m.server.Serve(l) }() // until Close
	return m, nil
}

// Close ends the recordings that are playing.
func (m *Model) Close() error { return errors.Join(m.server.Close(), m.root.Close()) }

// Stream plays the recording that the request asks for.
func (m *Model) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		name, err := m.find(r)
		if err != nil {
			yield(nil, &model.Error{Code: model.CodeInvalidRequest, Message: err.Error()})
			return
		}
		if name == "" {
			yield(model.Finish{Reason: "stop", Raw: "end of the recording"}, nil)
			return
		}
		head, err := m.head(name)
		if err != nil {
			yield(nil, &model.Error{Code: model.CodeInvalidRequest, Message: "the recording cannot be read", Err: err})
			return
		}
		m.client(head, m.base+address(name)).Stream(ctx, r)(yield)
	}
}

// find returns the name of a request's recording, "" if a later step has none.
func (m *Model) find(r *model.Request) (string, error) {
	asked := m.file
	if asked == "" {
		for i := range r.Messages {
			if msg := &r.Messages[i]; msg.Role == chunk.RoleUser && msg.Text() != "" {
				asked = strings.TrimSpace(msg.Text())
			}
		}
	}
	for _, ext := range []string{"", ".sse", ".body", ".txt"} {
		name := asked + ext
		if asked == "" || !m.isFile(name) {
			continue
		}
		if r.Step <= 1 {
			return name, nil
		}
		own := path.Ext(name)
		if name = fmt.Sprintf("%s.%d%s", strings.TrimSuffix(name, own), r.Step, own); m.isFile(name) {
			return name, nil
		}
		return "", nil
	}
	return "", fmt.Errorf("no recording is called %q; there are: %s", asked, strings.Join(m.names(), ", "))
}

// isFile reports whether name is a file inside the folder. The root follows no
// name and no link out of it.
func (m *Model) isFile(name string) bool {
	info, err := m.root.Stat(filepath.FromSlash(name))
	return err == nil && info.Mode().IsRegular()
}

// names lists recordings, the first ones if there are many.
func (m *Model) names() (names []string) {
	const most = 20
	_ = fs.WalkDir(m.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if len(names) == most {
				names = append(names, "…")
				return fs.SkipAll
			}
			names = append(names, name)
		}
		return nil
	})
	return names
}

func (m *Model) head(name string) ([]byte, error) {
	f, err := m.root.Open(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// client is the client of the protocol that a recording is of.
func (m *Model) client(head []byte, base string) model.Model {
	has := func(marks ...string) bool {
		for _, mark := range marks {
			if bytes.Contains(head, []byte(mark)) {
				return true
			}
		}
		return false
	}
	plain := bytes.ReplaceAll(head, []byte(`": "`), []byte(`":"`))
	head = plain
	switch {
	case has(`"choices"`, `chat.completion`):
	case has(`"type":"message_start"`, `"type":"content_block_`, `"type":"message_delta"`, `"type":"message"`, `event: message_`, `event: content_block_`) && !has(`"type":"response.`):
		return anthropic.New(&anthropic.Options{BaseURL: base, Model: "replay"})
	case has(`"type":"response.`, `event: response.`, `"object":"response"`):
		return openai.NewResponses(&openai.Options{BaseURL: base, Model: "replay"})
	}
	return openai.New(&openai.Options{BaseURL: base, Model: "replay"})
}
