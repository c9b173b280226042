package runner

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// producer is what this node knows of a session's external run. All of it comes
// from the log.
type producer struct {
	turn  chan struct{} // held while an append is under way
	epoch uint64
	at    uint64 // sequence up to which the log was read
	count uint64 // the producer's own chunks among them
	last  uint64 // sequence of the last of those
	first uint64 // and of the one whose number was asked for
	tools bool   // the open step is in its tool phase
}

const maxProducers = 4096

// hold returns the session's producer, locked.
func (e *External) hold(ctx context.Context, session string) (*producer, error) {
	e.mu.Lock()
	p := e.producers[session]
	if p == nil {
		if len(e.producers) >= maxProducers {
			clear(e.producers) // it is only a cache
		}
		p = &producer{turn: make(chan struct{}, 1)}
		e.producers[session] = p
	}
	e.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Append writes a producer's chunks. seq is how many chunks this claim has
// appended before; so an append that is sent again never doubles, whole or in
// part, on whatever node. No chunks: it only keeps the claim alive. The result
// names the last chunk's sequence; First is 0 if some were there already.
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
	g, err := e.logs.Log(session)
	if err != nil {
		return spool.Appended{}, err
	}
	p, err := e.hold(ctx, session)
	if err != nil {
		return spool.Appended{}, err
	}
	defer func() { <-p.turn }()
	x, err := e.inspect(ctx, g, p, epoch, 0)
	if err != nil {
		return spool.Appended{}, err
	}
	repeated := spool.Appended{Last: p.last, Head: x.head, Repeated: true}
	switch n := uint64(len(chunks)); {
	case seq > p.count:
		return spool.Appended{}, ErrProducerGap.Because("the next chunk is number "+strconv.FormatUint(p.count, 10)).With(session, nil)
	case n > 0 && seq+n <= p.count:
		return repeated, nil
	case !x.open:
		return spool.Appended{}, ErrProducerFenced.With(session, nil)
	case n > 0:
		chunks = chunks[p.count-seq:]
	}
	lease := spool.Lease{Session: session, Epoch: epoch, TTL: e.ttl}
	w := g.Writer(lease, spool.WriterOptions{Name: "producer", AgentType: x.run.AgentType, RunID: x.run.ID,
		Ordinal: p.count << ordinalShift})
	defer w.Close()
	s := newExternalSession(lease, g, w)
	s.run, s.step, s.tools = x.run, x.step, p.tools
	w.SetStep(s.step)
	switch {
	case x.stop:
		if err := s.settle(ctx, s.info(), &chunk.RunFinished{Outcome: chunk.OutcomeStopped, FinishReason: "other"}); err != nil {
			return spool.Appended{}, fenced(err)
		}
		e.release(ctx, lease)
		return spool.Appended{}, ErrProducerStopped.With(session, nil)
	case len(chunks) == 0:
		leaser, ok := e.logs.Store().(spool.Leaser)
		if !ok {
			return spool.Appended{}, spool.ErrUnsupported
		}
		return repeated, fenced(leaser.Renew(ctx, lease))
	}
	for _, c := range chunks {
		if err := s.write(ctx, c); err != nil {
			return spool.Appended{}, fenced(err)
		}
	}
	if err := w.Flush(ctx); err != nil {
		return spool.Appended{}, fenced(err)
	}
	if s.ended {
		defer e.release(ctx, lease)
	}
	// What is stored decides: another node may have been asked the same.
	before := p.count
	if x, err = e.inspect(ctx, g, p, epoch, before+1); err != nil {
		return spool.Appended{}, err
	}
	if p.count < before+uint64(len(chunks)) {
		return spool.Appended{}, spool.ErrUnavailable.Because("another node is appending the same").With(session, nil)
	}
	res := spool.Appended{Last: p.last, Head: x.head}
	if before == seq {
		res.First = p.first
	}
	return res, nil
}

func (e *External) release(ctx context.Context, lease spool.Lease) {
	if leaser, ok := e.logs.Store().(spool.Leaser); ok {
		_ = leaser.Release(context.WithoutCancel(ctx), lease) // else it expires
	}
}

// inspected is what the log says of an external run.
type inspected struct {
	head spool.Head
	run  fold.Run
	open bool
	stop bool
	step int
}

// inspect brings p to the log's head and says how the claim stands. It notes the
// sequence of the producer's chunk number nth, counted from 1, if it is new.
func (e *External) inspect(ctx context.Context, g *spool.Log, p *producer, epoch, nth uint64) (inspected, error) {
	var x inspected
	head, err := g.Head(ctx)
	if errors.Is(err, spool.ErrNotFound) || err == nil && head.Epoch != epoch {
		return x, ErrProducerFenced.With(g.Session(), nil)
	}
	if err != nil {
		return x, err
	}
	x.head = head
	err = g.View(ctx, func(f *fold.Fold) error {
		turn := f.LastTurn()
		if turn == nil || turn.LastRun().Mode != chunk.ModeExternal {
			return ErrProducerFenced.With(g.Session(), nil)
		}
		x.run, x.open, x.stop = *turn.LastRun(), f.OpenRun() != nil, f.Stop != nil
		x.step = f.Step().Number
		return nil
	})
	if err != nil {
		return x, err
	}
	if p.epoch != epoch {
		p.epoch, p.at, p.count, p.last, p.tools = epoch, x.run.Start, 0, x.run.Start, false
	}
	for {
		records, _, err := e.logs.Store().Read(ctx, g.Session(), p.at, 1000)
		if err != nil || len(records) == 0 {
			return x, err
		}
		for _, r := range records {
			p.at = r.Seq
			switch {
			case r.Agent != g.Session() || x.run.End != 0 && r.Seq > x.run.End:
			case r.Type == chunk.TypeStepStarted:
				p.tools = false
			case r.Type == chunk.TypeAssistantMessage:
				p.tools = true
			case kindOf(r.Type) != notAllowed, r.Type == chunk.TypeRunFinished, r.Type == chunk.TypeRunSuspended:
				p.count++
				p.last = r.Seq
				if p.count == nth {
					p.first = r.Seq
				}
			}
		}
	}
}

// ordinalShift leaves room for what is written between a producer's chunks.
const ordinalShift = 12

func fenced(err error) error {
	if errors.Is(err, spool.ErrSuperseded) {
		return ErrProducerFenced.With("", err)
	}
	return err
}

// kind says what a producer's chunk is to the step that it is in.
type kind int

const (
	notAllowed kind = iota
	words           // of the model phase
	acts            // of the tool phase
	either
	ends // the run
)

func kindOf(t chunk.Type) kind {
	switch t {
	case chunk.TypeTextDelta, chunk.TypeThinking, chunk.TypeToolArgStreamStart, chunk.TypeToolArgStreamDelta,
		chunk.TypeToolArgStreamEnd, chunk.TypeCitation, chunk.TypeFile:
		return words
	case chunk.TypeToolStart, chunk.TypeToolEnd, chunk.TypeToolInputError, chunk.TypeToolOutputError:
		return acts
	case chunk.TypeCustom, chunk.TypeProgress, chunk.TypeStatePatch, chunk.TypeUsage, chunk.TypeError, chunk.TypeOutput:
		return either
	case TypeEnd, TypeFail, TypePause:
		return ends
	}
	return notAllowed
}

// maxDelta keeps a chunk one record: the writer would split a longer one, and
// chunks could no longer be counted.
const maxDelta = 64 << 10

// ParseProducerChunk reads one chunk as a producer sends it, strictly: a field
// that is missing or wrong would be a broken frame at every client. Errors:
// [ErrProducerKind], [chunk.ErrInvalidChunk].
func ParseProducerChunk(data []byte) (chunk.Chunk, error) {
	c, err := chunk.Decode(data)
	if err != nil {
		return nil, err
	}
	switch kindOf(c.ChunkType()) {
	case notAllowed:
		return nil, ErrProducerKind.Because("a producer must not write " + string(c.ChunkType()))
	case ends:
		return c, nil
	}
	return chunk.Parse(data)
}

func check(c chunk.Chunk, last bool) *chunk.Error {
	k := kindOf(c.ChunkType())
	if k == notAllowed || k == ends && !last {
		return ErrProducerKind.Because("a producer must not write " + string(c.ChunkType()) + " here")
	}
	size := 0
	switch c := c.(type) {
	case *chunk.TextDelta:
		size = len(c.Delta)
	case *chunk.Thinking:
		size = len(c.Content)
	case *chunk.ToolArgStreamDelta:
		size = len(c.Delta)
	case *chunk.Unknown:
		if k != ends {
			return chunk.ErrInvalidChunk.Because("a " + string(c.Type) + " has not these fields")
		}
	}
	if size > maxDelta {
		return chunk.ErrTooLarge.Because("a delta has at most 64 KiB")
	}
	if k != ends {
		if invalid, ok := errors.AsType[*chunk.Error](chunk.Validate(c)); ok {
			return invalid
		}
	}
	return nil
}

// externalSession is a session while one append of its producer is written. The server
// adds the steps that a producer need not know of.
type externalSession struct {
	session
	run   fold.Run
	step  int
	tools bool
	ended bool
}

func newExternalSession(lease spool.Lease, g *spool.Log, w *spool.Writer) *externalSession {
	return &externalSession{session: session{lease: lease, log: g, w: w}}
}

func (s *externalSession) info() agent.RunInfo {
	return agent.RunInfo{Session: s.lease.Session, RunID: s.run.ID, TurnID: s.run.TurnID, Mode: s.run.Mode}
}

func (s *externalSession) write(ctx context.Context, c chunk.Chunk) error {
	b := c.ChunkBase()
	*b = chunk.Base{Timestamp: b.Timestamp} // the rest is the server's
	switch k := kindOf(c.ChunkType()); {
	case k == ends:
		return s.end(ctx, c)
	case k == acts && !s.tools:
		if err := s.closeModelPhase(ctx, "tool-calls"); err != nil {
			return err
		}
	case k == words && s.tools:
		if err := s.closeStep(ctx); err != nil {
			return err
		}
		s.step++
		s.tools = false
		s.w.SetStep(s.step)
		if err := s.w.Append(ctx, &chunk.StepStarted{StepID: stepID(s.run.ID, s.step)}); err != nil {
			return err
		}
	}
	return s.w.Append(ctx, c)
}

func (s *externalSession) closeModelPhase(ctx context.Context, finish string) error {
	s.tools = true
	return s.add(ctx, func(f *fold.Fold) []chunk.Chunk { return f.Owed().CloseModelPhase(finish, nil) })
}

func (s *externalSession) closeStep(ctx context.Context) error {
	return s.add(ctx, func(f *fold.Fold) []chunk.Chunk { return f.Owed().CloseStep("") })
}

func (s *externalSession) add(ctx context.Context, what func(*fold.Fold) []chunk.Chunk) error {
	if err := s.w.Flush(ctx); err != nil {
		return err
	}
	var chunks []chunk.Chunk
	err := s.log.View(ctx, func(f *fold.Fold) error {
		chunks = what(f)
		return nil
	})
	if err != nil {
		return err
	}
	return s.w.Append(ctx, chunks...)
}

// ending is what a producer says at the end.
type ending struct {
	FinishReason string          `json:"finishReason"`
	Error        string          `json:"error"`
	Code         string          `json:"code"`
	Recoverable  bool            `json:"recoverable"`
	Metadata     json.RawMessage `json:"metadata"`
}

func (s *externalSession) end(ctx context.Context, c chunk.Chunk) error {
	var said ending
	if u, ok := c.(*chunk.Unknown); ok {
		if err := json.Unmarshal(u.Raw, &said); err != nil {
			return chunk.ErrInvalidChunk.With(s.lease.Session, err)
		}
	}
	s.ended = true
	end := &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop", Metadata: said.Metadata}
	switch said.FinishReason {
	case "stop", "length", "content-filter", "tool-calls", "error", "other":
		end.FinishReason = said.FinishReason
	}
	if c.ChunkType() == TypeFail {
		end.Outcome, end.FinishReason = chunk.OutcomeFailed, "error"
		end.Error, end.Code, end.Recoverable = said.Error, said.Code, said.Recoverable
		if end.Error == "" {
			end.Error = "the producer failed"
		}
		return s.settle(ctx, s.info(), end)
	}
	if !s.tools {
		if err := s.closeModelPhase(ctx, end.FinishReason); err != nil {
			return err
		}
	}
	if err := s.closeStep(ctx); err != nil {
		return err
	}
	if c.ChunkType() == TypePause {
		s.w.SetStep(0)
		_, err := s.w.Commit(ctx, spool.Row{Status: chunk.StatusPaused}, nil,
			&chunk.RunSuspended{Kind: chunk.SuspendedInterrupted, StepID: stepID(s.run.ID, s.step), Metadata: said.Metadata})
		return err
	}
	return s.settle(ctx, s.info(), end)
}
