package stream

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// ExternalOptions are the settings of [External]; the zero value works.
type ExternalOptions struct {
	// TTL is how long a claim lasts without an append. 0: 30 s.
	TTL time.Duration
}

// External lets processes outside write runs: programs in other languages that
// speak HTTP to this one. Such a run has the mode "external". Another node may
// serve it at every request: the log is the only memory, and what is known here
// only spares to read it.
type External struct{ runs *runs }

const maxProducers = 4096

// NewExternal returns the producers' door to these logs.
func NewExternal(logs *spool.Logs, o *ExternalOptions) *External {
	ttl := spool.DefaultLeaseTTL
	if o != nil && o.TTL > 0 {
		ttl = o.TTL
	}
	return &External{newRuns(logs, ttl, maxProducers)}
}

// ExternalRun is a producer's claim.
type ExternalRun struct {
	Session   string        `json:"session"`
	Epoch     uint64        `json:"epoch"` // goes with every append
	RunID     string        `json:"runId"`
	TurnID    string        `json:"turnId"`
	MessageID string        `json:"messageId"`
	TTL       time.Duration `json:"-"`
}

// Claim opens an external run in a session, which need not exist. If a user's
// message waits there, the run answers it; if the last run was paused by its
// producer, the turn goes on. It fails with [spool.ErrBusy] while an agent's run is
// open or about to be, or another claim on an external run lives.
func (e *External) Claim(ctx context.Context, session string, row spool.Row, agentType string) (ExternalRun, error) {
	if err := chunk.CheckSessionID(session); err != nil {
		return ExternalRun{}, err
	}
	s, err := e.runs.hold(ctx, session)
	if err != nil {
		return ExternalRun{}, err
	}
	defer e.runs.leave(s)
	r, err := e.runs.open(ctx, s.log, terms{owner: "producer-", row: row, agentType: agentType, numbered: true})
	if err != nil {
		return ExternalRun{}, err
	}
	s.run = r
	return ExternalRun{Session: session, Epoch: r.lease.Epoch, TTL: e.runs.ttl,
		RunID: r.info.ID, TurnID: r.info.TurnID, MessageID: r.messageID}, nil
}

// Append writes a producer's chunks. seq is how many chunks this claim has
// appended before; so an append that is sent again never doubles, whole or in
// part, on whatever node. No chunks: it only keeps the claim alive. The result
// names the last chunk's sequence; First is 0 if some were there already.
//
// Where the claim is known, deltas cost the store one append and nothing else.
//
// Errors: [ErrProducerGap], [ErrProducerFenced], [ErrProducerStopped],
// [ErrProducerKind], [chunk.ErrInvalidChunk], [chunk.ErrTooLarge], or the
// store's, after which the same append is sent again.
func (e *External) Append(ctx context.Context, session string, epoch, seq uint64, chunks []chunk.Chunk) (spool.Appended, error) {
	for i, c := range chunks {
		if err := check(c, i == len(chunks)-1); err != nil {
			return spool.Appended{}, err.With(session, nil)
		}
	}
	s, err := e.runs.hold(ctx, session)
	if err != nil {
		return spool.Appended{}, err
	}
	defer e.runs.leave(s)
	r := s.run
	if r == nil || r.lease.Epoch != epoch {
		r = &run{logs: e.runs.logs, log: s.log, numbered: true, writer: "producer", behind: true,
			lease: spool.Lease{Session: session, Epoch: epoch, TTL: e.runs.ttl}}
	}
	n := uint64(len(chunks))
	if seq > r.count || n > 0 && seq < r.count {
		r.behind = true // another node has had it, perhaps
	}
	if err := r.catchUp(ctx); err != nil {
		return spool.Appended{}, fenced(session, err)
	}
	s.run = r
	repeated := spool.Appended{Last: r.last, Head: s.log.Known(), Repeated: true}
	switch {
	case seq > r.count:
		return spool.Appended{}, ErrProducerGap.Because("the next chunk is number "+strconv.FormatUint(r.count, 10)).With(session, nil)
	case n > 0 && seq+n <= r.count:
		return repeated, nil
	case !r.open:
		return spool.Appended{}, ErrProducerFenced.With(session, nil)
	}
	if err := r.obey(ctx); err != nil {
		return spool.Appended{}, fenced(session, err)
	}
	if n == 0 {
		return repeated, fenced(session, r.keep(ctx))
	}
	skip := r.count - seq
	res, err := r.post(ctx, chunks[skip:])
	if skip > 0 {
		res.First = 0
	}
	return res, fenced(session, err)
}

func fenced(session string, err error) error {
	if errors.Is(err, spool.ErrSuperseded) {
		return ErrProducerFenced.With(session, nil)
	}
	return err
}

// keep keeps the claim alive.
func (r *run) keep(ctx context.Context) error {
	if err := r.append(ctx, spool.Entry{}); err != nil {
		return err
	}
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	return r.obey(ctx)
}

// post appends the next chunks of a producer whose chunks are counted.
func (r *run) post(ctx context.Context, chunks []chunk.Chunk) (spool.Appended, error) {
	n := uint64(len(chunks))
	r.nth = r.count + 1
	before := *r
	p := post{run: r, pending: make([]chunk.Chunk, 0, n+2)}
	err := p.write(ctx, chunks)
	if err == nil && !r.open {
		defer func() { _ = r.release(ctx) }()
	}
	if err == nil && !r.behind {
		return spool.Appended{First: r.first, Last: r.last, Head: r.log.Known()}, nil
	}
	*r = before
	r.behind = true
	if err != nil && !errors.Is(err, errOvertaken) && !errors.Is(err, chunk.ErrInvalid) {
		return spool.Appended{}, err
	}
	// What is stored decides: another node may have been asked the same.
	if err = r.catchUp(ctx); err != nil {
		return spool.Appended{}, err
	}
	if r.count < before.count+n {
		return spool.Appended{}, overtaken(r.lease.Session)
	}
	return spool.Appended{First: r.first, Last: r.last, Head: r.log.Known()}, r.obey(ctx)
}

// post is one append of a producer under way. The run adds the steps that its
// producer need not know of.
type post struct {
	*run
	pending []chunk.Chunk // not stored yet
	loose   bool          // others than acts are among them
}

func (p *post) write(ctx context.Context, chunks []chunk.Chunk) error {
	for _, c := range chunks {
		b := c.ChunkBase()
		*b = chunk.Base{Timestamp: b.Timestamp} // the rest is the server's
		k := kindOf(c.ChunkType())
		if k == ends {
			if err := p.flush(ctx); err != nil {
				return err
			}
			return p.end(ctx, c)
		}
		if p.loose && p.leads(k) { // it tells where the parts began that it closes
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
		lead, err := p.lead(ctx, k)
		if err != nil {
			return err
		}
		p.pending = append(append(p.pending, lead...), c)
		b.Step = p.step
		p.loose = p.loose || k != acts
	}
	return p.flush(ctx)
}

func (p *post) flush(ctx context.Context) error {
	if len(p.pending) == 0 {
		return nil
	}
	err := p.append(ctx, spool.Entry{Base: p.base(0), Chunks: p.pending})
	p.pending, p.loose = p.pending[:0], false
	return err
}

// ending is what a producer says at the end.
type ending struct {
	FinishReason string          `json:"finishReason"`
	Error        string          `json:"error"`
	Code         string          `json:"code"`
	Recoverable  bool            `json:"recoverable"`
	Metadata     json.RawMessage `json:"metadata"`
}

// end ends or pauses the run.
func (p *post) end(ctx context.Context, c chunk.Chunk) error {
	var said ending
	if u, ok := c.(*chunk.Unknown); ok {
		if err := json.Unmarshal(u.Raw, &said); err != nil {
			return chunk.ErrInvalidChunk.With(p.lease.Session, err)
		}
	}
	end := &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop", Metadata: said.Metadata}
	switch said.FinishReason {
	case "stop", "length", "content-filter", "tool-calls", "error", "other":
		end.FinishReason = said.FinishReason
	}
	failed := c.ChunkType() == TypeFail
	if failed {
		end.Outcome, end.FinishReason = chunk.OutcomeFailed, "error"
		end.Error, end.Code, end.Recoverable = said.Error, said.Code, said.Recoverable
		if end.Error == "" {
			end.Error = "the producer failed"
		}
	} else if err := p.complete(ctx, end.FinishReason); err != nil {
		return err
	}
	if c.ChunkType() == TypePause {
		return p.suspend(ctx, &chunk.RunSuspended{Kind: chunk.SuspendedInterrupted, StepID: stepID(p.info.ID, p.step), Metadata: said.Metadata})
	}
	return p.finish(ctx, end, "")
}
