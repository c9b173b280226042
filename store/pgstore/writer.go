package pgstore

import (
	"context"
	"errors"
	"slices"

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
	append        *spool.Append // nil: fn
	out           spool.Appended
	fn            func(t *tx) error
	err           error
	done          chan struct{}
}

// writer appends: one commit for all that is queued.
type writer struct {
	s       *Store
	queue   chan *request
	stopped chan struct{}
	known   remembered
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

// serve commits a group: its appends with one statement, and the rest in a transaction.
func (w *writer) serve(group []*request) {
	rest := slices.DeleteFunc(slices.Clone(group), func(r *request) bool { return r.append != nil })
	if len(rest) > 0 {
		w.finish(rest, w.attempt)
	}
	if len(rest) < len(group) {
		w.finish(slices.DeleteFunc(group, func(r *request) bool { return r.append == nil }), w.appendGroup)
	}
}

// attempt is a try of commit.
type attempt func(ctx context.Context, c *pgx.Conn, group []*request) (sent bool, err error)

// finish commits requests. If the server refuses them as a whole, it tries each alone, so that
// none fails because of another.
func (w *writer) finish(group []*request, try attempt) {
	err := w.commit(group, try)
	for _, r := range group {
		if err != nil && len(group) > 1 && refused(err) {
			if alone := w.commit([]*request{r}, try); alone != nil {
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
func (w *writer) commit(group []*request, try attempt) error {
	// The callers' contexts do not count: one that leaves must not break the others' commit.
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for n := 1; ; n++ {
		c, err := w.s.writing.Acquire(ctx)
		sent, broken := false, false
		if err == nil {
			sent, err = try(ctx, c.Conn(), group)
			broken = c.Conn().IsClosed()
			if !broken && c.Conn().PgConn().TxStatus() != 'I' {
				_, _ = c.Conn().Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol)
			}
			c.Release()
		}
		if err == nil || chunk.CodeOf(err) != "" || n == tries || ctx.Err() != nil || !rolledBack(err) && (sent || !broken) {
			return err
		}
	}
}

// attempt runs what is not an append.
func (w *writer) attempt(ctx context.Context, c *pgx.Conn, group []*request) (sent bool, err error) {
	needs := make([]need, len(group))
	for i, r := range group {
		needs[i] = r.need
	}
	t := w.s.begin(ctx, c)
	if err = t.lock(true, needs); err == nil {
		for _, r := range group {
			if r.err = r.ctx.Err(); r.err == nil {
				r.err = r.fn(t)
			}
		}
		err = t.commit()
	}
	return t.sent, err
}

// write runs fn in the writer's next transaction and returns once it is committed. fn may run
// more than once. An error of fn fails only this call.
func (s *Store) write(ctx context.Context, n need, fn func(t *tx) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.enqueue(&request{ctx: ctx, need: n, weight: 1, fn: fn})
}

// enqueue gives a request to the writer and returns once it is done.
func (s *Store) enqueue(r *request) error {
	ctx := r.ctx
	r.done = make(chan struct{})
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
