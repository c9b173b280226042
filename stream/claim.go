package stream

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// runs are the external runs that this process knows, by session.
type runs struct {
	logs *spool.Logs
	ttl  time.Duration
	max  int // most sessions known at the same time; 0: no limit, and no run is forgotten before it ends

	mu    sync.Mutex
	slots map[string]*slot
}

// slot is the place of one session's run. One call at a time holds it.
type slot struct {
	turn chan struct{}
	log  *spool.Log
	run  *run // nil: none is known
}

func newRuns(logs *spool.Logs, ttl time.Duration, max int) *runs {
	return &runs{logs: logs, ttl: ttl, max: max, slots: map[string]*slot{}}
}

// hold returns the session's slot, which the caller holds until leave.
func (rs *runs) hold(ctx context.Context, session string) (*slot, error) {
	g, err := rs.logs.Log(session)
	if err != nil {
		return nil, err
	}
	for {
		s := rs.slot(session)
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		rs.mu.Lock()
		known := rs.slots[session] == s
		rs.mu.Unlock()
		if !known {
			<-s.turn // forgotten while we waited
			continue
		}
		if s.log = g; s.run != nil {
			s.run.log = g
		}
		return s, nil
	}
}

func (rs *runs) slot(session string) *slot {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s := rs.slots[session]
	if s == nil {
		if rs.max > 0 && len(rs.slots) >= rs.max {
			clear(rs.slots) // what they know is in the logs, too
		}
		s = &slot{turn: make(chan struct{}, 1)}
		rs.slots[session] = s
	}
	return s
}

// leave releases the slot. A slot whose run is over is forgotten.
func (rs *runs) leave(s *slot) {
	session := s.log.Session()
	s.log = nil
	if s.run != nil {
		if s.run.log = nil; !s.run.open {
			s.run = nil
		}
	}
	if s.run == nil {
		rs.mu.Lock()
		if rs.slots[session] == s {
			delete(rs.slots, session)
		}
		rs.mu.Unlock()
	}
	<-s.turn
}

// terms say what a producer claims a session for.
type terms struct {
	owner     string
	row       spool.Row
	agentType string
	counted   bool // see [run]

	// samePrincipal: the session is new, or of row's principal.
	samePrincipal bool

	// takeOver: an open external run is continued, even if another producer has claimed
	// it. Without takeOver it is left alone while its claim is valid, and it counts as
	// lost once that has expired.
	takeOver bool
	// existing: only take over an open run; open none.
	existing bool
	// resume: the reason that is stored when a paused run is resumed; "" stores none.
	resume string
	// paused: the paused run is resumed even if a message waits.
	paused bool
	// runID is the id of the run, by which a repeat of the claim is known; "" is a new one.
	runID string
}

// errNotOpen: there is no open run to take over.
var errNotOpen = spool.ErrClosed.Because("the stream is not open")

// open claims a session and opens an external run in it. The run answers the message
// that waits, or continues the turn of a run that its producer has paused. It fails
// with [spool.ErrBusy] while an agent's run is open or about to be, or another
// producer's claim is valid.
func (rs *runs) open(ctx context.Context, g *spool.Log, t terms) (*run, error) {
	if t.runID != "" {
		if r, err := rs.again(ctx, g, t); r != nil || err != nil {
			return r, err
		}
	}
	seen, err := standing(ctx, g)
	switch {
	case err != nil:
		return nil, err
	case seen.agents:
		return nil, spool.ErrBusy.With(g.Session(), nil)
	case seen.fresh && seen.first == nil && !t.existing: // before the claim creates the session
		if err := g.CheckQuota(ctx, t.row); err != nil {
			return nil, err
		}
	}
	lease, err := rs.claim(ctx, g, t)
	if err != nil {
		return nil, err
	}
	r := &run{logs: rs.logs, log: g, lease: lease, counted: t.counted, writer: "claim", at: lease.Head.Seq}
	if err := r.begin(ctx, t); err != nil {
		// A claim that can be repeated keeps what it may have stored.
		if t.runID == "" || errors.Is(err, spool.ErrBusy) || errors.Is(err, spool.ErrQuota) {
			_ = r.release(ctx)
		}
		return nil, err
	}
	return r, nil
}

// again returns the open run of a claim that is repeated, or nil if the claim is new. It
// fails with [ErrProducerFenced] if that claim is over.
func (rs *runs) again(ctx context.Context, g *spool.Log, t terms) (*run, error) {
	var made *fold.Run
	err := g.View(ctx, func(f *fold.Fold) error {
		if found := f.Run(t.runID); found != nil {
			seen := *found
			made = &seen
		}
		return nil
	})
	switch {
	case errors.Is(err, spool.ErrNotFound), err == nil && made == nil:
		return nil, nil
	case err != nil:
		return nil, err
	case t.agentType != "" && t.agentType != made.AgentType:
		return nil, chunk.ErrIDConflict.With(g.Session(), nil)
	case made.End != 0:
		return nil, ErrProducerFenced.With(g.Session(), nil)
	}
	head, err := g.Head(ctx)
	if err != nil {
		return nil, err
	}
	lease, err := rs.logs.Claim(ctx, rs.claimOf(g, t))
	switch {
	case errors.Is(err, spool.ErrNothingDue): // another claim has the run
		return nil, ErrProducerFenced.With(g.Session(), nil)
	case err != nil:
		return nil, err
	}
	r := &run{logs: rs.logs, log: g, lease: lease}
	if lease.Epoch != head.Epoch { // another claim had the run, and is over, too
		_ = r.release(ctx)
		return nil, ErrProducerFenced.With(g.Session(), nil)
	}
	return r, fenced(g.Session(), r.adopt(ctx))
}

// adopt takes up the run that an earlier request has opened under this claim.
func (r *run) adopt(ctx context.Context) error {
	r.counted, r.writer, r.at = true, "producer", 0
	return r.look(ctx)
}

// claimOf is the claim for these terms. A store knows the repeat of one that names its run.
func (rs *runs) claimOf(g *spool.Log, t terms) spool.Claim {
	return spool.Claim{ID: t.runID, Owner: t.owner + cmp.Or(t.runID, rs.logs.NewID()), TTL: rs.ttl, Session: g.Session(), Force: t.takeOver,
		Principal: t.row.Principal, SamePrincipal: t.samePrincipal}
}

func (rs *runs) claim(ctx context.Context, g *spool.Log, t terms) (spool.Lease, error) {
	claim := rs.claimOf(g, t)
	lease, err := rs.logs.Claim(ctx, claim)
	if claim.Force || !errors.Is(err, spool.ErrNothingDue) && !errors.Is(err, spool.ErrNotFound) {
		return lease, err
	}
	head, err := g.Head(ctx)
	if err != nil && !errors.Is(err, spool.ErrNotFound) {
		return spool.Lease{}, err
	}
	if err == nil && (!head.Status.Quiet() || head.Pending) {
		return spool.Lease{}, spool.ErrBusy.With(g.Session(), nil)
	}
	claim.Force = true // the session is not due, and no run is open
	return rs.logs.Claim(ctx, claim)
}

// stands is what a session's fold tells about opening an external run there.
type stands struct {
	seq     uint64
	agents  bool  // an agent's run is open, or about to be
	open    bool  // a run is open: last
	in      place // where that stands
	stop    bool
	first   *fold.Command // the message that waits
	fresh   bool          // it is the session's first
	paused  bool          // the last turn's producer has paused it
	turnID  string        // the last turn, its message,
	message string
	since   uint64             // the last sequence before it,
	last    fold.Run           // and its last run
	goesOn  bool               // a command continues that turn, or ends it:
	ends    bool               // the latter
	owed    []chunk.Chunk      // what the open run lacks first,
	lost    *chunk.RunFinished // and its end if its producer was lost
}

func standing(ctx context.Context, g *spool.Log) (stands, error) {
	var s stands
	err := g.View(ctx, func(f *fold.Fold) error {
		s.seq, s.stop, s.goesOn, s.fresh = f.Seq, f.Stop != nil, f.Continue != nil, len(f.Turns) == 0
		turn := f.LastTurn()
		if turn != nil {
			s.turnID, s.message, s.since, s.last = turn.ID, turn.MessageID, turn.Start(), *turn.LastRun()
		}
		external := turn != nil && s.last.Mode == chunk.ModeExternal
		if f.OpenRun() != nil {
			s.agents, s.open, s.in = !external, true, placeOf(f)
			s.owed, s.lost = f.Owed().First(), f.Owed().Lost(ProducerLost, CodeProducerLost)
			return nil
		}
		s.agents = s.goesOn && !external
		s.ends = s.goesOn && (f.Continue.Mode == chunk.ModeStop || f.Continue.Mode == chunk.ModeSuperseded)
		s.paused = external && f.Status == chunk.StatusPaused
		if len(f.Waiting) > 0 {
			first := *f.Waiting[0]
			s.first = &first
		}
		return nil
	})
	if errors.Is(err, spool.ErrNotFound) {
		return stands{fresh: true}, nil
	}
	return s, err
}

// begin brings a claimed session to an open run.
func (r *run) begin(ctx context.Context, t terms) error {
	s, err := standing(ctx, r.log)
	if err != nil {
		return err
	}
	r.at = s.seq
	if s.agents { // it was opened between the look and the claim; its next owner recovers it
		return spool.ErrBusy.With(r.lease.Session, nil)
	}
	if s.open && t.runID != "" && s.last.ID == t.runID { // the same claim, on another node
		return r.adopt(ctx)
	}
	if s.open {
		r.info, r.messageID, r.since, r.in, r.open, r.stop = s.last, s.message, s.since, s.in, true, s.stop
		if t.takeOver {
			return r.takeOver(ctx)
		}
		if err := r.lose(ctx, s); err != nil {
			return err
		}
		if s, err = standing(ctx, r.log); err != nil {
			return err
		}
	}
	if t.existing {
		return errNotOpen
	}
	return r.start(ctx, t, s)
}

// takeOver continues a run that was opened under another claim.
func (r *run) takeOver(ctx context.Context) error {
	err := r.append(ctx, spool.Entry{Base: r.base(0), Row: spool.Row{Status: chunk.StatusActive},
		Chunks: []chunk.Chunk{&chunk.ExecutorSuperseded{Reason: chunk.ManagerForced}}})
	r.writer, r.sent = "manager", 0
	return err
}

// The code and the error of a run whose producer appended nothing until its claim expired.
const (
	CodeProducerLost = "producer_lost"
	ProducerLost     = "the producer was lost"
)

// lose ends a run whose producer's claim has expired. What it had streamed becomes its
// answer.
func (r *run) lose(ctx context.Context, s stands) error {
	chunks := append([]chunk.Chunk{&chunk.ExecutorSuperseded{Reason: chunk.LeaseEnded}}, s.owed...)
	if err := r.append(ctx, spool.Entry{Base: r.base(0), Chunks: chunks}); err != nil {
		return err
	}
	return r.finish(ctx, s.lost, "")
}

// start opens a run.
func (r *run) start(ctx context.Context, t terms, s stands) error {
	r.info = fold.Run{ID: cmp.Or(t.runID, r.logs.NewID()), TurnID: r.logs.NewID(), AgentType: t.agentType, Mode: chunk.ModeExternal}
	r.messageID = r.logs.NewID()
	start := &chunk.RunStarted{Mode: chunk.ModeExternal}
	chunks := []chunk.Chunk{start}
	r.in, r.subs = place{}, map[string]string{}
	switch {
	case s.paused && (t.paused || s.goesOn || s.first == nil):
		r.info.TurnID, r.messageID, r.since, r.subs = s.turnID, s.message, s.since, nil
		r.info.AgentType = cmp.Or(t.agentType, s.last.AgentType)
		r.in = place{number: s.last.Step}
		if strings.HasPrefix(s.last.Suspended, "awaiting_") && s.last.StepID != "" { // its step is still open
			r.in.open, r.in.tools = true, true
		}
		if t.resume != "" {
			chunks = append(chunks, &chunk.RunResumed{Mode: t.resume})
		}
	case s.first != nil:
		r.info.TurnID, start.Commands = s.first.ID, []string{s.first.ID}
		if s.fresh && t.row.Title == "" {
			var err error
			if t.row.Title, err = r.log.NewTitle(ctx, s.first.Message); err != nil {
				return err
			}
		}
	default: // a message that waits was admitted when it came
		if err := r.log.CheckQuota(ctx, t.row); err != nil {
			return err
		}
	}
	start.TurnID, start.MessageID = r.info.TurnID, r.messageID
	if t.counted && !r.in.open {
		r.in = place{number: 1, open: true}
		chunks = append(chunks, r.beginStep())
	}
	t.row.Status = chunk.StatusActive
	if err := r.append(ctx, spool.Entry{Base: r.base(0), Row: t.row, Chunks: chunks}); err != nil {
		return err
	}
	r.open, r.stop, r.info.Start = true, s.stop, r.at-uint64(len(chunks))+1 // a stop may have come before the run
	r.count, r.last = 0, r.info.Start
	if r.counted {
		r.writer, r.sent = "producer", uint64(len(chunks))-1
	} else {
		r.writer, r.sent = "manager", 0
	}
	return nil
}
