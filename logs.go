package spool

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/budget"
	"github.com/spool-run/spool/internal/outage"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/internal/uuid"
	"github.com/spool-run/spool/internal/wait"
)

// Options are the injected functions and the limits of a process's [Logs]. The zero
// value works.
type Options struct {
	// Now is the clock, for timestamps and for how long an append of unknown outcome is
	// repeated. nil: time.Now.
	Now func() time.Time
	// Sleep waits for d or ctx's end, between retries. nil: a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// NewID makes ids of runs, messages and steps. nil: UUIDs of version 7.
	NewID func() string
	// Go starts a goroutine. nil: the go statement.
	Go func(func())
	// Logger gets the failures that no caller is told of. nil: discard.
	Logger *slog.Logger
	// TailBytes bounds the recent records of one session that all its readers
	// share, and the latest frames of each of its projections. 0: 1 MiB.
	TailBytes int
	// CacheBytes bounds the recent records and frames of all sessions in memory. While
	// there are more, no session gets more than 64 KiB of each: readers that are further
	// behind read from the store. 0: 256 MiB.
	CacheBytes int64
	// BatchRecords bounds the records of one append. 0: MaxAppendRecords.
	BatchRecords int
	// Policy limits sessions: their age, their size and their turns.
	Policy Policy
	// WarmBytes bounds the folds of all sessions that stay in memory while nobody uses them,
	// counted as twice the Data of their kept records. 0: 64 MiB.
	WarmBytes int64
}

const (
	// coldFolds is how many logs are folded anew at the same time. After a restart all
	// sessions' readers come back at once; without a bound their pages would fill the memory.
	coldFolds = 32
	leastLog  = 16 << 10 // about what a log takes in memory beside its fold
)

// Logs are the logs of a store as one process sees them. Readers of the same session
// share through it what they read. Use one per store and process.
type Logs struct {
	store  Store
	o      Options
	token  string // names these logs in the ids of their claims
	claims atomic.Uint64
	cold   wait.Lock     // held while a log is folded from its start or its saved fold: by so many at a time
	cache  budget.Budget // of tails and projections
	outage *outage.Watch
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines that the logs started

	mu     sync.Mutex
	closed bool
	logs   map[string]weak.Pointer[Log]
	warm   budget.LRU[*Log]
}

// NewLogs returns the logs of a store. o may be nil.
func NewLogs(store Store, o *Options) *Logs {
	l := &Logs{store: store, token: rand.Text(), cold: wait.NewLock(coldFolds), logs: make(map[string]weak.Pointer[Log])}
	if o != nil {
		l.o = *o
	}
	if l.o.Now == nil {
		l.o.Now = time.Now
	}
	if l.o.Sleep == nil {
		l.o.Sleep = wait.Sleep
	}
	if l.o.NewID == nil {
		l.o.NewID = func() string { return uuid.V7(l.o.Now()) }
	}
	if l.o.Go == nil {
		l.o.Go = func(f func()) { go f() }
	}
	l.o.Logger = redact.Logger(cmp.Or(l.o.Logger, slog.New(slog.DiscardHandler)))
	l.o.TailBytes = cmp.Or(max(l.o.TailBytes, 0), 1<<20)
	l.o.CacheBytes = cmp.Or(max(l.o.CacheBytes, 0), 256<<20)
	l.cache.Limit, l.cache.Least = l.o.CacheBytes, leastTail
	if l.o.BatchRecords <= 0 || l.o.BatchRecords > MaxAppendRecords {
		l.o.BatchRecords = MaxAppendRecords
	}
	l.warm.Limit = cmp.Or(max(l.o.WarmBytes, 0), 64<<20)
	l.outage = outage.New()
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Store returns the store.
func (l *Logs) Store() Store { return l.store }

// Now reads the clock.
func (l *Logs) Now() time.Time { return l.o.Now() }

// NewID makes an id.
func (l *Logs) NewID() string { return l.o.NewID() }

// Go starts a goroutine with [Options.Go]. Close does not wait for it.
func (l *Logs) Go(f func()) { l.o.Go(f) }

// Sleep waits for d, or until ctx ends and returns its error.
func (l *Logs) Sleep(ctx context.Context, d time.Duration) error { return l.o.Sleep(ctx, d) }

// BatchRecords is [Options.BatchRecords], as it is in effect.
func (l *Logs) BatchRecords() int { return l.o.BatchRecords }

// Logger returns the logger, never nil.
func (l *Logs) Logger() *slog.Logger { return l.o.Logger }

// Log returns the log of a session, which need not exist yet. Handles are cheap: calls
// return the same *Log while it is in use, and for a while after. It fails with
// [chunk.ErrInvalidID].
func (l *Logs) Log(session string) (*Log, error) {
	if err := chunk.CheckID(session); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	g := l.logs[session].Value()
	if g == nil {
		g = newLog(l, session)
		p := weak.Make(g)
		l.logs[session] = p
		runtime.AddCleanup(g, l.forget, forgotten{session, p})
		l.warm.Weigh(&g.warm, leastLog)
	}
	l.warm.Use(&g.warm, g)
	return g, nil
}

// weigh says how many bytes a log's fold takes.
func (l *Logs) weigh(g *Log, fold int64) {
	l.mu.Lock()
	l.warm.Weigh(&g.warm, leastLog+fold)
	l.mu.Unlock()
}

// forgotten names a log that was garbage-collected.
type forgotten struct {
	session string
	log     weak.Pointer[Log]
}

func (l *Logs) forget(f forgotten) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs[f.session] == f.log {
		delete(l.logs, f.session)
	}
}

// spawn starts a goroutine that Close waits for. It returns false once the logs
// are closed.
func (l *Logs) spawn(f func()) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.wg.Add(1)
	l.mu.Unlock()
	l.o.Go(func() {
		defer l.wg.Done()
		f()
	})
	return true
}

// acquire takes a lock. It fails with ctx's error, or with [ErrClosed].
func (l *Logs) acquire(ctx context.Context, k wait.Lock) error {
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	return k.Acquire(ctx, l.ctx.Done(), ErrClosed)
}

// Close ends every reader and writer with [ErrClosed] and waits for the goroutines that
// they started. It does not close the store.
func (l *Logs) Close() error {
	l.mu.Lock()
	l.closed = true
	l.warm.Clear()
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
	return nil
}

// Closed reports whether Close was called.
func (l *Logs) Closed() bool { return l.ctx.Err() != nil }

// Claim asks the store for a session to own. While the outcome is unknown the claim is
// repeated. Errors: [ErrNothingDue], [ErrUnsupported] if the store cannot coordinate runners,
// or the store's.
func (l *Logs) Claim(ctx context.Context, c Claim) (Lease, error) {
	leaser, ok := l.store.(Leaser)
	if !ok {
		return Lease{}, ErrUnsupported
	}
	if c.ID == "" {
		c.ID = l.token + "-" + strconv.FormatUint(l.claims.Add(1), 10)
	}
	lease, err := l.claim(ctx, leaser, c)
	if err != nil {
		return Lease{}, err
	}
	lease.claimed = time.Now()
	if lease.Head.Hidden {
		_ = leaser.Release(ctx, lease) // at worst the process that copies begins again
		return Lease{}, ErrNotFound.With(lease.Session, nil)
	}
	if g, err := l.Log(lease.Session); err == nil {
		since := g.tail.seen()
		if lease.Head.behind(since.head) { // an old answer, or a loss: the head tells
			_, _ = g.tail.ask(ctx)
		} else {
			g.tail.observe(lease.Head, since)
		}
	}
	return lease, nil
}

// claim repeats a claim whose outcome is unknown.
func (l *Logs) claim(ctx context.Context, leaser Leaser, c Claim) (lease Lease, err error) {
	begun := time.Now()
	for failures := 0; ; failures++ {
		err := l.lease(ctx, &c, func(ctx context.Context) (err error) {
			lease, err = leaser.Claim(ctx, c)
			return err
		})
		if err == nil || settled(err) || errors.Is(err, ErrNotStored) || ctx.Err() != nil || time.Since(begun) >= giveUp {
			return lease, err
		}
		if l.Sleep(ctx, wait.Backoff(failures)) != nil {
			return Lease{}, err
		}
	}
}

// lease calls the store for a claim: to claim, to renew, or to wait. It spares the leases
// that have expired in an outage, and notes whether the store has answered.
func (l *Logs) lease(ctx context.Context, c *Claim, call func(context.Context) error) error {
	ttl := cmp.Or(max(c.TTL, 0), DefaultLeaseTTL)
	c.ExpiredFor = max(c.ExpiredFor, l.outage.Spared(ttl))
	begun := time.Now()
	try, cancel := context.WithTimeout(ctx, patienceOf(ttl))
	defer cancel()
	err := call(try)
	if ctx.Err() == nil && (err != nil || try.Err() == nil) {
		l.outage.Saw(begun, answered(err))
	}
	return err
}

// Renew extends a lease, as [Leaser].Renew.
func (l *Logs) Renew(ctx context.Context, lease Lease) error {
	leaser, ok := l.store.(Leaser)
	if !ok {
		return ErrUnsupported
	}
	return l.lease(ctx, &Claim{TTL: lease.TTL}, func(ctx context.Context) error { return leaser.Renew(ctx, lease) })
}

// AwaitDue returns nil when a claim by c may succeed, or after a while: a claim finds out
// whether the store answers at all. Errors: [ErrUnsupported], the store's, or ctx's.
func (l *Logs) AwaitDue(ctx context.Context, c Claim) error {
	leaser, ok := l.store.(Leaser)
	if !ok {
		return ErrUnsupported
	}
	return l.lease(ctx, &c, func(try context.Context) error {
		err := leaser.AwaitDue(try, c)
		if try.Err() != nil && ctx.Err() == nil {
			return nil
		}
		return err
	})
}
