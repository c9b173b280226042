package spool

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/wait"
)

// saveEvery is how many records a fold may have beyond its saved copy.
const saveEvery = 2000

// FoldName is the name under which stores keep this package's folds.
const FoldName = "fold"

// view is the fold of a log that all its users in this process share.
type view struct {
	lock     wait.Lock // held by the goroutine that uses it
	fold     *fold.Fold
	src      *source
	at       uint64        // the head that the fold was brought to; 0: records of an append may be missing
	since    int           // records since the saved copy
	bytes    int64         // about what the fold takes in memory
	failures atomic.Uint64 // how often the store gave no answer
	failed   error         // the last time
}

// View brings the log's cached fold to the head and calls fn with it. The fold is
// shared: fn must not change it, must not keep any of it except copies, must not call
// View, and must not take long. View returns fn's error, or else [ErrNotFound] if there
// is no such session, the store's error or ctx's.
func (g *Log) View(ctx context.Context, fn func(f *fold.Fold) error) error {
	return g.ViewAt(ctx, Head{}, fn)
}

// ViewAt is [Log.View] for a caller that has just got the log's head. The fold is at
// least as new as that head, and the store is not asked again. With the zero Head the
// store is asked. If the store has lost records of that head, ViewAt fails with
// [ErrCursorAhead].
func (g *Log) ViewAt(ctx context.Context, just Head, fn func(f *fold.Fold) error) error {
	if err := g.logs.retry(ctx, g.session, func() error { return g.lockView(ctx, just) }); err != nil {
		return err
	}
	defer g.view.lock.Release()
	return fn(g.view.fold)
}

// lockView takes the view's lock, and brings the fold to the head. If the store gives no
// answer to one caller, it gives none to those who wait for that one: they do not ask one
// after the other. A fold that holds what its caller knows is good without an answer.
func (g *Log) lockView(ctx context.Context, just Head) (err error) {
	v, at := &g.view, just
	if at == (Head{}) {
		if err := g.tail.refresh(ctx); err != nil {
			return err
		}
		if at = g.tail.current(); at == (Head{}) {
			return ErrNotFound.With(g.session, nil)
		}
	}
	failures := v.failures.Load()
	if err := g.logs.acquire(ctx, v.lock); err != nil {
		return err
	}
	if v.failures.Load() != failures {
		err = v.failed
	} else if err = g.bringView(ctx, at); err == nil && just.Incarnation == v.src.r.incarnation && v.at < just.Seq {
		err = ErrCursorAhead.With(g.session, nil) // what the caller has seen is lost
	} else if errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		v.failed = err
		v.failures.Add(1)
	}
	if errors.Is(err, ErrUnavailable) && v.at > 0 && v.at >= just.Seq && v.src.r.incarnation == just.Incarnation && v.src.r.era == g.tail.seen().era {
		return nil
	}
	if err != nil {
		v.lock.Release()
	}
	return err
}

// bringView folds the new records. If the log was trimmed or has a new incarnation, it
// makes a new fold.
func (g *Log) bringView(ctx context.Context, at Head) error {
	v := &g.view
	if v.fold == nil {
		if err := g.logs.acquire(ctx, g.logs.cold); err != nil {
			return err
		}
		defer g.logs.cold.Release()
	}
	for fresh := false; ; fresh = true {
		if v.fold == nil {
			fresh = true
			var err error
			if v.fold, v.src, err = g.openFold(ctx, at, 0); err != nil {
				v.fold, v.at = nil, 0
				return err
			}
			v.at, v.since, v.bytes = 0, 0, v.src.saved
		}
		n, size, err := foldAll(ctx, v.fold, v.src)
		if v.since += n; err == nil {
			v.at = v.src.at
		} else if v.fold.Seq > v.at {
			v.at = 0
		}
		if v.bytes += 2 * size; size > 0 || fresh {
			g.logs.weigh(g, v.bytes)
		}
		if err == nil {
			if v.since >= saveEvery {
				g.saveView()
			}
			return nil
		}
		overtaken := errors.Is(err, ErrTrimmed) || errors.Is(err, ErrCursorAhead)
		if overtaken || errors.Is(err, chunk.ErrInvalidChunk) {
			v.fold, v.src, v.at = nil, nil, 0
		}
		if fresh || !overtaken {
			return err
		}
	}
}

// foldAll folds until the source has no more. It returns how many records it has folded, and
// the size of the kept ones. Fold and source stay usable after errors of the store and of ctx.
func foldAll(ctx context.Context, f *fold.Fold, src *source) (n int, kept int64, err error) {
	for {
		recs, err := src.next(ctx)
		if err == nil && src.lossy {
			err = ErrTrimmed.With(src.r.g.session, nil)
		}
		if err != nil || len(recs) == 0 {
			return n, kept, err
		}
		for i := range recs {
			if err := f.Apply(recs[i]); err != nil {
				return n, kept, err
			}
			if recs[i].Class == chunk.Kept {
				kept += int64(len(recs[i].Data))
			}
		}
		n += len(recs)
	}
}

// openFold returns a fold to begin with, empty or a saved one, and the source of
// the records after it, up to a sequence or, with 0, to the head.
func (g *Log) openFold(ctx context.Context, just Head, upTo uint64) (*fold.Fold, *source, error) {
	if saved, ok := g.logs.store.(FoldStore); ok {
		if f, src := g.savedFold(ctx, saved, just, upTo); f != nil {
			return f, src, nil
		}
	}
	src, err := newSource(ctx, g, just, 0, upTo)
	if err != nil {
		return nil, nil, err
	}
	return fold.New(g.session), src, nil
}

// savedFold returns the saved fold if it is one of this version, this incarnation and
// not too new. It is a cache: no error matters. Where the records that it holds are gone,
// an earlier version's is better than none.
func (g *Log) savedFold(ctx context.Context, store FoldStore, just Head, upTo uint64) (*fold.Fold, *source) {
	var saved SavedFold
	err := g.logs.call(ctx, g.session, func(ctx context.Context) (err error) {
		saved, err = store.LoadFold(ctx, g.session, FoldName)
		return err
	})
	if err != nil || saved.Version < fold.Oldest || saved.Version > fold.Version || saved.Seq == 0 || upTo > 0 && saved.Seq > upTo {
		return nil, nil
	}
	src, err := newSource(ctx, g, just, saved.Seq, upTo)
	if err != nil || src.r.incarnation != saved.Incarnation || saved.Version != fold.Version && g.tail.current().Floor == 0 {
		return nil, nil
	}
	f, err := fold.Load(saved.Data)
	if err != nil || f.Session != g.session || f.Seq != saved.Seq {
		return nil, nil
	}
	src.saved = 2 * int64(len(saved.Data))
	return f, src
}

// saveView saves the fold in the background, if it can be saved now.
func (g *Log) saveView() {
	store, ok := g.logs.store.(FoldStore)
	if !ok {
		return
	}
	v := &g.view
	data, err := v.fold.Save()
	if err != nil {
		return // a run is open; a later view saves it
	}
	v.since = 0
	saved := SavedFold{Version: fold.Version, Incarnation: v.src.r.incarnation, Seq: v.fold.Seq, Data: data}
	g.logs.spawn(func() {
		ctx, cancel := context.WithTimeout(g.logs.ctx, attempt)
		defer cancel()
		if err := store.SaveFold(ctx, g.session, FoldName, saved); err != nil && !errors.Is(err, ErrClosed) {
			g.logs.Logger().Warn("cannot save the fold", "session", g.session, "error", err)
		}
	})
}

// FoldAt returns a fold of the log up to a sequence. The fold belongs to the caller.
// Where trace was trimmed it is folded from kept records, with the same result for
// every turn that is settled at that point. It fails with [ErrNotFound],
// [ErrCursorAhead] if the sequence lies beyond the head, [ErrTrimmed] if kept records
// are gone, or the store's error or ctx's.
func (g *Log) FoldAt(ctx context.Context, seq uint64) (f *fold.Fold, err error) {
	if seq == 0 {
		return fold.New(g.session), nil
	}
	err = g.logs.retry(ctx, g.session, func() error {
		f, err = g.foldAt(ctx, seq)
		return err
	})
	return f, err
}

func (g *Log) foldAt(ctx context.Context, seq uint64) (*fold.Fold, error) {
	for tries := 0; ; tries++ {
		f, src, err := g.openFold(ctx, Head{}, seq)
		if err != nil {
			return nil, err
		}
		if src.at > seq {
			return nil, ErrTrimmed.With(g.session, nil)
		}
		if _, _, err := foldAll(ctx, f, src); err != nil {
			if src.lossy && tries == 0 {
				continue
			}
			return nil, err
		}
		return f, nil
	}
}

// Look is the verdict of one look at the fold, for [Log.Until].
type Look uint8

const (
	// Seen: the awaited state has been reached.
	Seen Look = iota
	// Maybe: look again when the log has grown; give up if it is quiet.
	Maybe
	// Surely: look again when the log has grown, and wait for that without a limit.
	Surely
)

// Until calls look with the fold, and again whenever the log has grown, until look
// returns [Seen] or fails. It fails with io.EOF if look returns [Maybe] and the log is
// quiet: no run is open and no command is due. It fails with [ErrCursorAhead] if the log
// gets another incarnation or loses records: what is awaited may be among them. Other
// errors are those of [Log.View].
func (g *Log) Until(ctx context.Context, just Head, look func(f *fold.Fold) (Look, error)) error {
	life, era := just.Incarnation, uint64(0)
	for {
		var found Look
		var at uint64
		err := g.ViewAt(ctx, just, func(f *fold.Fold) error {
			src := g.view.src
			life, era, at = cmp.Or(life, src.r.incarnation), cmp.Or(era, src.r.era), src.at
			if life != src.r.incarnation || era != src.r.era {
				return ErrCursorAhead.With(g.session, nil)
			}
			var err error
			found, err = look(f)
			return err
		})
		if err != nil || found == Seen {
			return err
		}
		if just, err = g.tail.awaitBeyond(ctx, at, era, found == Surely); err != nil {
			return err
		}
	}
}
