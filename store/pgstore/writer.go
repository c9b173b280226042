package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

const (
	queueLength = 1024
	groupWeight = 4000 // records in one commit
	groupBytes  = 8 << 20
)

// request is one caller's part of a commit.
type request struct {
	ctx           context.Context
	need          need
	weight, bytes int
	fn            func(t *tx) error
	err           error
	done          chan struct{}
}

// writer appends: one commit for all that is queued.
type writer struct {
	s       *Store
	queue   chan *request
	stopped chan struct{}
}

func newWriter(s *Store) *writer {
	return &writer{s: s, queue: make(chan *request, queueLength), stopped: make(chan struct{})}
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		select {
		case r := <-w.queue:
			w.serve(w.drain(r))
		case <-w.s.ctx.Done():
			for { // what was accepted before
				select {
				case r := <-w.queue:
					w.serve(w.drain(r))
				default:
					return
				}
			}
		}
	}
}

// drain takes what is queued, up to a limit.
func (w *writer) drain(r *request) []*request {
	group, weight, bytes := []*request{r}, r.weight, r.bytes
	for weight < groupWeight && bytes < groupBytes {
		select {
		case r := <-w.queue:
			group = append(group, r)
			weight += r.weight
			bytes += r.bytes
		default:
			return group
		}
	}
	return group
}

// serve commits a group. If the server refuses it as a whole, it tries each request alone, so
// that no request fails because of another.
func (w *writer) serve(group []*request) {
	err := w.commit(group)
	for _, r := range group {
		if err != nil && len(group) > 1 && refused(err) {
			if alone := w.commit([]*request{r}); alone != nil {
				r.err = w.outcome(alone)
			}
		} else if err != nil {
			r.err = w.outcome(err)
		}
		close(r.done)
	}
}

// outcome is the error of a request whose transaction failed.
func (w *writer) outcome(err error) error {
	if refused(err) {
		return unstored(err)
	}
	return translate(err)
}

// commit runs the requests in one transaction. An error of a single request is in its err.
func (w *writer) commit(group []*request) error {
	// The callers' contexts do not count: one that leaves must not break the others' commit.
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	needs := make([]need, len(group))
	for i, r := range group {
		needs[i] = r.need
	}
	for n := 1; ; n++ {
		sent, broken, err := w.attempt(ctx, group, needs)
		if err == nil || chunk.CodeOf(err) != "" || n == tries || ctx.Err() != nil || !rolledBack(err) && (sent || !broken) {
			return err
		}
	}
}

// attempt is a try of commit. sent: the commit was sent; broken: the connection has ended.
func (w *writer) attempt(ctx context.Context, group []*request, needs []need) (sent, broken bool, err error) {
	c, err := w.s.writing.Acquire(ctx)
	if err != nil {
		return false, false, err
	}
	t := w.s.begin(ctx, c.Conn())
	if err = t.lock(true, needs); err == nil {
		for _, r := range group {
			if r.err = r.ctx.Err(); r.err == nil {
				r.err = r.fn(t)
			}
		}
		err = t.commit()
	}
	broken = c.Conn().IsClosed()
	if !broken && c.Conn().PgConn().TxStatus() != 'I' {
		_, _ = c.Conn().Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol)
	}
	c.Release()
	return t.sent, broken, err
}

// write runs fn in the writer's next transaction and returns once it is committed. fn may run
// more than once. An error of fn fails only this call.
func (s *Store) write(ctx context.Context, n need, weight, bytes int, fn func(t *tx) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	r := &request{ctx: ctx, need: n, weight: weight, bytes: bytes, fn: fn, done: make(chan struct{})}
	select {
	case s.w.queue <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return spool.ErrClosed
	}
	select {
	case <-r.done:
		return r.result(ctx)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.w.stopped:
		select {
		case <-r.done:
			return r.result(ctx)
		default:
			return spool.ErrClosed
		}
	}
}

func (r *request) result(ctx context.Context) error {
	if r.err != nil && ctx.Err() != nil && errors.Is(r.err, ctx.Err()) {
		return ctx.Err()
	}
	return r.err
}
