package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool"
)

// kit is a server under a prefix, with an agent that is executed.
type kit struct {
	*testing.T
	store *memstore.Store
	logs  *spool.Logs
	http  *httptest.Server
	// between, if set, handles requests in the server's place.
	mu      sync.Mutex
	between func(http.Handler) http.Handler
}

func newKit(t *testing.T, o *server.Options, run bool) *kit {
	t.Helper()
	if o == nil {
		o = &server.Options{}
	}
	o.Chat.ReplayGrace = time.Hour
	k := &kit{T: t, store: memstore.New(nil)}
	k.logs = spool.NewLogs(k.store, nil)
	var handler http.Handler = server.New(k.logs, o)
	k.http = httptest.NewServer(http.StripPrefix("/a b", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		between := k.between
		k.mu.Unlock()
		if between != nil {
			between(handler).ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	if run {
		r, err := runner.New(k.logs, []*agent.Agent{testAgent()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { defer close(ended); _ = r.Run(ctx) }()
	} else {
		close(ended)
	}
	t.Cleanup(func() {
		cancel()
		<-ended
		k.http.CloseClientConnections()
		k.http.Close()
		_ = k.logs.Close()
		_ = k.store.Close()
	})
	return k
}

func (k *kit) through(between func(http.Handler) http.Handler) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.between = between
}

// client is a client that does not pause between attempts.
func (k *kit) client(o *client.Options) *client.Client {
	k.Helper()
	if o == nil {
		o = &client.Options{}
	}
	if o.Retry.Jitter == nil {
		o.Retry.Jitter = func(int64) int64 { return 0 }
	}
	c, err := client.New(k.http.URL+"/a%20b/", o)
	if err != nil {
		k.Fatal(err)
	}
	return c
}

func (k *kit) send(s *client.Session, text string) {
	k.Helper()
	if _, err := s.Send(k.Context(), client.Message{Text: text}); err != nil {
		k.Fatal(err)
	}
}

// ended reads a session's log to the end of its turn.
func (k *kit) ended(s *client.Session) (client.Ending, []client.Entry) {
	k.Helper()
	l := s.Log(k.Context(), client.LogOptions{})
	list := k.rest(l)
	return l.Ending(), list
}

func (k *kit) rest(l *client.LogStream) (list []client.Entry) {
	k.Helper()
	for {
		e, err := l.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			k.Fatalf("%v after %d entries", err, len(list))
		}
		list = append(list, e)
	}
}

func textOf(list []client.Entry) string {
	var b strings.Builder
	for _, e := range list {
		switch c := e.Chunk.(type) {
		case *chunk.TextDelta:
			b.WriteString(c.Delta)
		case *chunk.StepDiscarded:
			b.Reset()
		}
		if e.Snapshot != nil {
			b.Reset()
		}
	}
	return b.String()
}

type city struct {
	City string `json:"city"`
}

// testAgent answers talk at once; ask waits for an approval, locate for the client.
func testAgent() *agent.Agent {
	call := func(name string) []scripted.Step {
		return []scripted.Step{
			scripted.Say(scripted.Reasoning("Let me see what there is."), scripted.Text("One moment, žluťoučký kůň 🧵. "),
				scripted.Calls(scripted.ToolCall{ID: "c1", Name: name, Arguments: `{"city":"Rome"}`})),
			scripted.Say(scripted.Text("That is what I found, and this is all there is to say.")),
		}
	}
	m := scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
		"talk": scripted.Steps(call("look")...), "ask": scripted.Steps(call("book")...), "locate": scripted.Steps(call("where")...),
	}})
	look := func(tool.Context, city) (string, error) { return "sunny", nil }
	return &agent.Agent{Name: "test", Model: m, Tools: []tool.Tool{
		tool.New("look", "Looks.", look),
		tool.With(tool.New("book", "Books.", look), tool.Options{Approval: true}),
		tool.Client[city]("where", "Where."),
	}}
}

// own is a run that the test writes by hand.
type own struct {
	*kit
	w     *spool.Writer
	lease spool.Lease
}

func (k *kit) own(session string) *own {
	k.Helper()
	claim := spool.Claim{Owner: "test", TTL: time.Hour, Session: session}
	if err := k.logs.AwaitDue(k.Context(), claim); err != nil {
		k.Fatal(err)
	}
	lease, err := k.logs.Claim(k.Context(), claim)
	if err != nil {
		k.Fatal(err)
	}
	g, err := k.logs.Log(session)
	if err != nil {
		k.Fatal(err)
	}
	return &own{k, g.Writer(lease, spool.WriterOptions{Name: "test", AgentType: "test"}), lease}
}

func (o *own) write(chunks ...chunk.Chunk) {
	o.Helper()
	if _, err := o.w.Commit(o.Context(), spool.Row{}, nil, chunks...); err != nil {
		o.Fatal(err)
	}
}

// start opens the run that answers a message.
func (o *own) start(message string) {
	o.Helper()
	o.w.SetRun("run-" + message)
	h, err := o.store.Head(o.Context(), o.lease.Session)
	if err != nil {
		o.Fatal(err)
	}
	if _, err := o.w.Commit(o.Context(), spool.Row{Status: chunk.StatusActive}, &spool.Settle{Seen: h.Seq},
		&chunk.RunStarted{TurnID: message, MessageID: "answer-" + message, Mode: "start", Commands: []string{message}}); err != nil {
		o.Fatal(err)
	}
	o.w.SetStep(1)
	o.write(&chunk.StepStarted{StepID: "step-1"})
}

func (o *own) say(words ...string) {
	o.Helper()
	for _, w := range words {
		o.write(&chunk.TextDelta{Delta: w})
	}
}
