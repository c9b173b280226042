package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/wait"
)

// What one append of a producer may have.
const (
	maxChunks = 1000
	maxBody   = 900 << 10
)

// ClaimOptions say who claims.
type ClaimOptions struct {
	Agent     string // the type of the producer's agent
	CommandID string // the key by which the server knows a repeat; "": a new id
}

// Claim is a producer's right to write one run.
type Claim struct {
	Session   string `json:"session"`
	Epoch     uint64 `json:"epoch"`
	RunID     string `json:"runId"`
	TurnID    string `json:"turnId"`
	MessageID string `json:"messageId"`
	TTL       int64  `json:"ttl"` // milliseconds without an append after which the claim expires
}

// Producer writes the run of an agent that lives outside the server. Its methods may be
// called from any goroutine; appends are stored in the order of the calls.
type Producer struct {
	s     *Session
	claim Claim

	mu      sync.Mutex
	seq     uint64 // chunks that were appended under the claim
	pending []batch
}

// batch is an append whose outcome is not known yet.
type batch struct {
	body []byte
	n    int
}

// Claim opens a run in the session, which need not exist. It fails with spool.ErrBusy
// while an agent's run is open or another claim is valid. If it got no answer, calling it
// again with the same CommandID returns the same claim.
func (s *Session) Claim(ctx context.Context, o ClaimOptions) (*Producer, error) {
	r := request{method: http.MethodPost, path: s.producerPath(), query: url.Values{"claim": {""}, "commandId": {s.c.keyed(o.CommandID)}}, session: s.id}
	if o.Agent != "" {
		r.query.Set("agent", o.Agent)
	}
	p := &Producer{s: s}
	if err := s.c.call(ctx, r, &p.claim); err != nil {
		return nil, err
	}
	return p, nil
}

// Producer returns the producer of a claim that was made before, of which so many chunks
// were appended ([Producer.Seq]): for a process that was restarted.
func (s *Session) Producer(c Claim, seq uint64) *Producer {
	return &Producer{s: s, claim: c, seq: seq}
}

func (s *Session) producerPath() string { return "stream/" + url.PathEscape(s.id) }

// Claim returns the producer's claim.
func (p *Producer) Claim() Claim { return p.claim }

// Seq is how many chunks were stored under the claim, as far as the producer knows.
func (p *Producer) Seq() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// Append stores chunks, each once, however often it is sent. After an error that leaves
// the outcome open ([ErrUnreachable], ctx's) the producer keeps the chunks and sends them
// before those of the next call: do not append them again. Any other error, an [*Error],
// means that the chunks which the server had not stored by then are dropped; the codes
// producer_fenced and producer_stopped end the run.
func (p *Producer) Append(ctx context.Context, chunks ...chunk.Chunk) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	added, err := batches(chunks)
	if err != nil {
		return err
	}
	p.pending = append(p.pending, added...)
	return p.flush(ctx)
}

// flush sends what is pending.
func (p *Producer) flush(ctx context.Context) error {
	for len(p.pending) > 0 {
		b := p.pending[0]
		if err := p.send(ctx, b.body); err != nil {
			if definite(err) {
				p.pending = nil
			}
			return err
		}
		p.seq += uint64(b.n)
		p.pending = p.pending[1:]
	}
	return nil
}

// Keep renews the claim and stores nothing, but what an earlier append has left.
func (p *Producer) Keep(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) > 0 {
		return p.flush(ctx)
	}
	return p.send(ctx, []byte("[]"))
}

// KeepAlive renews the claim three times in its TTL until ctx ends, for a producer that
// may be silent for longer. It returns nil when ctx ends, and the error that ended the
// claim.
func (p *Producer) KeepAlive(ctx context.Context) error {
	every := max(time.Duration(p.claim.TTL)*time.Millisecond/3, 100*time.Millisecond)
	for wait.Sleep(ctx, every) == nil {
		if err := p.Keep(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// EndOptions say how a run ended well.
type EndOptions struct {
	FinishReason string          `json:"finishReason,omitempty"` // "" is stop
	Metadata     json.RawMessage `json:"metadata,omitempty"`
}

// End completes the run.
func (p *Producer) End(ctx context.Context, o EndOptions) error { return p.end(ctx, "end", o) }

// FailOptions say why a run failed.
type FailOptions struct {
	Error       string          `json:"error"`
	Code        string          `json:"code,omitempty"`
	Recoverable bool            `json:"recoverable,omitempty"` // trying again may help
	Metadata    json.RawMessage `json:"metadata,omitempty"`
}

// Fail ends the run as failed.
func (p *Producer) Fail(ctx context.Context, o FailOptions) error { return p.end(ctx, "fail", o) }

// Pause lets the run rest until the next claim continues it, in the same message.
func (p *Producer) Pause(ctx context.Context) error { return p.end(ctx, "pause", struct{}{}) }

// end appends the chunk that ends the run. Like all appends it is stored once.
func (p *Producer) end(ctx context.Context, kind string, fields any) error {
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	body := append([]byte(`[{"type":"`+kind+`"`), data[1:]...)
	if len(data) > len("{}") {
		body = append([]byte(`[{"type":"`+kind+`",`), data[1:]...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, batch{append(body, ']'), 1})
	return p.flush(ctx)
}

// send appends a batch at the producer's place, until there is an answer.
func (p *Producer) send(ctx context.Context, body []byte) error {
	h := http.Header{
		"Producer-Epoch": {strconv.FormatUint(p.claim.Epoch, 10)},
		"Producer-Seq":   {strconv.FormatUint(p.seq, 10)},
	}
	return p.s.c.call(ctx, request{method: http.MethodPost, path: p.s.producerPath(), header: h, body: body, session: p.s.id}, nil)
}

// definite reports whether the server has refused an append for good.
func definite(err error) bool { return chunk.CodeOf(err) != ErrUnreachable.Code && !temporary(err) }

// batches encodes chunks into bodies that the server takes.
func batches(chunks []chunk.Chunk) ([]batch, error) {
	var list []batch
	var b bytes.Buffer
	n := 0
	flush := func() {
		if n > 0 {
			b.WriteByte(']')
			list = append(list, batch{bytes.Clone(b.Bytes()), n})
			b.Reset()
			n = 0
		}
	}
	for _, c := range chunks {
		data, err := chunk.Append(nil, c)
		if err != nil {
			return nil, err
		}
		if n == maxChunks || n > 0 && b.Len()+len(data) > maxBody {
			flush()
		}
		if n == 0 {
			b.WriteByte('[')
		} else {
			b.WriteByte(',')
		}
		b.Write(data)
		n++
	}
	flush()
	return list, nil
}
