package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
)

// put appends text deltas as an owner that commits at once.
func put(t testing.TB, w *Writer, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if err := w.Append(context.Background(), text(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func activate(t testing.TB, w *Writer, s chunk.Status) {
	t.Helper()
	if _, err := w.Commit(context.Background(), Row{Status: s}, &Settle{Seen: 1 << 60}); err != nil {
		t.Fatal(err)
	}
}

func TestReaderWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		w := g.Writer(store.claim("s"), WriterOptions{})
		activate(t, w, chunk.StatusActive)
		got := make(chan string)
		go func() { got <- deltas(t, readAll(t, g, Cursor{})) }()
		for _, s := range []string{"a", "b", "c"} {
			synctest.Wait()
			put(t, w, s)
		}
		time.Sleep(time.Minute)
		select {
		case s := <-got:
			t.Fatalf("the reader ended with %q while a run was open", s)
		default:
		}
		activate(t, w, chunk.StatusPaused)
		if s := <-got; s != "abc" {
			t.Errorf("read %q", s)
		}
	})
}

func TestFollowingReaderOutlivesTheEndAndWaitsForTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan error)
		var read strings.Builder
		go func() {
			r := g.Reader(ReadOptions{Follow: true})
			for {
				recs, err := r.Next(ctx)
				if err != nil {
					got <- err
					return
				}
				read.WriteString(deltas(t, recs))
			}
		}()
		synctest.Wait()
		w := g.Writer(store.claim("s"), WriterOptions{})
		put(t, w, "a")
		activate(t, w, chunk.StatusEnded)
		time.Sleep(time.Hour)
		put(t, w, "b")
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) || read.String() != "ab" {
			t.Errorf("%q, %v", read.String(), err)
		}
	})
}

// Two processes over one store: what one appends the other's readers get.
func TestTwoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		elsewhere := NewLogs(store, nil)
		defer elsewhere.Close()
		w := g.Writer(store.claim("s"), WriterOptions{})
		activate(t, w, chunk.StatusActive)
		got := make(chan []chunk.Record)
		for range 50 {
			go func() { got <- readAll(t, mustLog(t, elsewhere), Cursor{}) }()
		}
		var want strings.Builder
		for i := range 100 {
			s := fmt.Sprint(i, " ")
			want.WriteString(s)
			put(t, w, s)
			if i%3 == 0 {
				synctest.Wait()
			}
		}
		if _, err := mustLog(t, elsewhere).Command(context.Background(), Row{}, say("c1", "there")); err != nil {
			t.Fatal(err)
		}
		put(t, w, "end")
		activate(t, w, chunk.StatusEnded)
		for range 50 {
			recs := <-got
			contiguous(t, recs, 0)
			if len(recs) != 102 || deltas(t, recs) != want.String()+"end" {
				t.Fatalf("read %d records", len(recs))
			}
		}
		if n := store.called("read"); n > 300 {
			t.Errorf("%d reads of the store for 50 readers: they do not share", n)
		}
	})
}

func TestCursorOutcomes(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	put(t, w, strings.Split(strings.Repeat("x", 20), "")...)
	next := func(c Cursor) error {
		logs := NewLogs(store, nil) // with an empty tail
		defer logs.Close()
		_, err := mustLog(t, logs).Reader(ReadOptions{After: c}).Next(ctx)
		return err
	}
	if err := store.Trim(ctx, "s", 10, 0); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		c    Cursor
		want error
	}{
		{Cursor{}, nil},
		{Cursor{Seq: 10, InPlan: true}, nil},
		{Cursor{Seq: 5, InPlan: true, PlanFrames: 1}, nil},
		{Cursor{Seq: 11, InPlan: true, PlanFrames: 1}, ErrCursorAhead},
		{Cursor{Seq: 9}, ErrTrimmed},
		{Cursor{Seq: 10}, nil},
		{Cursor{Seq: 20}, io.EOF},
		{Cursor{Seq: 21}, ErrCursorAhead},
		{Cursor{Seq: 15, Incarnation: 2}, ErrCursorAhead},
	} {
		if err := next(test.c); !errors.Is(err, test.want) {
			t.Errorf("after %v: %v, want %v", test.c, err, test.want)
		}
	}
	if err := store.Delete(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if err := next(Cursor{Seq: 15}); !errors.Is(err, ErrCursorAhead) {
		t.Errorf("after deletion: %v", err)
	}
	w2 := g.Writer(store.claim("s"), WriterOptions{})
	put(t, w2, strings.Split(strings.Repeat("y", 20), "")...)
	if err := next(Cursor{Seq: 15}); !errors.Is(err, ErrCursorAhead) {
		t.Errorf("in the next incarnation: %v", err)
	}
	r := g.Reader(ReadOptions{})
	recs, err := r.Next(ctx)
	if err != nil || deltas(t, recs) != strings.Repeat("y", 20) {
		t.Errorf("from the start of the next incarnation: %v", err)
	}
	if c := r.Cursor(); c.String() != "20.2" {
		t.Errorf("cursor %v", c)
	}
}

// A reader that begins at the start of a trimmed log gets what remains, is told once what
// is missing, and comes back wherever it was cut, also if more was trimmed meanwhile.
func TestWhatRemains(t *testing.T) {
	ctx := context.Background()
	for most := range 4 {
		for cut := range 12 {
			store, g := newTestLog(t, nil)
			w := g.Writer(store.claim("s"), WriterOptions{})
			for i := range 4 { // two deltas, a commit, and a record that stands for trace that a branch leaves out
				put(t, w, fmt.Sprint("a", i), fmt.Sprint("b", i))
				if _, err := w.Commit(ctx, Row{}, nil, &chunk.StepCommitted{}, &chunk.Unknown{Type: chunk.TypeTraceOmitted, Raw: []byte(`{"type":"trace_omitted"}`)}); err != nil {
					t.Fatal(err)
				}
			}
			put(t, w, "last")
			trim := func(floor uint64) {
				if err := store.Trim(ctx, "s", floor, 0); err != nil {
					t.Fatal(err)
				}
			}
			trim(9)
			logs := NewLogs(store, nil) // another process
			defer logs.Close()
			g = mustLog(t, logs)
			got, want := "", "0 3 7 10 11 12 13 14 15 16 17 "
			for r, n := g.Reader(ReadOptions{Max: most}), 0; ; n++ {
				if n == cut && cut > 0 {
					c, err := ParseCursor(r.Cursor().String())
					if err != nil {
						t.Fatal(err)
					}
					if c.InPlan {
						trim(13)
						want = "0 3 7 11 14 15 16 17 "
					}
					r = g.Reader(ReadOptions{After: c, Max: most})
				}
				recs, err := r.Next(ctx)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("pages of %d, cut after %d: %v, after %s", most, cut, err, got)
				}
				for _, rec := range recs {
					got += fmt.Sprintf("%d ", rec.Seq)
					if says := fmt.Sprintf(`{"type":"trace_omitted","agentId":"s","agentType":"","timestamp":%d,"step":0,"throughSequence":9}`, rec.Time); rec.Seq == 0 && string(rec.Data) != says {
						t.Errorf("it says %s, want %s", rec.Data, says)
					}
				}
			}
			if got != want {
				t.Errorf("pages of %d, cut after %d: %s, want %s", most, cut, got, want)
			}
		}
	}
}

// Deletion under readers ends them, wherever they are, and they never see a
// record of the next incarnation.
func TestDeletionUnderReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		w := g.Writer(store.claim("s"), WriterOptions{})
		activate(t, w, chunk.StatusActive)
		put(t, w, "a", "b", "c")
		waiting, behind := g.Reader(ReadOptions{Follow: true}), g.Reader(ReadOptions{Follow: true, Max: 1})
		ctx := context.Background()
		if _, err := behind.Next(ctx); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			for {
				if _, err := waiting.Next(ctx); err != nil {
					done <- err
					return
				}
			}
		}()
		synctest.Wait()
		if err := store.Delete(ctx, "s"); err != nil {
			t.Fatal(err)
		}
		w2 := g.Writer(store.claim("s"), WriterOptions{})
		put(t, w2, "d", "e", "f", "g")
		if err := <-done; !errors.Is(err, ErrCursorAhead) {
			t.Errorf("the waiting reader: %v", err)
		}
		if recs, err := behind.Next(ctx); !errors.Is(err, ErrCursorAhead) {
			t.Errorf("the reader behind: %q, %v", deltas(t, recs), err)
		}
	})
}

// Whatever the interleaving of appends, trims, readers and processes, a reader
// gets exactly the log after its cursor, or ErrTrimmed. One that began at the start and
// came back anywhere gets what remains of trimmed trace.
func TestReadersSeeTheLog(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) { readersSeeTheLog(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func readersSeeTheLog(t *testing.T, rng *rand.Rand) {
	store := newFakeStore()
	var logs [2]*Logs
	for i := range logs {
		logs[i] = NewLogs(store, &Options{TailBytes: 500 + rng.IntN(5000), BatchRecords: 1 + rng.IntN(9)})
		defer logs[i].Close()
	}
	ctx := context.Background()
	w := mustLog(t, logs[0]).Writer(store.claim("s"), WriterOptions{})
	defer w.Close()
	activate(t, w, chunk.StatusActive)
	type outcome struct {
		after  uint64
		keptTo uint64
		recs   []chunk.Record
		err    error
	}
	done := make(chan outcome)
	readers := 0
	var all []chunk.Record // never trimmed
	note := func() {
		for _, r := range store.log("s") {
			if uint64(len(all)) < r.Seq {
				all = append(all, r)
			}
		}
	}
	for range 150 {
		switch n := rng.IntN(20); {
		case n < 10:
			for range 1 + rng.IntN(12) {
				if err := w.Append(ctx, text(strings.Repeat("x", rng.IntN(200)))); err != nil {
					t.Fatal(err)
				}
			}
			if rng.IntN(2) == 0 {
				if err := w.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
		case n < 12:
			if _, err := mustLog(t, logs[1]).Command(ctx, Row{}, say(fmt.Sprint("c", rng.Uint64()), "x")); err != nil {
				t.Fatal(err)
			}
		case n < 13:
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			note()
			head := uint64(len(all))
			if err := store.Trim(ctx, "s", head/2, 0); err != nil {
				t.Fatal(err)
			}
		case n < 17 && readers < 40:
			h, err := store.Head(ctx, "s")
			if err != nil {
				t.Fatal(err)
			}
			after := h.Seq
			if h.Seq > 0 {
				after = rng.Uint64N(h.Seq + 1)
			}
			if rng.IntN(3) == 0 {
				after = 0
			}
			g, most, slow, cut := mustLog(t, logs[rng.IntN(2)]), rng.IntN(20), rng.IntN(3) == 0, rng.IntN(2) == 0
			readers++
			go func() {
				o := outcome{after: after}
				r := g.Reader(ReadOptions{After: Cursor{Seq: after, Incarnation: 1}, Max: most})
				for {
					recs, err := r.Next(ctx)
					if err != nil {
						o.err = err
						done <- o
						return
					}
					o.recs, o.keptTo = append(o.recs, recs...), max(o.keptTo, r.keptTo)
					if cut {
						r = g.Reader(ReadOptions{After: r.Cursor(), Max: most})
					}
					if slow {
						time.Sleep(time.Millisecond)
					}
				}
			}()
		default:
			note()
			time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
		}
		note()
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	activate(t, w, chunk.StatusEnded)
	note()
	for range readers {
		o := <-done
		if !errors.Is(o.err, io.EOF) && !errors.Is(o.err, ErrTrimmed) {
			t.Fatal(o.err)
		}
		want := all[o.after:]
		if len(o.recs) > 0 && o.recs[0].Seq == 0 {
			if o.recs[0].Type != chunk.TypeTraceOmitted || o.after != 0 || o.keptTo == 0 {
				t.Fatalf("a reader after %d is told %s of trace up to %d", o.after, o.recs[0].Data, o.keptTo)
			}
			o.recs = o.recs[1:]
			want = slices.DeleteFunc(slices.Clone(all), func(r chunk.Record) bool { return r.Class == chunk.Trace && r.Seq <= o.keptTo })
		}
		if o.err != io.EOF {
			want = want[:len(o.recs)]
		}
		if len(o.recs) != len(want) {
			t.Fatalf("a reader after %d got %d records of %d", o.after, len(o.recs), len(want))
		}
		for i, r := range o.recs {
			if r.Seq != want[i].Seq || string(r.Data) != string(want[i].Data) {
				t.Fatalf("a reader after %d got at %d record %d", o.after, i, r.Seq)
			}
		}
	}
}

// A reader that nobody calls holds neither memory nor the writer; one that
// stopped long ago goes on where it was.
func TestStalledReadersCostNothing(t *testing.T) {
	store, g := newTestLog(t, &Options{TailBytes: 64 << 10})
	w := g.Writer(store.claim("s"), WriterOptions{})
	activate(t, w, chunk.StatusActive)
	put(t, w, "first")
	readers := make([]*Reader, 1000)
	for i := range readers {
		readers[i] = g.Reader(ReadOptions{})
		if _, err := readers[i].Next(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	goroutines := runtime.NumGoroutine()
	for i := range 5000 {
		if err := w.Append(context.Background(), text(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	activate(t, w, chunk.StatusEnded)
	if n := runtime.NumGoroutine(); n > goroutines+1 {
		t.Errorf("%d goroutines, before %d", n, goroutines)
	}
	g.tail.mu.Lock()
	size := g.tail.size
	g.tail.mu.Unlock()
	if size > 64<<10 {
		t.Errorf("the tail holds %d bytes", size)
	}
	n := 0
	for {
		recs, err := readers[7].Next(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		contiguous(t, recs, uint64(1+n))
		n += len(recs)
	}
	if n != 5000 {
		t.Errorf("%d records", n)
	}
}

// Nothing runs for a log that nobody waits on.
func TestWatcherStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		logs := NewLogs(store, nil)
		g := mustLog(t, logs)
		w := g.Writer(store.claim("s"), WriterOptions{})
		activate(t, w, chunk.StatusActive)
		for range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			go func() {
				defer cancel()
				if _, err := g.Reader(ReadOptions{}).Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		g.tail.mu.Lock()
		if !g.tail.watching || g.tail.waiters != 100 {
			t.Errorf("watching %v for %d readers", g.tail.watching, g.tail.waiters)
		}
		g.tail.mu.Unlock()
		time.Sleep(2 * watchFor)
		synctest.Wait()
		g.tail.mu.Lock()
		defer g.tail.mu.Unlock()
		if g.tail.watching {
			t.Error("a watcher runs for nobody")
		}
		// The bubble fails if a goroutine is left; logs.Close is not called.
	})
}

// A store that cannot be watched for a while only delays readers.
func TestWatchSurvivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		broken := &brokenWait{fakeStore: store, left: 20}
		logs := NewLogs(broken, nil)
		defer logs.Close()
		w := mustLog(t, logs).Writer(store.claim("s"), WriterOptions{})
		activate(t, w, chunk.StatusActive)
		elsewhere := NewLogs(store, nil)
		defer elsewhere.Close()
		done := make(chan error)
		go func() {
			_, err := mustLog(t, logs).Reader(ReadOptions{}).Next(context.Background())
			done <- err
		}()
		synctest.Wait()
		if _, err := mustLog(t, elsewhere).Command(context.Background(), Row{}, say("c1", "x")); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if broken.left != 0 {
			t.Errorf("%d failures were not met", broken.left)
		}
	})
}

type brokenWait struct {
	*fakeStore
	left int
}

func (b *brokenWait) Wait(ctx context.Context, session string, seen Head) (Head, []chunk.Record, error) {
	if b.left > 0 {
		b.left--
		return Head{}, nil, errors.New("connection lost")
	}
	return b.fakeStore.Wait(ctx, session, seen)
}

type closedStore struct {
	*fakeStore
	closed chan struct{}
}

func (c *closedStore) Wait(ctx context.Context, _ string, _ Head) (Head, []chunk.Record, error) {
	select {
	case <-c.closed:
		return Head{}, nil, ErrClosed
	case <-ctx.Done():
		return Head{}, nil, ctx.Err()
	}
}

func TestClosedStoreEndsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &closedStore{newFakeStore(), make(chan struct{})}
		logs := NewLogs(store, nil)
		defer logs.Close()
		g := mustLog(t, logs)
		activate(t, g.Writer(store.claim("s"), WriterOptions{}), chunk.StatusActive)
		done := make(chan error)
		go func() {
			_, err := g.Reader(ReadOptions{}).Next(context.Background())
			done <- err
		}()
		go func() {
			_, err := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)}).Follow(Head{}, 0).Next(context.Background())
			done <- err
		}()
		synctest.Wait()
		close(store.closed)
		for range 2 {
			if err := <-done; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
	})
}
