package spool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// copies is a stateless projector: a frame for each record that it shows.
type copies struct{ skip int }

func (c *copies) shows(r chunk.Record) bool { return c.skip == 0 || len(r.Data)%c.skip != 0 }

func (c *copies) Apply(dst []Frame, r chunk.Record) ([]Frame, error) {
	if !c.shows(r) {
		return dst, nil
	}
	return append(dst, Frame{Data: fmt.Appendf(nil, "data: %s\n\n", r.Data), Seq: r.Seq}), nil
}

func (c *copies) Plan() ([]Frame, error) { return nil, nil }

func ofCopies(skip int) ProjectionOptions {
	return ProjectionOptions{Key: fmt.Sprint("copies", skip), Stateless: true, New: func() Projector { return &copies{skip} }}
}

// chained is copies whose frames name the record before, if it has shown one.
type chained struct {
	copies
	before string
}

func (c *chained) Apply(dst []Frame, r chunk.Record) ([]Frame, error) {
	if !c.shows(r) {
		return dst, nil
	}
	this := fmt.Sprint(r.Type, r.Seq)
	dst = append(dst, Frame{Data: fmt.Appendf(nil, "data: %s>%s>%s\n\n", c.before, this, r.Data), Seq: r.Seq})
	c.before = this
	return dst, nil
}

func (c *chained) Render(dst []byte, r *chunk.Record) []byte {
	frames, _ := c.Apply(nil, *r)
	for _, f := range frames {
		dst = append(dst, f.Data...)
	}
	return dst
}

func ofChained(skip int) ProjectionOptions {
	return ProjectionOptions{Key: fmt.Sprint("chained", skip), Stateless: true, Chained: true, New: func() Projector { return &chained{copies: copies{skip}} }}
}

// unchained returns the events of chained as those of copies. It fails if one names a record
// before it that its reader has not just been given.
func unchained(stream string) (string, error) {
	var b strings.Builder
	given := ""
	for e := range strings.SplitAfterSeq(stream, "\n\n") {
		id, data, is := strings.Cut(e, "data: ")
		if !is {
			continue
		}
		link := strings.SplitN(data, ">", 3)
		if link[0] != "" && link[0] != given || given == "" && link[0] != "" {
			return "", fmt.Errorf("%q comes after %q", e, given)
		}
		given = link[1]
		b.WriteString(id + "data: " + link[2])
	}
	return b.String(), nil
}

// renderedAfter renders what a projector alone makes of the records after a position.
func renderedAfter(t testing.TB, proj Projector, recs []chunk.Record, after, incarnation uint64) string {
	t.Helper()
	var b strings.Builder
	for _, r := range recs {
		frames, err := proj.Apply(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Seq <= after {
			continue
		}
		for _, f := range frames {
			if f.Seq != 0 {
				fmt.Fprintf(&b, "id: %s\n", Cursor{Seq: f.Seq, Incarnation: incarnation})
			}
			b.Write(f.Data)
		}
	}
	return b.String()
}

// Where records lie that this process has not followed, and that were trimmed
// elsewhere, a reader beyond them misses nothing.
func TestStatelessBeyondATrim(t *testing.T) {
	ctx := context.Background()
	store, g := newTestLog(t, nil)
	put(t, g.Writer(store.claim("s"), WriterOptions{}), "a", "b")
	seen, err := follow(t, g.Projection(ofCopies(0)).Follow(Head{}, 0))
	if err != nil || !strings.Contains(seen, "id: 2\n") {
		t.Fatalf("%q, %v", seen, err)
	}
	elsewhere := NewLogs(store, nil)
	defer elsewhere.Close()
	w := mustLog(t, elsewhere).Writer(store.claim("s"), WriterOptions{})
	put(t, w, "c", "d", "e", "f", "g", "h")
	all := store.log("s")
	if err := store.Trim(ctx, "s", 6, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for after, want := range map[uint64]error{0: ErrTrimmed, 2: ErrTrimmed, 5: ErrTrimmed, 6: nil, 7: nil, 8: nil} {
			got, err := follow(t, g.Projection(ofCopies(0)).Follow(Head{}, after))
			if !errors.Is(err, want) || want == nil && got != renderedAfter(t, &copies{}, all, after, 1) {
				t.Errorf("after %d: %q, %v", after, got, err)
			}
		}
	}
}

// A reader of the log that begins at the start gets what remains of trimmed trace, with
// places in a plan as ids, and comes back at any of them: in a process that has read
// nothing, in one that still has the frames of what was trimmed, and after another trim.
func TestFollowWhatRemains(t *testing.T) {
	ctx := context.Background()
	for _, o := range []ProjectionOptions{ofCopies(0), ofCopies(3), ofChained(0), ofChained(3)} {
		store, here := newTestLog(t, nil)
		w := here.Writer(store.claim("s"), WriterOptions{})
		for i := range 30 {
			put(t, w, "a", strings.Repeat("b", i))
			if _, err := w.Commit(ctx, Row{}, nil, &chunk.StepCommitted{StepID: strings.Repeat("s", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := follow(t, here.Projection(o).Follow(Head{}, 0)); err != nil {
			t.Fatal(err)
		}
		read := func(g *Log, after Cursor) (events []string) {
			t.Helper()
			f := g.Projection(o).FollowLog(Head{}, after)
			var stream strings.Builder
			for {
				b, err := f.Next(ctx)
				if err != nil {
					t.Fatalf("after %s: %v", after, err)
				}
				stream.Write(b.Bytes)
				if b.Quiet {
					got := stream.String()
					if o.Chained {
						if got, err = unchained(got); err != nil {
							t.Fatalf("after %s: %v", after, err)
						}
					}
					return strings.SplitAfter(strings.TrimSuffix(got, "\n\n"), "\n\n")
				}
			}
		}
		elsewhere := func() *Log {
			logs := NewLogs(store, nil)
			t.Cleanup(func() { logs.Close() })
			return mustLog(t, logs)
		}
		text := func(events []string) string { // without their ids
			var b strings.Builder
			for _, e := range events {
				_, data, _ := strings.Cut(e, "\n")
				b.WriteString(strings.TrimSuffix(data, "\n\n") + "\n")
			}
			return b.String()
		}
		if err := store.Trim(ctx, "s", 50, 0); err != nil {
			t.Fatal(err)
		}
		all := read(elsewhere(), Cursor{})
		if same := read(here, Cursor{}); !slices.Equal(same, all) {
			t.Errorf("where the frames are: %q\nelsewhere: %q", same, all)
		}
		told, trace := 0, 0
		for i, e := range all {
			told += strings.Count(e, `"trace_omitted"`)
			id, _, _ := strings.Cut(strings.TrimPrefix(e, "id: "), "\n")
			c, err := ParseCursor(id)
			if err != nil || i == 0 && id != "p1-50" || c.InPlan != (c.Seq == 50 && !strings.HasPrefix(id, "50")) {
				t.Fatalf("%q, %v", e, err)
			}
			if c.Seq == 50 {
				trace += strings.Count(e, `"text_delta"`)
			}
			rest := read(elsewhere(), c)
			if i == len(all)-1 {
				rest = nil
			}
			if got := text(append(slices.Clone(all[:i+1]), rest...)); got != text(all) {
				t.Errorf("cut at %s:\n%s\nwant\n%s", id, got, text(all))
			}
		}
		if told != 1 || trace != 0 {
			t.Errorf("told %d times, with %d deltas: %q", told, trace, all)
		}
		cut, err := ParseCursor("p4-50")
		if err != nil || store.Trim(ctx, "s", 80, 0) != nil {
			t.Fatal(err)
		}
		later := read(elsewhere(), Cursor{})
		if got := text(append(slices.Clone(all[:4]), read(elsewhere(), cut)...)); got != strings.Replace(text(later), `:80}`, `:50}`, 1) {
			t.Errorf("after another trim:\n%s\nwant\n%s", got, text(later))
		}
	}
}

// A follower that polled is woken by what came since, also if another follower
// has been there first.
func TestAwaitAfterPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store, g := newTestLog(t, nil)
		w := g.Writer(store.claim("s"), WriterOptions{})
		activate(t, w, chunk.StatusActive)
		put(t, w, "a")
		p := g.Projection(ofCopies(0))
		f := p.Follow(Head{}, 0)
		for f.At() < 1 {
			if _, err := f.Poll(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := f.Poll(ctx); err != nil || len(b.Frames) > 0 {
			t.Fatalf("%+v, %v", b, err)
		}
		put(t, w, "b")
		if b, err := p.Follow(Head{}, 1).Poll(ctx); err != nil || len(b.Frames) != 1 {
			t.Fatalf("%+v, %v", b, err)
		}
		soon, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		if err := f.Await(soon); err != nil {
			t.Error(err)
		}
	})
}

// A follower belongs to the incarnation that its caller has seen, whatever the log
// has become by the time it reads.
func TestFollowerKeepsItsIncarnation(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprint(stateless), func(t *testing.T) {
			ctx := context.Background()
			store, g := newTestLog(t, &Options{TailBytes: 2000})
			w := g.Writer(store.claim("s"), WriterOptions{})
			for i := range 100 {
				put(t, w, fmt.Sprint("first life ", i))
			}
			h, err := g.Head(ctx)
			if err != nil {
				t.Fatal(err)
			}
			o := ofCopies(0)
			o.Stateless, o.Incarnation = stateless, h.Incarnation
			if _, err := follow(t, g.Projection(o).Follow(h, 90)); err != nil {
				t.Fatal(err)
			}
			if err := store.Delete(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			w = g.Writer(store.claim("s"), WriterOptions{})
			for i := range 120 {
				put(t, w, fmt.Sprint("second life ", i))
			}
			for _, after := range []uint64{0, 1, 95, 100} {
				p := g.Projection(o)
				if got, err := follow(t, p.Follow(h, after)); !errors.Is(err, ErrCursorAhead) || strings.Contains(got, "second life") {
					t.Errorf("after %d: %q, %v", after, got, err)
				}
				if _, _, err := g.Projection(o).Attach(ctx, h); !errors.Is(err, ErrCursorAhead) {
					t.Errorf("a plan: %v", err)
				}
				if _, err := g.Projection(o).At(ctx, h, 50); !errors.Is(err, ErrCursorAhead) {
					t.Errorf("a projector at 50: %v", err)
				}
			}
		})
	}
}

// A reader that waits for something in a log does not look for it in the log's next
// incarnation.
func TestUntilEndsWithTheIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store, g := newTestLog(t, nil)
		put(t, g.Writer(store.claim("s"), WriterOptions{}), "a")
		done := make(chan error)
		go func() {
			done <- g.Until(ctx, Head{}, func(f *fold.Fold) (Look, error) {
				if f.Verdict("c").State != fold.VerdictUnknown {
					return Seen, nil
				}
				return Surely, nil
			})
		}()
		synctest.Wait()
		store.mu.Lock() // nobody sees the session gone
		store.dead["s"] = fakeGrave{store.sessions["s"].head.Epoch, 1}
		delete(store.sessions, "s")
		store.mu.Unlock()
		if _, err := g.Command(ctx, Row{}, say("c", "x")); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrCursorAhead) {
			t.Error(err)
		}
	})
}

// Any interleaving of appends here and elsewhere, small ones and bursts larger
// than what is shared, of trims, deletions and lost claims, with followers of
// several projections that come anywhere, at any speed: each gets exactly what
// comes after its cursor, or is told why it cannot.
func TestFollowersSeeTheLog(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) { followersSeeTheLog(t, rand.New(rand.NewPCG(seed, 3))) })
	}
}

type lifetime struct {
	incarnation uint64
	recs        []chunk.Record // never trimmed
}

type followed struct {
	incarnation uint64
	after       uint64
	skip        int // -1: lines
	chained     bool
	got         string
	err         error
}

func followersSeeTheLog(t *testing.T, rng *rand.Rand) {
	ctx := context.Background()
	store := newFakeStore()
	var logs [2]*Logs
	for i := range logs {
		logs[i] = NewLogs(store, &Options{TailBytes: 500 + rng.IntN(8000), BatchRecords: 1 + rng.IntN(9)})
		defer logs[i].Close()
	}
	owner := 0
	w := mustLog(t, logs[owner]).Writer(store.claim("s"), WriterOptions{Name: "0"})
	defer func() { w.Close() }()
	activate(t, w, chunk.StatusActive)
	lives := []*lifetime{{incarnation: 1}}
	note := func() {
		life := lives[len(lives)-1]
		for _, r := range store.log("s") {
			if uint64(len(life.recs)) < r.Seq {
				life.recs = append(life.recs, r)
			}
		}
	}
	done := make(chan followed, 200)
	trimmed := false
	follows := rng.IntN(2) == 0
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	for range 120 {
		switch k := rng.IntN(24); {
		case k < 9:
			for range 1 + rng.IntN(12) {
				var c chunk.Chunk = text(strings.Repeat("x", rng.IntN(200)))
				if rng.IntN(12) == 0 {
					c = &chunk.RunFinished{}
				}
				if err := w.Append(ctx, c); err != nil {
					t.Fatal(err)
				}
			}
		case k < 11:
			for range 50 + rng.IntN(100) {
				if err := w.Append(ctx, text(strings.Repeat("y", 100+rng.IntN(200)))); err != nil {
					t.Fatal(err)
				}
			}
		case k < 12:
			if _, err := mustLog(t, logs[rng.IntN(2)]).Command(ctx, Row{}, say(fmt.Sprint("c", rng.Uint64()), "x")); err != nil {
				t.Fatal(err)
			}
		case k < 13: // another process goes on
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			w.Close()
			owner = rng.IntN(2)
			w = mustLog(t, logs[owner]).Writer(store.claim("s"), WriterOptions{Name: "0"})
		case k < 14:
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			note()
			trimmed = true
			if err := store.Trim(ctx, "s", rng.Uint64N(uint64(len(lives[len(lives)-1].recs))+1), 0); err != nil {
				t.Fatal(err)
			}
		case k < 15 && rng.IntN(3) == 0:
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			note()
			w.Close()
			if err := store.Delete(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(2) == 0 {
				time.Sleep(time.Millisecond)
			}
			w = mustLog(t, logs[owner]).Writer(store.claim("s"), WriterOptions{Name: "0"})
			activate(t, w, chunk.StatusActive)
			lives = append(lives, &lifetime{incarnation: lives[len(lives)-1].incarnation + 1})
			put(t, w, "new")
		case k < 21 && n < cap(done):
			g := mustLog(t, logs[rng.IntN(2)])
			since := g.tail.seen()
			h, err := store.Head(ctx, "s")
			if err != nil {
				t.Fatal(err)
			}
			o := followed{incarnation: h.Incarnation, after: rng.Uint64N(h.Seq + 1), skip: rng.IntN(4) - 1, chained: rng.IntN(2) == 0}
			slow, poll, impatient := time.Duration(rng.IntN(4)), rng.IntN(3) == 0, rng.IntN(4) == 0
			if rng.IntN(2) == 0 {
				g.tail.observe(h, since)
			} else {
				h = Head{}
			}
			n++
			go func() {
				done <- followLog(stop, g, o, h, slow, poll, follows, impatient)
			}()
		default:
			time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
		}
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	activate(t, w, chunk.StatusEnded)
	note()
	if follows { // they wait for ever
		time.Sleep(3 * time.Second)
		synctest.Wait()
		cancel()
	}
	for range n {
		o := <-done
		life := lives[o.incarnation-1]
		var proj Projector = &lines{}
		if o.skip >= 0 {
			proj = &copies{o.skip}
		}
		want := renderedAfter(t, proj, life.recs, o.after, o.incarnation)
		if o.skip >= 0 && o.chained {
			var err error
			if o.got, err = unchained(o.got); err != nil {
				t.Fatalf("a follower of %d after %d.%d: %v", o.skip, o.after, o.incarnation, err)
			}
		}
		switch {
		case o.err == nil && o.got == want && o.incarnation == uint64(len(lives)):
		case (errors.Is(o.err, ErrCursorAhead) || errors.Is(o.err, ErrNotFound)) && o.incarnation < uint64(len(lives)) && strings.HasPrefix(want, o.got):
		case errors.Is(o.err, ErrTrimmed) && trimmed && strings.HasPrefix(want, o.got):
		case o.skip < 0 && trimmed && o.after == 0: // may be made of kept records
		default:
			t.Fatalf("a follower of %d after %d.%d got %d bytes of %d, %v; trimmed %v, %d lives, prefix %v", o.skip, o.after, o.incarnation,
				len(o.got), len(want), o.err, trimmed, len(lives), strings.HasPrefix(want, o.got))
		}
	}
}

// followLog reads to the log's quiet or, with follows, until ctx ends.
func followLog(ctx context.Context, g *Log, o followed, h Head, slow time.Duration, poll, follows, impatient bool) followed {
	opts := ofCopies(max(o.skip, 0))
	if o.chained {
		opts = ofChained(max(o.skip, 0))
	}
	if o.skip < 0 {
		opts = ProjectionOptions{Key: "lines", New: mkLines(nil)}
	}
	opts.Incarnation = o.incarnation
	opts.Key += fmt.Sprint("/", o.incarnation)
	f := g.Projection(opts).Follow(h, o.after)
	var b strings.Builder
	for {
		var batch Batch
		var err error
		try, cancel := ctx, context.CancelFunc(func() {})
		if impatient {
			try, cancel = context.WithTimeout(ctx, 100*time.Microsecond)
		}
		switch {
		case poll:
			if batch, err = f.Poll(try); err == nil && len(batch.Frames) == 0 && !(batch.Quiet && !follows) {
				err = f.Await(try)
			}
		case follows:
			batch, err = f.NextFollowing(try)
		default:
			batch, err = f.Next(try)
		}
		cancel()
		b.Write(batch.Bytes)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			o.got = b.String()
			return o
		case errors.Is(err, context.DeadlineExceeded) && impatient:
			time.Sleep(time.Millisecond)
			continue
		default:
			o.err, o.got = err, b.String()
			return o
		}
		if batch.Quiet && !follows {
			o.got = b.String()
			return o
		}
		time.Sleep(slow * time.Millisecond)
	}
}

// interrupting is a stateless projector that shows nothing before its last record,
// and whose reader runs out of time every so many records.
type interrupting struct {
	last   uint64
	every  uint64
	cancel *context.CancelFunc
}

func (i *interrupting) Apply(dst []Frame, r chunk.Record) ([]Frame, error) {
	if r.Seq%i.every == 0 {
		(*i.cancel)()
	}
	if r.Seq != i.last {
		return dst, nil
	}
	return append(dst, Frame{Data: []byte("data: last\n\n"), Seq: r.Seq}), nil
}

func (i *interrupting) Plan() ([]Frame, error) { return nil, nil }

// A reader far behind, whose calls are each too short for what it must pass over,
// makes progress with each.
func TestShortCallsMakeProgress(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		store, g := newTestLog(t, &Options{TailBytes: 4000})
		w := g.Writer(store.claim("s"), WriterOptions{})
		const n = 2000
		for range n {
			if err := w.Append(context.Background(), text("a")); err != nil {
				t.Fatal(err)
			}
		}
		put(t, w, strings.Repeat("z", 8000))
		var cancel context.CancelFunc
		f := g.Projection(ProjectionOptions{Key: "i", Stateless: stateless, New: func() Projector {
			return &interrupting{last: n, every: 300, cancel: &cancel}
		}}).Follow(Head{}, 1)
		calls := 0
		for ; calls < 50; calls++ {
			var ctx context.Context
			ctx, cancel = context.WithCancel(context.Background())
			b, err := f.catchUp(ctx, segmentBytes)
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if len(b.Frames) > 0 {
				break
			}
		}
		if calls == 50 {
			t.Errorf("stateless %v: %d calls, and the reader is at %d", stateless, calls, f.At())
		}
	}
}
