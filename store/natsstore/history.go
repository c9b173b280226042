package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spool-run/spool"
)

// history is how this process notices that the server has lost messages: a stream that was
// made again, or whose last sequence is below one that the process was told. All sessions
// get a new generation then, which is a message of the same stream.
type history struct {
	mu         sync.Mutex
	created    time.Time
	last       uint64 // the largest sequence that this process was told
	generation uint64
	unsettled  bool // after a reconnect, until the stream was examined
}

func (h *history) see(seq uint64, log bool) {
	if !log {
		return
	}
	h.mu.Lock()
	h.last = max(h.last, seq)
	h.mu.Unlock()
}

func (h *history) told() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

func (h *history) now() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generation
}

// disconnected is called when the connection breaks.
func (s *Store) disconnected() {
	s.unsettle()
	s.link.broken()
}

func (s *Store) unsettle() {
	s.history.mu.Lock()
	s.history.unsettled = true
	s.history.mu.Unlock()
}

// reconnected is called when there is a connection again, perhaps to another server.
func (s *Store) reconnected() {
	s.unsettle()
	select {
	case s.look <- struct{}{}: // others may wait to be told
	default:
	}
	s.hub.Resync()
}

// settled examines the stream if that is due. Every call waits for it.
func (s *Store) settled(ctx context.Context) error {
	h := &s.history
	h.mu.Lock()
	due := h.unsettled
	h.mu.Unlock()
	if !due {
		return nil
	}
	return s.examine(ctx)
}

// lost is for an acknowledgement that shows a loss. The message is of the generation before,
// so its outcome is as good as unknown.
func (s *Store) lost(ctx context.Context, session string) error {
	s.reconnected()
	if err := s.settled(ctx); err != nil {
		return err
	}
	return spool.ErrUnavailable.Because("the server has lost messages").With(session, nil)
}

// examine compares the stream with what this process was told, and sets the clock.
func (s *Store) examine(ctx context.Context) error {
	h := &s.history
	h.mu.Lock()
	told, created, generation := h.last, h.created, h.generation
	h.mu.Unlock()
	i, sent, err := s.info(ctx)
	if err != nil {
		return s.failed(ctx, "", err)
	}
	s.server.set(i.Now, sent)
	stored, seq, err := s.generation(ctx)
	if err != nil {
		return s.failed(ctx, "", err)
	}
	isLoss := !created.IsZero() && !created.Equal(i.Created)
	if !isLoss && i.State.Last < told {
		// A leader that was just elected may not have applied all that it has. What it
		// stores now comes after it.
		if i.State.Last, err = s.probe(ctx); err != nil {
			return s.failed(ctx, "", err)
		}
		isLoss = i.State.Last <= told
	}
	for (isLoss && stored <= generation) || stored < generation {
		next := max(stored, generation) + 1
		if seq, err = s.setGeneration(ctx, next, seq); err == nil {
			stored = next
		} else if !errors.Is(err, errConflict) {
			return s.failed(ctx, "", err)
		} else if stored, seq, err = s.generation(ctx); err != nil {
			return s.failed(ctx, "", err)
		}
	}
	h.mu.Lock()
	if isLoss || stored > h.generation {
		h.last = i.State.Last
	}
	changed := stored > h.generation
	h.created, h.generation, h.unsettled = i.Created, max(h.generation, stored), false
	h.mu.Unlock()
	if changed && !created.IsZero() {
		s.index.renew()
		s.hub.Resync()
	}
	return nil
}

func (s *Store) generation(ctx context.Context) (generation, seq uint64, err error) {
	m, err := s.get(ctx, s.log, query{Last: s.prefix + ".generation"})
	if errors.Is(err, errNoMessage) {
		return 0, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(m.data, &generation)
	}
	return generation, m.seq, err
}

func (s *Store) setGeneration(ctx context.Context, generation, after uint64) (uint64, error) {
	until, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	data, err := json.Marshal(generation)
	if err != nil {
		return 0, err
	}
	ack, err := s.js.PublishMsg(until, &nats.Msg{Subject: s.prefix + ".generation", Data: data},
		jetstream.WithExpectLastSequencePerSubject(after), jetstream.WithRetryAttempts(0))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, errConflict
	}
	if err != nil {
		return 0, err
	}
	_ = s.nc.Publish(s.prefix+".raised", nil)
	return ack.Sequence, nil
}
