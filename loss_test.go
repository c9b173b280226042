package spool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// copies is a projector with a frame for each record.
type copies struct{}

func (copies) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	return append(dst, spool.Frame{Seq: r.Seq, Data: r.Data}), nil
}

func (copies) Plan() ([]spool.Frame, error) { return nil, nil }

// losing is a session whose store is set back under its users.
type losing struct {
	*testing.T
	store *storetest.Rewound
	early *memstore.Store // what the store is set back to
	owner *spool.Writer
	here  *spool.Log // of the owner's process
	wg    sync.WaitGroup
	past  []func() // what readers try who were not waiting
}

func (l *losing) process() *spool.Log {
	l.Helper()
	logs := spool.NewLogs(l.store, nil)
	l.Cleanup(func() { logs.Close() })
	g, err := logs.Log("s")
	if err != nil {
		l.Fatal(err)
	}
	return g
}

// write appends so many deltas, and a step's end.
func (l *losing) write(w *spool.Writer, text string, n int) {
	l.Helper()
	for i := range n - 1 {
		if err := w.Append(l.Context(), &chunk.TextDelta{Delta: fmt.Sprint(text, i, " ")}); err != nil {
			l.Fatal(err)
		}
	}
	if _, err := w.Commit(l.Context(), spool.Row{Status: chunk.StatusActive}, nil, &chunk.StepCommitted{StepID: text}); err != nil {
		l.Fatal(err)
	}
}

func (l *losing) claim(g *spool.Log) *spool.Writer {
	l.Helper()
	lease, err := l.store.Claim(l.Context(), spool.Claim{Owner: "o", Session: "s", Force: true})
	if err != nil {
		l.Fatal(err)
	}
	return g.Writer(lease, spool.WriterOptions{})
}

const (
	kept  = 41 // records that the store still has afterwards
	known = 91 // and those that everybody has seen
)

// connect lets a process read the session in all ways, up to its head and beyond. Each of
// them must be told of the loss, and see nothing of what follows.
func (l *losing) connect(g *spool.Log, command string) {
	l.Helper()
	told := func(who string, at uint64, err error) {
		if !errors.Is(err, spool.ErrCursorAhead) || at > known {
			l.Errorf("%s: %v at %d", who, err, at)
		}
	}
	l.wg.Go(func() {
		r := g.Reader(spool.ReadOptions{Follow: true})
		for {
			if _, err := r.Next(l.Context()); err != nil {
				told("a reader", r.Cursor().Seq, err)
				return
			}
		}
	})
	late := g.Reader(spool.ReadOptions{Max: 5})
	if _, err := late.Next(l.Context()); err != nil {
		l.Fatal(err)
	}
	l.past = append(l.past, func() {
		_, err := late.Next(l.Context())
		told("a slow reader", late.Cursor().Seq, err)
	})
	for _, stateless := range []bool{false, true} {
		o := spool.ProjectionOptions{Key: fmt.Sprint(stateless), New: func() spool.Projector { return copies{} }, Stateless: stateless}
		l.wg.Go(func() {
			f := g.Projection(o).Follow(spool.Head{}, 0)
			for {
				if _, err := f.NextFollowing(l.Context()); err != nil {
					told("a follower", f.At(), err)
					return
				}
			}
		})
	}
	l.wg.Go(func() {
		told("a caller that waits for its command", 0, g.Until(l.Context(), spool.Head{}, func(f *fold.Fold) (spool.Look, error) {
			if f.Verdict(command).State == fold.VerdictUnknown {
				return spool.Seen, errors.New("it is not there")
			}
			return spool.Surely, nil
		}))
	})
}

// same checks that a process reads and folds what the store has, by whichever way.
func (l *losing) same(g *spool.Log) {
	l.Helper()
	ctx := l.Context()
	stored, head, err := l.store.Read(ctx, "s", 0, 0)
	if err != nil {
		l.Fatal(err)
	}
	want := fold.New("s")
	for _, r := range stored {
		if err := want.Apply(r); err != nil {
			l.Fatal(err)
		}
	}
	asJSON := func(f *fold.Fold) string {
		data, err := json.Marshal(f)
		if err != nil {
			l.Fatal(err)
		}
		return string(data)
	}
	if err := g.View(ctx, func(f *fold.Fold) error {
		if diff := cmp.Diff(asJSON(want), asJSON(f)); diff != "" {
			l.Errorf("the fold: %s", diff)
		}
		return nil
	}); err != nil {
		l.Error(err)
	}
	var read []chunk.Record
	for r := g.Reader(spool.ReadOptions{Follow: true}); uint64(len(read)) < head.Seq; {
		recs, err := r.Next(ctx)
		if err != nil {
			l.Fatal(err)
		}
		read = append(read, recs...)
	}
	if diff := cmp.Diff(stored, read); diff != "" {
		l.Errorf("a new reader: %s", diff)
	}
	for _, key := range []string{"false", "true"} {
		f := g.Projection(spool.ProjectionOptions{Key: key, New: func() spool.Projector { return copies{} }, Stateless: key == "true"}).Follow(spool.Head{}, 0)
		var shown []chunk.Record
		for f.At() < head.Seq {
			b, err := f.NextFollowing(ctx)
			if err != nil {
				l.Fatal(err)
			}
			for i := range b.Frames {
				shown = append(shown, chunk.Record{Seq: b.Frames[i].Seq, Data: b.Frames[i].Data})
			}
		}
		for i, r := range stored {
			if i >= len(shown) || shown[i].Seq != r.Seq || string(shown[i].Data) != string(r.Data) {
				l.Fatalf("a new follower has %d frames, and not that of %s", len(shown), r.Data)
			}
		}
	}
}

// newLosing returns a session with readers in the owner's process and, if elsewhere is
// set, in another one.
func newLosing(t *testing.T, elsewhere bool) *losing {
	t.Helper()
	mem := memstore.New(nil)
	l := &losing{T: t, store: storetest.NewRewound(mem)}
	l.here = l.process()
	there := l.process()
	l.owner = l.claim(l.here)
	l.write(l.owner, "early", kept)
	l.early = mem.Fork(nil)
	l.write(l.owner, "lost", known-kept-1)
	if _, err := there.Command(t.Context(), spool.Row{}, &chunk.StopRequested{CommandID: "c"}); err != nil {
		t.Fatal(err)
	}
	processes := []*spool.Log{l.here}
	if elsewhere {
		processes = append(processes, there)
	}
	for _, g := range processes {
		l.connect(g, "c")
	}
	synctest.Wait()
	for _, g := range processes {
		if h := g.Known(); h.Seq != known {
			t.Fatalf("known is %+v", h)
		}
	}
	return l
}

// A store that is set back to an earlier state under its users loses records that it had
// acknowledged. Whether the store notices or not: every reader is told, callers that wait
// for a command are told, the owner is none any more, and nobody sees the records of the
// log as it was before mixed with those that follow. Without the store's help that holds
// if a process looks before the log has grown to where it was.
func TestLoss(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		for _, grown := range []int{0, 7, known - kept, known} {
			if !noticed && kept+grown >= known {
				continue
			}
			t.Run(fmt.Sprintf("noticed=%v/grown=%d", noticed, grown), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { loss(t, noticed, grown) })
			})
		}
	}
}

func loss(t *testing.T, noticed bool, grown int) {
	l := newLosing(t, true)
	if noticed {
		l.early.Raise()
		stale := spool.SavedFold{Version: fold.Version, Incarnation: 1, Seq: 5, Data: []byte(`{"session":"s","seq":5}`)}
		if err := l.early.SaveFold(t.Context(), "s", "fold", stale); err != nil {
			t.Fatal(err)
		}
	}
	l.store.Set(l.early)
	next := l.process()
	if grown > 0 {
		l.write(l.claim(next), "new", grown)
	}
	l.wg.Wait()
	for _, try := range l.past {
		try()
	}
	_, err := l.owner.Commit(t.Context(), spool.Row{}, nil, &chunk.TextDelta{Delta: "late"})
	if !errors.Is(err, spool.ErrSuperseded) {
		t.Errorf("the owner: %v", err)
	}
	if h, err := l.store.Head(t.Context(), "s"); err != nil || h.Seq != uint64(kept+grown) {
		t.Errorf("the owner has appended: %+v, %v", h, err)
	}
	for _, g := range []*spool.Log{l.here, l.process(), next} {
		l.same(g)
	}
	l.write(l.claim(next), "more", 200)
	for _, g := range []*spool.Log{l.here, next} {
		l.same(g)
	}
}

// A loss that the store does not notice and one process does is told to all others: also
// to those that look only when the log has grown beyond what they knew.
func TestLossIsToldToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLosing(t, true)
		known := l.here.Known()
		elsewhere := l.process().Reader(spool.ReadOptions{Follow: true, Max: 1000})
		if recs, err := elsewhere.Next(t.Context()); err != nil || uint64(len(recs)) != known.Seq {
			t.Fatalf("%d records, %v", len(recs), err)
		}
		l.store.Set(l.early)
		time.Sleep(time.Minute) // of the bubble's clock: its watchers look
		h, err := l.store.Head(t.Context(), "s")
		if err != nil || h.Incarnation <= known.Incarnation || h.Epoch <= known.Epoch {
			t.Fatalf("the head after the loss is %+v, %v", h, err)
		}
		next := l.process()
		l.write(l.claim(next), "new", 200)
		if _, err := elsewhere.Next(t.Context()); !errors.Is(err, spool.ErrCursorAhead) {
			t.Errorf("a reader of another process: %v", err)
		}
		late := l.process().Reader(spool.ReadOptions{After: spool.Cursor{Seq: known.Seq, Incarnation: known.Incarnation}, Follow: true})
		if _, err := late.Next(t.Context()); !errors.Is(err, spool.ErrCursorAhead) {
			t.Errorf("a client that comes back: %v", err)
		}
		l.wg.Wait()
		l.same(l.here)
		l.same(next)
		if again, err := l.store.Head(t.Context(), "s"); err != nil || again.Incarnation != h.Incarnation {
			t.Errorf("it was raised from %+v to %+v, %v", h, again, err)
		}
	})
}

// If the owner's own append is the first thing that tells of a loss, it is its last one,
// also if it is as long as what was lost.
func TestOwnerLearnsOfALoss(t *testing.T) {
	for _, more := range []int{1, known} {
		synctest.Test(t, func(t *testing.T) {
			l := newLosing(t, more == 1) // elsewhere nothing tells of it if the log is long enough
			l.store.Set(l.early)
			var err error
			for range more {
				err = errors.Join(err, l.owner.Append(t.Context(), &chunk.TextDelta{Delta: "late"}))
			}
			if err = errors.Join(err, l.owner.Flush(t.Context())); !errors.Is(err, spool.ErrSuperseded) {
				t.Errorf("the owner: %v", err)
			}
			l.wg.Wait()
			synctest.Wait() // the incarnation is raised
			l.same(l.here)
		})
	}
}

// A command that comes after a loss is stored, whoever learns of the loss by it.
func TestCommandAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLosing(t, true)
		l.store.Set(l.early)
		res, err := l.here.Command(t.Context(), spool.Row{}, &chunk.StopRequested{CommandID: "d"})
		if err != nil || res.First != kept+1 {
			t.Errorf("%+v, %v", res, err)
		}
		synctest.Wait() // the incarnation is raised
		if err := l.here.View(t.Context(), func(f *fold.Fold) error {
			if f.Seq != kept+1 || f.Verdict("d").State == fold.VerdictUnknown || f.Verdict("c").State != fold.VerdictUnknown {
				t.Errorf("the fold at %d has %v and %v", f.Seq, f.Verdict("c"), f.Verdict("d"))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		l.wg.Wait()
		l.same(l.here)
	})
}

// A session that the store has lost altogether, and that is created again, is another one.
func TestSessionIsLost(t *testing.T) {
	for _, noticed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLosing(t, true)
			empty := memstore.New(nil)
			if noticed {
				empty.Raise()
			}
			l.store.Set(empty)
			l.write(l.claim(l.process()), "new", 20)
			l.wg.Wait()
			for _, try := range l.past {
				try()
			}
			if _, err := l.owner.Commit(t.Context(), spool.Row{}, nil, &chunk.TextDelta{Delta: "late"}); !errors.Is(err, spool.ErrSuperseded) {
				t.Errorf("the owner: %v", err)
			}
			l.same(l.here)
		})
	}
}

// late is a store whose answers come after something else happened.
type late struct {
	spool.Store
	meanwhile atomic.Pointer[func()]
}

func (l *late) then() {
	if fn := l.meanwhile.Swap(nil); fn != nil {
		(*fn)()
	}
}

func (l *late) Head(ctx context.Context, session string) (spool.Head, error) {
	h, err := l.Store.Head(ctx, session)
	l.then()
	return h, err
}

func (l *late) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	recs, h, err := l.Store.Read(ctx, session, after, max)
	l.then()
	return recs, h, err
}

func (l *late) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	res, err := l.Store.Append(ctx, a)
	l.then()
	return res, err
}

// Wait answers with a head from before the caller asked, once a second.
func (l *late) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	h, next, err := l.Store.Wait(soon, session, seen)
	if soon.Err() != nil && ctx.Err() == nil && seen.Seq > 0 {
		seen.Seq--
		return seen, nil, nil
	}
	return h, next, err
}

// An answer that was overtaken by a newer one is no loss, and neither is a late Wait.
func TestOvertakenAnswersAreNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		mem := memstore.New(nil)
		store := &late{Store: mem}
		logs := spool.NewLogs(store, nil)
		defer logs.Close()
		g, err := logs.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Uint64
		add := func() {
			if _, err := g.Command(ctx, spool.Row{}, &chunk.StopRequested{CommandID: fmt.Sprint("c", n.Add(1))}); err != nil {
				t.Error(err)
			}
		}
		add()
		seen := make(chan uint64, 100)
		go func() {
			defer close(seen)
			for r, err := range g.Records(ctx, spool.ReadOptions{Follow: true}) {
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				seen <- r.Seq
			}
		}()
		synctest.Wait()
		behind := g.Reader(spool.ReadOptions{Max: 1})
		for range 10 {
			store.meanwhile.Store(&add)
			if _, err := g.Head(ctx); err != nil {
				t.Error(err)
			}
			store.meanwhile.Store(&add)
			add()
			store.meanwhile.Store(&add)
			if err := g.View(ctx, func(*fold.Fold) error { return nil }); err != nil {
				t.Error(err)
			}
			if _, err := behind.Next(ctx); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second) // of the bubble's clock: Wait is late
		}
		stop()
		want := uint64(0)
		for seq := range seen {
			if want++; seq != want {
				t.Fatalf("record %d, want %d", seq, want)
			}
		}
		if want != n.Load() {
			t.Errorf("%d records of %d", want, n.Load())
		}
	})
}
