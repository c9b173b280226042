package stream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Waiting is a stream in which somebody waits for an answer.
type Waiting struct {
	StreamID string
	// Message is the user's message to answer; of a turn that is answered again, the one
	// that opened it. It is nil if the stream was paused and now goes on, because what it
	// waited for has come.
	Message *chunk.Message

	m     *Manager
	lease spool.Lease
}

// Release leaves the stream to others, unless a writer was created meanwhile. A caller
// that creates no writer calls it; else the stream waits until the manager's lease on it
// expires.
func (w *Waiting) Release(ctx context.Context) error {
	leaser, ok := w.m.logs.Store().(spool.Leaser)
	if !ok {
		return spool.ErrUnsupported
	}
	return leaser.Release(ctx, w.lease)
}

// AwaitMessage waits until a stream needs an answer, claims it, and returns it. The
// caller answers with [Manager.CreateWriter] and [Manager.EndStream]. Each stream is
// given to one caller at a time, in this process and in all others. agents are the
// agent types of the streams that the caller answers, as whoever created a session has
// named them; sessions that name none are everybody's, and without agents all are.
//
// A stop of a paused stream, and the end of a run whose producer was lost, need no
// answer: AwaitMessage settles them. It leaves agents' runs to their runners. Errors: ctx's,
// [spool.ErrClosed], or [spool.ErrUnsupported] for a store without leases; others of the
// store are waited out.
func (m *Manager) AwaitMessage(ctx context.Context, agents ...string) (*Waiting, error) {
	claim := spool.Claim{Owner: "stream-manager:" + m.logs.NewID(), TTL: m.runs.ttl, Agents: agents}
	for misses := 0; ; misses++ {
		if misses > 2 { // others were faster, the session is an agent's, or the store is away
			if err := m.logs.Sleep(ctx, min(10*time.Millisecond<<min(misses, 9), 2*time.Second)); err != nil {
				return nil, err
			}
		}
		lease, err := m.logs.Claim(ctx, claim)
		if errors.Is(err, spool.ErrNothingDue) {
			begun := m.logs.Now()
			if err = m.logs.AwaitDue(ctx, claim); err == nil {
				if m.logs.Now().After(begun) {
					misses = 0
				}
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, spool.ErrClosed), errors.Is(err, spool.ErrUnsupported):
			return nil, err
		case err != nil:
			continue
		}
		w, err := m.serve(ctx, lease)
		if w != nil {
			return w, nil
		}
		if err == nil {
			misses = 0
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// serve does in a claimed stream what needs no producer. It returns the stream if it
// needs one. It fails with [spool.ErrBusy] for a stream that is an agent's.
func (m *Manager) serve(ctx context.Context, lease spool.Lease) (*Waiting, error) {
	waiting := &Waiting{StreamID: lease.Session, m: m, lease: lease}
	s, err := m.runs.hold(ctx, lease.Session)
	if err != nil {
		return nil, errors.Join(err, waiting.Release(context.WithoutCancel(ctx)))
	}
	defer m.runs.leave(s)
	s.run = nil // what this manager knew of the stream was claimed by the lease
	r := &run{logs: m.logs, log: s.log, lease: lease, writer: "await", at: lease.Head.Seq}
	needed, err := r.need(ctx, waiting)
	switch {
	case needed && err == nil:
		return waiting, nil
	case errors.Is(err, spool.ErrBusy):
		m.logs.Go(func() {
			_ = m.logs.Sleep(ctx, time.Second) // else the next claim would be for this stream again, and for no other
			_ = waiting.Release(context.WithoutCancel(ctx))
		})
		return nil, err
	}
	return nil, errors.Join(err, waiting.Release(context.WithoutCancel(ctx)))
}

// need settles what needs no producer, and reports whether the stream needs one.
func (r *run) need(ctx context.Context, w *Waiting) (bool, error) {
	s, err := standing(ctx, r.log)
	if err != nil {
		return false, err
	}
	r.at = s.seq
	if !s.agents && s.open {
		if err := r.begin(ctx, terms{existing: true}); !errors.Is(err, errNotOpen) {
			return false, err
		}
		if s, err = standing(ctx, r.log); err != nil {
			return false, err
		}
	}
	switch {
	case s.agents:
		return false, spool.ErrBusy.With(r.lease.Session, nil)
	case s.paused && s.ends: // by a stop, or for the message that waits
		if err := r.start(ctx, terms{paused: true, agentType: s.last.AgentType}, s); err != nil {
			return false, err
		}
		if err := r.finish(ctx, &chunk.RunFinished{Outcome: chunk.OutcomeStopped, FinishReason: "other"}, ""); err != nil {
			return false, err
		}
		return r.need(ctx, w)
	case s.paused && s.goesOn:
		return true, nil
	case s.first != nil:
		w.Message = s.first.Message
		if w.Message == nil {
			w.Message, err = r.lastUserMessage(ctx)
		}
		return true, err
	}
	return false, r.append(ctx, spool.Entry{Settle: &spool.Settle{Seen: s.seq}})
}

// lastUserMessage is the message that a turn without one of its own answers again.
func (r *run) lastUserMessage(ctx context.Context) (last *chunk.Message, err error) {
	err = r.log.View(ctx, func(f *fold.Fold) error {
		for _, m := range slices.Backward(f.Messages) {
			if m.Role == chunk.RoleUser {
				copied := m.Clone()
				last = &copied
				return nil
			}
		}
		return nil
	})
	return last, err
}
