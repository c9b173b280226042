package spool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
)

// lines is a projector for tests: a line for each delta, two for a kept record,
// a terminal one for run_finished. Its plan is all the text so far.
type lines struct {
	text    strings.Builder
	applied *atomic.Int64
}

func (l *lines) Apply(dst []Frame, r chunk.Record) ([]Frame, error) {
	if l.applied != nil {
		l.applied.Add(1)
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	switch c := c.(type) {
	case *chunk.TextDelta:
		l.text.WriteString(c.Delta)
		if c.Delta == "" {
			return dst, nil
		}
		return append(dst, Frame{Data: []byte("data: " + c.Delta + "\n\n"), Seq: r.Seq}), nil
	case *chunk.RunFinished:
		return append(dst, Frame{Data: []byte("data: last\n\n")},
			Frame{Data: []byte("data: end\n\n"), Seq: r.Seq, Terminal: true}), nil
	case *chunk.StreamResync:
		return append(dst, Frame{Data: []byte("data: cut\n\n"), Cut: true}), nil
	}
	return append(dst, Frame{Data: []byte("data: kept\n\n")}, Frame{Data: []byte("data: " + string(r.Type) + "\n\n"), Seq: r.Seq}), nil
}

func (l *lines) Plan() ([]Frame, error) { return []Frame{{Data: []byte(l.text.String())}}, nil }

// sse renders what a projector alone makes of records.
func sse(t testing.TB, recs []chunk.Record, after uint64) string {
	t.Helper()
	var b strings.Builder
	l := &lines{}
	for _, r := range recs {
		frames, err := l.Apply(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Seq > after {
			for _, f := range frames {
				if f.Seq != 0 {
					fmt.Fprintf(&b, "id: %d\n", f.Seq)
				}
				b.Write(f.Data)
			}
		}
	}
	return b.String()
}

// follow reads to the log's quiet, and checks that bytes and frames agree.
func follow(t testing.TB, f *Follower) (string, error) {
	var b strings.Builder
	at := f.after
	for {
		batch, err := f.Next(context.Background())
		if err != nil {
			return b.String(), err
		}
		b.Write(batch.Bytes)
		var plain, whole int
		for i, fr := range batch.Frames {
			whole += len(fr.Data)
			if fr.Seq != 0 {
				whole += len("id: \n") + len(Cursor{Seq: fr.Seq, Incarnation: f.p.src.r.incarnation}.String())
			}
			if i < batch.PlainFrames {
				plain = whole
			}
			if (fr.Terminal || fr.Cut) == (i < batch.PlainFrames) {
				t.Errorf("frame %d of %d, terminal %v, plain %d", i, len(batch.Frames), fr.Terminal, batch.PlainFrames)
			}
		}
		if plain != batch.Plain || whole != len(batch.Bytes) {
			t.Errorf("batch of %d bytes, plain %d; its frames have %d, plain %d", len(batch.Bytes), batch.Plain, whole, plain)
		}
		if batch.At < at || len(batch.Frames) > 0 && batch.At == at {
			t.Errorf("from %d to %d", at, batch.At)
		}
		at = batch.At
		if batch.Quiet {
			return b.String(), nil
		}
	}
}

func mkLines(applied *atomic.Int64) func() Projector {
	return func() Projector { return &lines{applied: applied} }
}

func TestProjectionIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, g := newTestLog(t, nil)
		var applied atomic.Int64
		w := g.Writer(store.claim("s"), WriterOptions{})
		activate(t, w, chunk.StatusActive)
		p := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(&applied)})
		if again := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(&applied)}); again != p {
			t.Fatal("another projection of the same key")
		}
		got := make(chan string)
		for range 100 {
			go func() {
				s, err := follow(t, p.Follow(Head{}, 0))
				if err != nil {
					t.Error(err)
				}
				got <- s
			}()
		}
		for i := range 50 {
			put(t, w, fmt.Sprint(i))
			if i%5 == 0 {
				synctest.Wait()
			}
		}
		if _, err := w.Commit(context.Background(), Row{Status: chunk.StatusEnded}, nil, &chunk.StepCommitted{}, &chunk.RunFinished{}); err != nil {
			t.Fatal(err)
		}
		want := sse(t, store.log("s"), 0)
		for range 100 {
			if s := <-got; s != want {
				t.Fatalf("a reader got %q, want %q", s, want)
			}
		}
		if n := applied.Load(); n != 52 {
			t.Errorf("%d records were projected, want 52", n)
		}
		plan, at, err := p.Attach(context.Background(), Head{})
		if err != nil || at != 52 || !strings.HasPrefix(string(plan[0].Data), "012345") {
			t.Errorf("plan %v at %d, %v", plan, at, err)
		}
		before, err := p.At(context.Background(), Head{}, 3)
		if err != nil || before.(*lines).text.String() != "012" {
			t.Errorf("the projector at 3: %v, %v", before, err)
		}
		b, err := p.Follow(Head{}, 51).Next(context.Background())
		if err != nil || !b.Quiet || b.At != 52 || len(b.Frames) != 2 {
			t.Errorf("after 51: %+v, %v", b, err)
		}
		b, err = p.Follow(Head{}, 52).Next(context.Background())
		if err != nil || !b.Quiet || b.At != 52 || len(b.Frames) != 0 {
			t.Errorf("after 52: %+v, %v", b, err)
		}
		if _, err := p.Follow(Head{}, 53).Next(context.Background()); !errors.Is(err, ErrCursorAhead) {
			t.Errorf("after 53: %v", err)
		}
	})
}

// Frames that the ring has dropped are made again, for readers that need them, and a
// batch ends with every terminal frame.
func TestProjectionBehindTheRing(t *testing.T) {
	store, g := newTestLog(t, &Options{TailBytes: 64 << 10})
	w := g.Writer(store.claim("s"), WriterOptions{})
	activate(t, w, chunk.StatusActive)
	ctx := context.Background()
	for i := range 40 {
		for j := range 20 {
			if err := w.Append(ctx, text(fmt.Sprint(i, " ", j, strings.Repeat("x", 200)))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Commit(ctx, Row{}, nil, &chunk.RunFinished{}); err != nil {
			t.Fatal(err)
		}
	}
	activate(t, w, chunk.StatusEnded)
	p := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)})
	fresh, err := follow(t, p.Follow(Head{}, 0))
	if err != nil {
		t.Fatal(err)
	}
	all := store.log("s")
	if want := sse(t, all, 0); fresh != want {
		t.Fatalf("from the start: %d bytes, want %d", len(fresh), len(want))
	}
	p.mu.Lock()
	base, size := p.ring.base, 0
	for _, s := range p.ring.segs {
		size += s.size()
	}
	p.mu.Unlock()
	if base == 0 || size > 64<<10 {
		t.Fatalf("the ring begins after %d and holds %d bytes", base, size)
	}
	for _, after := range []uint64{0, 1, 20, 21, base - 1, base, base + 1, 839, 840} {
		got, err := follow(t, p.Follow(Head{}, after))
		if want := sse(t, all, after); err != nil || got != want {
			t.Errorf("after %d: %d bytes, want %d, %v", after, len(got), len(want), err)
		}
	}
}

func TestProjectionOfTrimmedLog(t *testing.T) {
	store, g := newTestLog(t, nil)
	w := g.Writer(store.claim("s"), WriterOptions{})
	ctx := context.Background()
	put(t, w, "a", "b")
	if _, err := w.Commit(ctx, Row{}, nil, &chunk.StepCommitted{}); err != nil {
		t.Fatal(err)
	}
	put(t, w, "c", "d")
	if err := store.Trim(ctx, "s", 3, 0); err != nil {
		t.Fatal(err)
	}
	logs := NewLogs(store, nil)
	defer logs.Close()
	p := mustLog(t, logs).Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)})
	for _, test := range []struct {
		after uint64
		want  string
		err   error
	}{
		{0, sse(t, store.log("s"), 0), nil},
		{1, "", ErrTrimmed},
		{2, "", ErrTrimmed},
		{3, "id: 4\ndata: c\n\nid: 5\ndata: d\n\n", nil},
	} {
		got, err := follow(t, p.Follow(Head{}, test.after))
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("after %d: %q, %v", test.after, got, err)
		}
	}
	if plan, at, err := p.Attach(ctx, Head{}); err != nil || at != 5 || string(plan[0].Data) != "cd" {
		t.Errorf("plan %v at %d, %v", plan, at, err)
	}
}

// A projection ends with its incarnation; the next caller gets another.
func TestProjectionEndsWithItsIncarnation(t *testing.T) {
	store, g := newTestLog(t, nil)
	ctx := context.Background()
	put(t, g.Writer(store.claim("s"), WriterOptions{}), "a", "b")
	p := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)})
	if _, err := follow(t, p.Follow(Head{}, 0)); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	elsewhere := NewLogs(store, nil)
	defer elsewhere.Close()
	put(t, mustLog(t, elsewhere).Writer(store.claim("s"), WriterOptions{}), "c", "d", "e")
	if got, err := follow(t, p.Follow(Head{}, 2)); !errors.Is(err, ErrCursorAhead) {
		t.Errorf("%q, %v", got, err)
	}
	again := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)})
	if again == p {
		t.Fatal("the same projection")
	}
	got, err := follow(t, again.Follow(Head{}, 0))
	if want := "id: 1.2\ndata: c\n\nid: 2.2\ndata: d\n\nid: 3.2\ndata: e\n\n"; err != nil && got != want {
		t.Errorf("%q, %v", got, err)
	}
}

type failing struct{ lines }

func (f *failing) Apply(dst []Frame, r chunk.Record) ([]Frame, error) {
	if r.Seq == 3 {
		return dst, errors.New("no")
	}
	return f.lines.Apply(dst, r)
}

func TestProjectorError(t *testing.T) {
	store, g := newTestLog(t, nil)
	put(t, g.Writer(store.claim("s"), WriterOptions{}), "a", "b", "c")
	p := g.Projection(ProjectionOptions{Key: "f", After: 0, New: func() Projector { return &failing{} }})
	if _, err := follow(t, p.Follow(Head{}, 0)); err == nil || err.Error() != "no" {
		t.Error(err)
	}
}

// Any interleaving of appends and followers that come anywhere, at any speed:
// each gets what a projector alone would have made.
func TestFollowersGetTheProjection(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) { followersGetTheProjection(t, rand.New(rand.NewPCG(seed, 2))) })
	}
}

func followersGetTheProjection(t *testing.T, rng *rand.Rand) {
	store, g := newTestLog(t, &Options{TailBytes: 5000})
	ctx := context.Background()
	w := g.Writer(store.claim("s"), WriterOptions{})
	activate(t, w, chunk.StatusActive)
	type outcome struct {
		after uint64
		text  string
	}
	done := make(chan outcome)
	followers := 0
	for range 40 {
		for range rng.IntN(15) {
			if rng.IntN(6) == 0 {
				if err := w.Append(ctx, &chunk.RunFinished{}, &chunk.StreamResync{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Append(ctx, text(strings.Repeat("x", max(0, rng.IntN(100)-10)))); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(4) == 0 {
			after, slow := rng.Uint64N(uint64(len(store.log("s")))+1), time.Duration(rng.IntN(3))
			followers++
			go func() {
				f := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)}).Follow(Head{}, after)
				var b strings.Builder
				for {
					batch, err := f.Next(ctx)
					if err != nil {
						t.Error(err)
						break
					}
					if i := slices.IndexFunc(batch.Frames, func(f Frame) bool { return f.Terminal || f.Cut }); i >= 0 && i != batch.PlainFrames {
						t.Errorf("the first terminal or cut frame is %d, plain are %d", i, batch.PlainFrames)
					}
					b.Write(batch.Bytes)
					if batch.Quiet {
						break
					}
					time.Sleep(slow * time.Millisecond)
				}
				done <- outcome{after, b.String()}
			}()
		}
		time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
	activate(t, w, chunk.StatusEnded)
	all := store.log("s")
	for range followers {
		o := <-done
		if want := sse(t, all, o.after); o.text != want {
			t.Fatalf("a follower after %d got %d bytes, want %d", o.after, len(o.text), len(want))
		}
	}
}
