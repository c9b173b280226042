package spool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/encode"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/internal/budget"
	"github.com/spool-run/spool/internal/wait"
)

// giveUp is how long an append of unknown outcome is repeated if there is no lease, and
// attempt is how long one try may take.
const (
	giveUp  = 30 * time.Second
	attempt = 10 * time.Second
)

// Log is one session's log as this process sees it. All methods may be called
// from any goroutine.
type Log struct {
	logs    *Logs
	session string
	tail    *tail
	flight  wait.Lock         // held while an owner's append is under way
	warm    budget.Kept[*Log] // under logs.mu

	view view

	mu          sync.Mutex
	projections map[string]weak.Pointer[Projection]
	views       []*Projection // the latest in use, kept alive
}

func newLog(l *Logs, session string) *Log {
	return &Log{
		logs: l, session: session, tail: newTail(l, session),
		flight: wait.NewLock(1), view: view{lock: wait.NewLock(1)},
	}
}

// Session returns the session's id.
func (g *Log) Session() string { return g.session }

// Head asks the store for the log's head. It fails with [ErrNotFound] if there
// is no such session.
func (g *Log) Head(ctx context.Context) (h Head, err error) {
	err = g.logs.retry(ctx, g.session, func() error {
		h, err = g.tail.ask(ctx)
		return err
	})
	return h, err
}

// Owned returns a context that ends, with [ErrSuperseded] as its cause, as soon as this
// process sees a head of the log with a later epoch than the lease's. Each head counts
// that the store has returned, to readers too.
func (g *Log) Owned(ctx context.Context, lease Lease) (context.Context, context.CancelFunc) {
	owned, cancel := context.WithCancelCause(ctx)
	o := &owner{lease.Epoch, cancel}
	g.tail.own(o, true)
	return owned, func() {
		g.tail.own(o, false)
		cancel(nil)
	}
}

// Command appends commands without a lease and makes the session due. It creates the
// session if there is none. It fills in the chunks' base fields and puts all of them
// into one append.
//
// Errors: [chunk.ErrInvalidID] for a bad command id, [chunk.ErrInvalidChunk] for any
// other invalid chunk or one that is not a command, [chunk.ErrTooLarge], [ErrQuota] if it
// begins a turn and [Options].Policy does not allow one, or the store's. While the outcome
// is unknown the append is repeated. It does no harm if both are stored, since the fold
// takes the first command of an id.
func (g *Log) Command(ctx context.Context, row Row, chunks ...chunk.Chunk) (Appended, error) {
	return g.command(ctx, Append{Row: row}, chunks)
}

// CommandFor is [Log.Command] that fails with [ErrExists] if the session exists and has
// another principal than row's.
func (g *Log) CommandFor(ctx context.Context, row Row, chunks ...chunk.Chunk) (Appended, error) {
	return g.command(ctx, Append{Row: row, SamePrincipal: true}, chunks)
}

func (g *Log) command(ctx context.Context, a Append, chunks []chunk.Chunk) (Appended, error) {
	if len(chunks) == 0 {
		return Appended{}, chunk.ErrInvalid.Because("the append contains no command").With(g.session, nil)
	}
	for _, c := range chunks {
		if !chunk.IsCommand(c.ChunkType()) {
			return Appended{}, chunk.ErrInvalidChunk.Because("a "+string(c.ChunkType())+" is not a command").With(g.session, nil)
		}
		if err := chunk.CheckID(chunk.CommandID(c)); err != nil {
			return Appended{}, err
		}
		if err := chunk.Validate(c); err != nil {
			return Appended{}, err
		}
	}
	if err := g.admit(ctx, &a, chunks); err != nil {
		return Appended{}, err
	}
	e := g.encoder(chunk.Base{AgentID: g.session})
	recs, err := e.Encode(ctx, chunks)
	if err != nil {
		return Appended{}, err
	}
	if n, size := sizeOf(recs); n > MaxAppendRecords || size > MaxAppendBytes {
		return Appended{}, chunk.ErrTooLarge.Because("the commands are too large for one append").With(g.session, nil)
	}
	a.Session, a.Records = g.session, recs
	res, _, err := g.append(ctx, a, giveUp)
	return res, err
}

// patience is how long an append of unknown outcome is repeated under the lease.
func (l Lease) patience() time.Duration {
	return cmp.Or(max(l.TTL, 0), giveUp)
}

// encoder returns an encoder of the log's chunks.
func (g *Log) encoder(base chunk.Base) encode.Encoder {
	e := encode.Encoder{Session: g.session, Base: base, Now: g.logs.Now}
	if store, ok := g.logs.store.(BlobStore); ok {
		e.Put = func(ctx context.Context, hash string, data []byte) error {
			return g.logs.ask(ctx, g.session, func(ctx context.Context) error { return store.PutBlob(ctx, g.session, hash, data) })
		}
	}
	return e
}

// Blob returns the original of a stored value. It looks up a reference to a blob, and
// turns the escaped key "$$blob" of a user's object back into "$blob". It returns any
// other value unchanged. Errors: [ErrNotFound] if the blob is gone, [ErrUnsupported],
// or the store's.
func (g *Log) Blob(ctx context.Context, v json.RawMessage) (json.RawMessage, error) {
	hash, _, ok := blobref.Parse(v)
	if !ok {
		return blobref.Unescape(v), nil
	}
	blobs, can := g.logs.store.(BlobStore)
	if !can {
		return nil, ErrUnsupported.With(g.session, nil)
	}
	var data []byte
	err := g.logs.ask(ctx, g.session, func(ctx context.Context) (err error) {
		data, err = blobs.GetBlob(ctx, g.session, hash)
		return err
	})
	return data, err
}

// Append makes one append of records that are encoded already, and repeats it while the
// outcome is unknown. It is for what copies logs; owners use a [Writer] or [Log.Append].
func (l *Logs) Append(ctx context.Context, a Append) (Appended, error) {
	g, err := l.Log(a.Session)
	if err != nil {
		return Appended{}, err
	}
	res, _, err := g.append(ctx, a, giveUp)
	return res, err
}

// append appends, and repeats the append while its outcome is unknown. If ctx waits for
// the store, it does so without a limit, and also while the store cannot write. It returns
// the era of the log that was appended to.
func (g *Log) append(ctx context.Context, a Append, patience time.Duration) (res Appended, era uint64, err error) {
	var begun time.Time
	unknown := false // an attempt may have been stored
	for failures := 0; ; failures++ {
		since := g.tail.seen()
		g.tail.appends.Add(1)
		try := wait.Within(ctx, attempt)
		res, err = g.logs.store.Append(try, a)
		try.End()
		if err == nil {
			era, err = g.appended(ctx, &a, &res, since)
			return res, era, err
		}
		unknown = unknown || !errors.Is(err, ErrNotStored)
		waits := waitsForStore(ctx)
		if settled(err) || ctx.Err() != nil || !unknown && !waits {
			return Appended{}, 0, err
		}
		now := g.logs.Now()
		if failures == 0 {
			begun = now
			g.logs.Logger().Warn("repeating an append", "session", g.session, "unknown", unknown, "error", err)
		}
		if now.Sub(begun) >= patience && !waits {
			return Appended{}, 0, ErrUnavailable.Because("the outcome of an append is still unknown after retries").With(g.session, err)
		}
		if g.logs.Sleep(ctx, wait.Backoff(failures)) != nil {
			return Appended{}, 0, err
		}
	}
}

// appended takes the store's answer to an append. An owner that appended to a log that
// lacks records which it had when the append began is no owner any more: it goes by a
// log that is gone. A command is good wherever it is stored.
func (g *Log) appended(ctx context.Context, a *Append, res *Appended, since seen) (era uint64, err error) {
	recs := a.Records
	if res.Repeated { // another process may have written them, so they are read
		recs = nil
	}
	era, lost, ok := g.tail.publish(recs, res.First, res.Head, since)
	if !ok {
		h, err := g.tail.ask(ctx)
		lost = err == nil && h.behind(res.Head)
	}
	if lost && a.Epoch > 0 {
		return era, errLost.With(g.session, nil)
	}
	return era, nil
}

// settled reports whether an append has certainly failed, and would fail again.
func settled(err error) bool {
	for _, e := range [...]error{ErrSuperseded, ErrNotFound, ErrExists, ErrNothingDue, chunk.ErrTooLarge, ErrClosed, chunk.ErrInvalid, chunk.ErrInvalidID, chunk.ErrInvalidChunk} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func sizeOf(recs []chunk.Record) (n, size int) {
	for i := range recs {
		size += len(recs[i].Data)
	}
	return len(recs), size
}

// NewTitle returns the title for a session whose first user message this is, see
// [fold.Title]. It returns "" if the session has a title already: a title that was
// given stays.
func (g *Log) NewTitle(ctx context.Context, first *chunk.Message) (string, error) {
	title := fold.Title(first)
	lister, ok := g.logs.store.(Lister)
	if title == "" || !ok {
		return title, nil
	}
	var info SessionInfo
	err := g.logs.ask(ctx, g.session, func(ctx context.Context) (err error) {
		info, err = lister.Session(ctx, g.session)
		return err
	})
	if err != nil && !errors.Is(err, ErrNotFound) || info.Title != "" {
		return "", err
	}
	return title, nil
}
