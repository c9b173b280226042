package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

func serveKind(kind string, args []string) error {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	provider := arg(0)
	var h http.Handler
	switch kind {
	case "proxy":
		h = proxy(provider)
	case "chat-memory":
		s, err := newChat(memstore.New(nil), provider)
		if err != nil {
			return err
		}
		h = s
	case "chat-sqlite":
		store, err := sqlitestore.Open(filepath.Join(arg(1), "spool.db"), nil)
		if err != nil {
			return err
		}
		s, err := newChat(store, provider)
		if err != nil {
			return err
		}
		h = s
	case "herd":
		s, err := newHerd(arg(0))
		if err != nil {
			return err
		}
		h = s
	case "measured":
		switch arg(0) {
		case "bare":
			h = measured(newBare())
		case "spool":
			h = measured(newSpool(memstore.New(nil), nil))
		case "spool-hijack":
			h = measured(newSpool(memstore.New(nil), &server.Options{HijackStreams: true}))
		}
	case "bare":
		h = newBare()
	case "spool":
		h = newSpool(memstore.New(nil), nil)
	case "spool-sqlite":
		store, err := sqlitestore.Open(filepath.Join(arg(0), "spool.db"), nil)
		if err != nil {
			return err
		}
		h = newSpool(store, nil)
	default:
		return fmt.Errorf("no server of kind %q", kind)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, h)
}

// newBare is the floor: a minimal handler with a few streams.
func newBare() http.Handler {
	var streams sync.Map
	mux := http.NewServeMux()
	mux.HandleFunc("/stream/{session}", func(w http.ResponseWriter, r *http.Request) {
		b, ok := streams.Load(r.PathValue("session"))
		if !ok {
			b, _ = streams.LoadOrStore(r.PathValue("session"), &bare{wake: make(chan struct{})})
		}
		if r.Method == http.MethodPost {
			b.(*bare).post(w, r)
		} else {
			b.(*bare).stream(w, r)
		}
	})
	return mux
}

// bare is a stream that keeps what is posted as frames, in memory, and writes each reader
// whatever has come, with one flush.
type bare struct {
	mu     sync.Mutex
	n      int
	frames []byte
	wake   chan struct{}
}

func (b *bare) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.URL.Query().Has("claim") {
		fmt.Fprint(w, `{"epoch":1}`)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range bytes.Lines(body) {
		b.n++
		b.frames = fmt.Appendf(b.frames, "id: %d\ndata: %s\n", b.n, line)
	}
	close(b.wake)
	b.wake = make(chan struct{})
	fmt.Fprintf(w, `{"first":%d,"last":%d}`, b.n, b.n)
}

func (b *bare) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	_, _ = w.Write([]byte(": hello\n\n"))
	_ = rc.Flush()
	for sent := 0; ; {
		b.mu.Lock()
		more, wake := b.frames[sent:], b.wake
		b.mu.Unlock()
		if len(more) == 0 {
			select {
			case <-wake:
				continue
			case <-r.Context().Done():
				return
			}
		}
		if _, err := w.Write(more); err != nil {
			return
		}
		if rc.Flush() != nil {
			return
		}
		sent += len(more)
	}
}

// newSpool is the real server, as producers and readers meet it.
func newSpool(store spool.Store, o *server.Options) http.Handler {
	return server.New(spool.NewLogs(store, nil), o)
}

// newChat is the real server with a provider.
func newChat(store spool.Store, provider string) (http.Handler, error) {
	logs := spool.NewLogs(store, nil)
	m := openai.New(&openai.Options{BaseURL: provider, Model: "m"})
	run, err := runner.New(logs, []*agent.Agent{{Name: "bench", Model: m}}, nil)
	if err != nil {
		return nil, err
	}
	go func() { _ = run.Run(context.Background()) }()
	return server.New(logs, nil), nil
}

// proxy asks the provider and copies what it says.
func proxy(provider string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		res, err := http.Post(provider+"/chat/completions", "application/json", r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		buf := make([]byte, 32<<10)
		for {
			n, err := res.Body.Read(buf)
			if n > 0 {
				if _, werr := w.Write(buf[:n]); werr != nil || flush() != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}
