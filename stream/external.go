package stream

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/commandid"
)

// ExternalOptions are the settings of [External]; the zero value works.
type ExternalOptions struct {
	// TTL is how long a claim lasts without an append. 0: 30 s.
	TTL time.Duration
}

// External lets other processes write runs: programs in other languages that talk HTTP
// to this one. Such a run has the mode "external". Each request of a run may go to
// another node: all state is in the log, and what a node remembers only saves reading
// it.
type External struct{ runs *runs }

const maxProducers = 4096

// NewExternal returns an External that writes to these logs.
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
	Epoch     uint64        `json:"epoch"` // to be sent with every append
	RunID     string        `json:"runId"`
	TurnID    string        `json:"turnId"`
	MessageID string        `json:"messageId"`
	TTL       time.Duration `json:"-"`
}

// ExternalClaim says who claims a session, and for what.
type ExternalClaim struct {
	Row       spool.Row // of the session, if the claim creates it; its principal claims
	AgentType string    // of the producer's agent
	// CommandID is the key by which a repeat of the claim is known, in this session and for
	// this principal. "": each call is a claim of its own.
	CommandID string
}

// Claim opens an external run in a session, which need not exist. If a user's message
// waits there, the run answers it. If the last run was paused by its producer, the new
// run continues its turn. A claim that is repeated with its command id returns its run
// again, and renews the claim.
//
// Errors: [spool.ErrBusy] while an agent's run is open or about to be, or another claim on
// an external run is valid; [spool.ErrQuota] if it would begin a turn and the policy does
// not allow one; [spool.ErrExists] if the session exists and has another principal than
// the claim's row. Of a repeat: [ErrProducerFenced] if the claim is over, and
// [chunk.ErrIDConflict] if its agent was another one.
func (e *External) Claim(ctx context.Context, session string, c ExternalClaim) (ExternalRun, error) {
	if err := chunk.CheckSessionID(session); err != nil {
		return ExternalRun{}, err
	}
	t := terms{owner: "producer-", row: c.Row, agentType: c.AgentType, counted: true, samePrincipal: true}
	if c.CommandID != "" {
		if err := chunk.CheckID(c.CommandID); err != nil {
			return ExternalRun{}, err
		}
		t.runID = commandid.New("claim", session, c.Row.Principal, c.CommandID)
	}
	s, err := e.runs.hold(ctx, session)
	if err != nil {
		return ExternalRun{}, err
	}
	defer e.runs.leave(s)
	r, err := e.runs.open(ctx, s.log, t)
	if err != nil {
		return ExternalRun{}, err
	}
	s.run = r
	return ExternalRun{Session: session, Epoch: r.lease.Epoch, TTL: e.runs.ttl,
		RunID: r.info.ID, TurnID: r.info.TurnID, MessageID: r.messageID}, nil
}

// Append writes a producer's chunks. seq is the number of chunks that this claim has
// appended before. With it, an append that is repeated, on any node, never stores a
// chunk twice. An append without chunks only renews the claim. The result names the
// last chunk's sequence; its First is 0 if some of the chunks were stored before.
//
// On a node that knows the claim, deltas cost one append to the store.
//
// Errors: [ErrProducerGap], [ErrProducerFenced], [ErrProducerStopped],
// [ErrProducerKind], [chunk.ErrInvalidChunk], [chunk.ErrTooLarge], or the store's,
// after which the producer repeats the same append.
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
		r = &run{logs: e.runs.logs, log: s.log, counted: true, writer: "producer", behind: true,
			lease: spool.Lease{Session: session, Epoch: epoch, TTL: e.runs.ttl}}
	}
	n := uint64(len(chunks))
	if seq > r.count || n > 0 && seq < r.count {
		r.behind = true // another node may have appended
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
	if err := r.checkPatches(ctx, session, chunks[skip:]...); err != nil {
		return spool.Appended{}, err
	}
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

// keep renews the claim.
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
	r.nth = r.count + 1
	for tries := 0; ; tries++ {
		n := uint64(len(chunks))
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
		// The log decides: another node may have handled the same append.
		if err = r.catchUp(ctx); err != nil {
			return spool.Appended{}, err
		}
		switch {
		case r.count >= before.count+n:
			return spool.Appended{First: r.first, Last: r.last, Head: r.log.Known()}, r.obey(ctx)
		case r.count < before.count || !r.open || tries == 3:
			return spool.Appended{}, overtaken(r.lease.Session)
		}
		// A command or the like came in between, and some of the chunks may be stored.
		chunks = chunks[r.count-before.count:]
		if err = r.obey(ctx); err != nil {
			return spool.Appended{}, err
		}
	}
}

// post is a producer's append in progress. The run adds the step chunks that producers
// do not write.
type post struct {
	*run
	pending []chunk.Chunk // not stored yet
	loose   bool          // they include chunks other than acts
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
		if p.loose && p.in.moveFor(k, 0) != (move{}) { // the assistant message refers to the sequences of its parts
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
		if err := p.fill(ctx, c, p.pending); err != nil {
			return err
		}
		lead, err := p.lead(ctx, c)
		if err != nil {
			return err
		}
		p.pending = append(append(p.pending, lead...), c)
		b.Step = p.in.number
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

// ending is the chunk with which a producer ends its run.
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
		return p.suspend(ctx, &chunk.RunSuspended{Kind: chunk.SuspendedInterrupted, StepID: stepID(p.info.ID, p.in.number), Metadata: said.Metadata})
	}
	return p.finish(ctx, end, "")
}
