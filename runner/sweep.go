package runner

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool"
)

// sweeperSession is the hidden session whose latest owner sweeps. It has the name of a
// child agent, so no client can make or read it.
const sweeperSession = "spool-sweeper.0"

// Sweep trims traces, and deletes the sessions whose TTL has passed, until ctx ends. A
// [Runner] does that by itself. Programs without one call Sweep: those whose runs all belong
// to producers. Of all that sweep a store, one does so at a time. Sweep returns ctx's
// error, [spool.ErrClosed] once the logs or the store are closed, or [spool.ErrUnsupported].
func Sweep(ctx context.Context, logs *spool.Logs, o Retention) error {
	s, err := newSweeper(logs, o, nil, func(err error) { logs.Logger().Warn("a sweep failed", "error", err) })
	if err != nil {
		return err
	}
	if s.lister == nil {
		return spool.ErrUnsupported.Because("the store cannot list sessions")
	}
	return s.run(ctx)
}

// sweeper trims and deletes what is too old in a store.
type sweeper struct {
	logs    *spool.Logs
	o       Retention
	leaser  spool.Leaser // the roles are nil where the store does not have them
	lister  spool.Lister
	trimmer spool.Trimmer
	expirer spool.Expirer
	metrics *Metrics // nil: counts nothing
	failed  func(error)
	since   int64 // what was not updated since has no trace left to trim
}

func newSweeper(logs *spool.Logs, o Retention, m *Metrics, failed func(error)) (*sweeper, error) {
	o.fill(logs.Store())
	s := &sweeper{logs: logs, o: o, metrics: m, failed: failed}
	s.leaser, _ = logs.Store().(spool.Leaser)
	s.lister, _ = logs.Store().(spool.Lister)
	s.trimmer, _ = logs.Store().(spool.Trimmer)
	s.expirer, _ = logs.Store().(spool.Expirer)
	if p := logs.Policy(); p.TTL > 0 && p.Of == nil && (s.lister == nil || s.expirer == nil) {
		return nil, spool.ErrUnsupported.Because("the store cannot delete sessions by their age")
	}
	return s, nil
}

// run sweeps until ctx ends or the store is closed, and says which.
func (s *sweeper) run(ctx context.Context) error {
	if s.lister == nil || s.o.Every < 0 {
		return nil
	}
	for {
		if err := s.logs.Sleep(ctx, s.o.Every); err != nil {
			return err
		}
		err := s.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, spool.ErrClosed):
			return err
		case err != nil && !errors.Is(err, spool.ErrSuperseded):
			s.failed(err)
		}
	}
}

// sweep deletes and trims, unless another process has done so a short time ago. It goes on
// past sessions that fail, and returns the first error.
func (s *sweeper) sweep(ctx context.Context) error {
	p, err := s.elect(ctx)
	if p == nil && s.metrics != nil {
		s.metrics.holds(nil)
	}
	if p == nil || err != nil {
		return err
	}
	defer p.leave(ctx)
	s.count("spool_sweeps_total")
	deletes, trims := p.expire(ctx), error(nil)
	if s.trimmer != nil && ctx.Err() == nil && !errors.Is(deletes, spool.ErrSuperseded) {
		trims = p.trim(ctx)
	}
	if err := cmp.Or(deletes, trims, p.measure(ctx)); err != nil {
		return err
	}
	// Whatever was older than this has nothing left to trim.
	s.since = p.begun - (max(s.o.Age, s.o.Grace) + s.o.Every).Milliseconds()
	return nil
}

func (s *sweeper) count(family string) {
	if s.metrics != nil {
		s.metrics.add(family, 1)
	}
}

// pass is one sweep.
type pass struct {
	*sweeper
	lease spool.Lease
	begun int64 // by the store's clock
}

// elect claims the sweepers' session if nobody has swept for half an interval; otherwise
// it returns nil. Each page of a sweep is an append to that session: it says that somebody
// sweeps, and fails once another process has claimed the session. So if two claim it at the
// same moment, the later one sweeps.
func (s *sweeper) elect(ctx context.Context) (*pass, error) {
	page, err := s.lister.Sessions(ctx, spool.SessionQuery{Max: 1})
	if err != nil {
		return nil, err
	}
	p := &pass{sweeper: s, begun: page.Now}
	if s.leaser == nil {
		return p, nil // to sweep twice changes nothing
	}
	last, err := s.lister.Session(ctx, sweeperSession)
	if err == nil && last.Updated > page.Now-s.o.Every.Milliseconds()/2 {
		return nil, nil
	}
	if err != nil && !errors.Is(err, spool.ErrNotFound) {
		return nil, err
	}
	p.lease, err = s.leaser.Claim(ctx, spool.Claim{Owner: s.logs.NewID(), Session: sweeperSession, Force: true, Hidden: true})
	return p, err
}

func (p *pass) leave(ctx context.Context) {
	if p.leaser != nil {
		_ = p.leaser.Release(context.WithoutCancel(ctx), p.lease)
	}
}

// each calls fn for the sessions that q selects, until it returns false, and returns the
// first error.
func (p *pass) each(ctx context.Context, q spool.SessionQuery, fn func(i spool.SessionInfo, now int64) (more bool, err error)) (first error) {
	for q.Max = 1000; ; {
		if p.leaser != nil {
			if _, err := p.logs.Store().Append(ctx, spool.Append{Session: sweeperSession, Epoch: p.lease.Epoch}); err != nil {
				return err
			}
		}
		page, err := p.lister.Sessions(ctx, q)
		if err != nil {
			return err
		}
		for _, i := range page.Sessions {
			more, err := fn(i, page.Now)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil && !errors.Is(err, spool.ErrNotFound) && first == nil {
				first = err
			}
			if !more {
				return first
			}
		}
		if q.After = page.NextAfter; q.After == "" {
			return first
		}
	}
}

// expire deletes the sessions whose TTL has passed. One that is written to meanwhile, or
// has an owner, stays.
func (p *pass) expire(ctx context.Context) error {
	policy := p.logs.Policy()
	idle, some := policy.Idle()
	if !some {
		return nil
	}
	return p.each(ctx, spool.SessionQuery{Idle: idle}, func(i spool.SessionInfo, now int64) (bool, error) {
		if !policy.Expired(i, now) {
			return true, nil
		}
		if p.expirer == nil {
			return false, spool.ErrUnsupported.Because("the store cannot delete sessions by their age")
		}
		err := p.expirer.Expire(ctx, i.Session, policy.For(i.Row).TTL)
		switch {
		case err == nil:
			p.count("spool_sessions_expired_total")
			p.logs.Logger().Info("deleted an idle session", "session", i.Session, "idle", time.Duration(now-i.Updated)*time.Millisecond, "bytes", i.Bytes)
		case errors.Is(err, spool.ErrBusy):
			err = nil
		}
		return true, err
	})
}

// measure has the metrics say how much is left.
func (p *pass) measure(ctx context.Context) error {
	m, ok := p.logs.Store().(spool.Measurer)
	if !ok || p.metrics == nil || ctx.Err() != nil {
		return nil
	}
	u, err := m.Usage(ctx, "")
	if err == nil {
		p.metrics.holds(&u)
	}
	return err
}

// trim trims the traces of the sessions that were updated since the last sweep could have
// trimmed them.
func (p *pass) trim(ctx context.Context) error {
	return p.each(ctx, spool.SessionQuery{}, func(i spool.SessionInfo, now int64) (bool, error) {
		if i.Updated < p.since {
			return false, nil
		}
		floor, err := p.floor(ctx, i, now)
		if err == nil && floor > i.Head.TraceFloor {
			if err = p.trimmer.Trim(ctx, i.Session, floor, 0); err == nil {
				p.count("spool_traces_trimmed_total")
			}
		}
		return true, err
	})
}
