package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Background is a provider of OpenAI's Responses API, for tests. It plays recorded
// streams, keeps its answers even if nobody listens, and counts its requests. It is an
// [http.Handler] and an [http.RoundTripper].
type Background struct {
	// Before is asked before an event is sent, and may block; nil: [Send].
	Before func(Event) Fate
	// Expired says that an answer's events can no longer be streamed, except the
	// connection that asked for it. nil: they always can.
	Expired func(answer int) bool
	// Gone says that an answer is not there any more. nil: all are.
	Gone func(answer int) bool

	rounds [][]recorded

	mu        sync.Mutex
	answers   []*kept
	cancelled []int
}

// Event is an event about to be sent.
type Event struct {
	Answer     int // from 0, in the order in which they were asked for
	Round      int // how often tools have answered in the request
	Number     int // the event's sequence number
	Connection int // of the answer, from 0
}

// Fate is what becomes of an event.
type Fate int

const (
	Send  Fate = iota
	Cut        // the connection breaks before it
	Close      // the stream ends before it as if it were over
	Stall      // nothing comes any more
)

type recorded struct{ head, data []byte }

type kept struct {
	round, connections int
}

// NewBackground returns a provider that answers a question with the first of these
// recorded streams, the outcomes of the calls in it with the second, and so on.
func NewBackground(streams ...[]byte) (*Background, error) {
	b := new(Background)
	for _, s := range streams {
		var events []recorded
		for block := range bytes.SplitSeq(bytes.TrimSpace(s), []byte("\n\n")) {
			head, data, ok := bytes.Cut(block, []byte("data: "))
			var e struct {
				Number *int `json:"sequence_number"`
			}
			if !ok || json.Unmarshal(data, &e) != nil || e.Number == nil || *e.Number != len(events) {
				return nil, fmt.Errorf("event %d of the recorded stream has another number or none", len(events))
			}
			events = append(events, recorded{head, data})
		}
		b.rounds = append(b.rounds, events)
	}
	return b, nil
}

// Events returns the number of events of each round.
func (b *Background) Events() (n []int) {
	for _, r := range b.rounds {
		n = append(n, len(r))
	}
	return n
}

// Asked returns how many answers were asked for, and Cancelled which of them were
// to be ended.
func (b *Background) Asked() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.answers) }

func (b *Background) Cancelled() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.cancelled)
}

func (b *Background) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/responses")
	id, cancel := strings.CutSuffix(strings.TrimPrefix(path, "/"), "/cancel")
	n, err := strconv.Atoi(strings.TrimPrefix(id, "resp_"))
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.Method == http.MethodPost && id == "":
		n, err := b.ask(r.Body)
		if err != nil {
			http.Error(w, `{"error":{"message":"`+err.Error()+`"}}`, http.StatusBadRequest)
			return
		}
		b.play(w, r, n, 0)
	case err != nil, b.answer(n) == nil, b.Gone != nil && b.Gone(n):
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"Response with id '`+id+`' not found.","type":"invalid_request_error"}}`)
	case r.Method == http.MethodPost && cancel:
		b.mu.Lock()
		b.cancelled = append(b.cancelled, n)
		b.mu.Unlock()
		_, _ = io.WriteString(w, `{"id":"`+id+`","object":"response","status":"cancelled"}`)
	case r.Method == http.MethodGet && r.URL.Query().Get("stream") != "true":
		events := b.rounds[b.answer(n).round]
		var last struct{ Response json.RawMessage }
		_ = json.Unmarshal(events[len(events)-1].data, &last)
		_, _ = w.Write(named(last.Response, n))
	case r.Method == http.MethodGet && b.Expired != nil && b.Expired(n):
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"This response can no longer be streamed because it is more than 5 minutes old.","type":"invalid_request_error"}}`)
	case r.Method == http.MethodGet:
		from := 0
		if after, err := strconv.Atoi(r.URL.Query().Get("starting_after")); err == nil {
			from = after + 1
		}
		b.play(w, r, n, from)
	default:
		http.NotFound(w, r)
	}
}

func named(data []byte, n int) []byte {
	return bytes.ReplaceAll(data, []byte(`"resp_1"`), fmt.Appendf(nil, `"resp_%d"`, n))
}

func (b *Background) answer(n int) *kept {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 || n >= len(b.answers) {
		return nil
	}
	return b.answers[n]
}

// ask begins an answer and returns its number. Which stream it plays depends on how
// often tools have answered since the user's last message.
func (b *Background) ask(body io.Reader) (int, error) {
	var in struct {
		Background, Stream bool
		Input              []struct{ Type, Role string }
	}
	if err := json.NewDecoder(body).Decode(&in); err != nil {
		return 0, err
	}
	if !in.Background || !in.Stream {
		return 0, errors.New("not in the background")
	}
	round := 0
	for i, item := range in.Input {
		switch {
		case item.Role == "user":
			round = 0
		case item.Type == "function_call_output" && in.Input[i-1].Type != item.Type:
			round++
		}
	}
	if round >= len(b.rounds) {
		return 0, fmt.Errorf("there is no round %d", round)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers = append(b.answers, &kept{round: round})
	return len(b.answers) - 1, nil
}

func (b *Background) play(w http.ResponseWriter, r *http.Request, n, from int) {
	a := b.answer(n)
	b.mu.Lock()
	connection := a.connections
	a.connections++
	b.mu.Unlock()
	flush := func() {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush()
	for i, e := range b.rounds[a.round][from:] {
		fate := Send
		if b.Before != nil {
			fate = b.Before(Event{Answer: n, Round: a.round, Number: from + i, Connection: connection})
		}
		switch fate {
		case Cut:
			panic(http.ErrAbortHandler)
		case Close:
			return
		case Stall:
			<-r.Context().Done()
			return
		}
		if _, err := fmt.Fprintf(w, "%sdata: %s\n\n", e.head, named(e.data, n)); err != nil {
			return
		}
		flush()
	}
}

// RoundTrip answers without a network, for tests in virtual time.
func (b *Background) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	body, pipe := io.Pipe()
	w := &pipeWriter{pipe: pipe, header: http.Header{}, begun: make(chan int, 1)}
	server := r.Clone(r.Context())
	if server.Body == nil {
		server.Body = http.NoBody
	}
	go func() {
		defer func() {
			if v := recover(); v != nil {
				w.WriteHeader(http.StatusOK)
				_ = pipe.CloseWithError(io.ErrUnexpectedEOF)
			}
		}()
		b.ServeHTTP(w, server)
		w.WriteHeader(http.StatusOK)
		_ = pipe.Close()
	}()
	return &http.Response{StatusCode: <-w.begun, Header: w.header, Body: body, Request: r}, nil
}

type pipeWriter struct {
	pipe   *io.PipeWriter
	header http.Header
	once   sync.Once
	begun  chan int // the status
}

func (w *pipeWriter) Header() http.Header    { return w.header }
func (w *pipeWriter) WriteHeader(status int) { w.once.Do(func() { w.begun <- status }) }
func (w *pipeWriter) Flush()                 { w.WriteHeader(http.StatusOK) }

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(p)
}

// Outage is a listener that can refuse connections for a while.
type Outage struct {
	handler http.Handler
	addr    string

	mu     sync.Mutex
	server *http.Server
}

// NewOutage serves a handler on a loopback port.
func NewOutage(h http.Handler) (*Outage, error) {
	o := &Outage{handler: h, addr: "127.0.0.1:0"}
	return o, o.Up()
}

// URL is the address of its API.
func (o *Outage) URL() string { return "http://" + o.addr + "/v1" }

// Up serves again, on the same port.
func (o *Outage) Up() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.server != nil {
		return nil
	}
	l, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	o.addr, o.server = l.Addr().String(), &http.Server{Handler: o.handler}
	go func(s *http.Server) { _ = s.Serve(l) }(o.server)
	return nil
}

// Down breaks all connections and refuses new ones.
func (o *Outage) Down() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.server != nil {
		_ = o.server.Close()
		o.server = nil
	}
}
