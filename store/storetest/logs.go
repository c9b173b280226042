package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: a reader of a log of the store through [spool.Logs], wherever it
// begins, while owners take over from each other and histories are trimmed,
// deleted and created again, gets each record after its cursor once and in order, or
// is told that it cannot; nobody waits for what is there.
var logChecks = []check{
	{"ReadersSeeWhatIsStored", func(t *testing.T, x *suite) {
		for seed := 0; seed < 4; seed += x.stride(t) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				readersSee(t, x, rand.New(rand.NewPCG(uint64(seed), 1)))
			})
		}
	}},
}

type place struct{ incarnation, seq uint64 }

// witness notes what its store has taken, and loses one answer in twenty.
type witness struct {
	spool.Store
	mu    sync.Mutex
	rng   *rand.Rand
	taken map[place]string
	twice []place
}

var errLost = errors.New("storetest: the answer is lost")

func (w *witness) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	res, err := w.Store.Append(ctx, a)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || res.Repeated {
		return res, err
	}
	for i, r := range a.Records {
		p := place{res.Head.Incarnation, res.First + uint64(i)}
		if _, there := w.taken[p]; there {
			w.twice = append(w.twice, p)
		}
		w.taken[p] = string(r.Data)
	}
	if w.rng.IntN(20) == 0 {
		return spool.Appended{}, errLost
	}
	return res, nil
}

// view is what one reader was given.
type view struct {
	after, incarnation uint64
	recs               []chunk.Record
	err                error // nil: it saw the last record
}

const lastRecord = "this is the last record"

func readersSee(t *testing.T, x *suite, rng *rand.Rand) {
	c := newCrowd(t, x, rng)
	for range 150 {
		c.act()
	}
	c.take()
	if _, err := c.owner.Commit(c.ctx, spool.Row{Status: chunk.StatusEnded}, &spool.Settle{Seen: 1 << 60}, &chunk.ErrorChunk{Error: lastRecord}); err != nil {
		t.Fatal(err)
	}
	for range c.readers {
		c.judge(<-c.views)
	}
	if len(c.w.twice) > 0 {
		slices.SortFunc(c.w.twice, func(a, b place) int { return int(a.seq) - int(b.seq) })
		t.Errorf("sequences were given twice: %v", c.w.twice)
	}
	for _, l := range append(c.losers, c.owner) {
		_ = l.Close()
	}
}

// crowd is one session's owners and readers in two Logs over one store.
type crowd struct {
	t       *testing.T
	ctx     context.Context
	rng     *rand.Rand
	store   spool.Store
	trimmer spool.Trimmer // nil if the store has none
	w       *witness
	logs    [2]*spool.Log
	owner   *spool.Writer
	losers  []*spool.Writer
	views   chan view
	readers int
	trimmed bool
	floors  map[uint64]uint64 // the highest floor, by incarnation
	deleted bool
}

func newCrowd(t *testing.T, x *suite, rng *rand.Rand) *crowd {
	c := &crowd{t: t, ctx: limit(t), rng: rng, store: x.open(t), views: make(chan view, 100), floors: map[uint64]uint64{}}
	c.trimmer, _ = c.store.(spool.Trimmer)
	c.w = &witness{Store: c.store, rng: rand.New(rand.NewPCG(rng.Uint64(), 2)), taken: map[place]string{}}
	for i := range c.logs {
		l := spool.NewLogs(c.w, &spool.Options{TailBytes: 500 + rng.IntN(10_000), BatchRecords: 1 + rng.IntN(9)})
		t.Cleanup(func() { _ = l.Close() })
		g, err := l.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		c.logs[i] = g
	}
	c.take()
	return c
}

// act does one random thing.
func (c *crowd) act() {
	switch n := c.rng.IntN(30); {
	case n < 12:
		c.write()
	case n < 15:
		m := chunk.Message{ID: "m", Role: chunk.RoleUser}
		if _, err := c.log().Command(c.ctx, spool.Row{}, &chunk.UserMessage{CommandID: fmt.Sprint("c", c.rng.Uint64()), Message: m}); err != nil {
			c.t.Fatal(err)
		}
	case n < 16:
		_, err := c.owner.Commit(c.ctx, spool.Row{Status: []chunk.Status{chunk.StatusActive, chunk.StatusEnded}[c.rng.IntN(2)]}, &spool.Settle{Seen: 1 << 60})
		c.lose(err)
	case n < 18:
		c.take()
	case n < 20 && len(c.losers) > 0:
		c.writeTooLate()
	case n < 21 && c.trimmer != nil:
		c.trimmed = true
		h := head(c.t, c.store, "s")
		if err := c.trimmer.Trim(c.ctx, "s", h.Seq/2, h.Seq/4); err != nil {
			c.t.Fatal(err)
		}
		c.floors[h.Incarnation] = max(c.floors[h.Incarnation], h.Seq/4)
	case n < 22 && c.trimmer != nil && c.rng.IntN(4) == 0:
		c.deleted = true
		if err := c.trimmer.Delete(c.ctx, "s"); err != nil {
			c.t.Fatal(err)
		}
		c.take() // creates a new incarnation
	case c.readers < cap(c.views):
		c.read()
	}
}

func (c *crowd) log() *spool.Log { return c.logs[c.rng.IntN(2)] }

// take changes the owner.
func (c *crowd) take() {
	if c.owner != nil {
		c.losers = append(c.losers, c.owner)
	}
	c.owner = c.log().Writer(own(c.t, c.store, "s", "o"), spool.WriterOptions{})
}

// lose takes the session again if its owner learns that it was deleted.
func (c *crowd) lose(err error) {
	if err == nil {
		return
	}
	if !errors.Is(err, spool.ErrSuperseded) {
		c.t.Fatal(err)
	}
	c.take()
}

func (c *crowd) write() {
	for range 1 + c.rng.IntN(20) {
		c.lose(c.owner.Append(c.ctx, &chunk.TextDelta{Delta: strings.Repeat("x", c.rng.IntN(200))}))
	}
	if c.rng.IntN(2) == 0 {
		c.lose(c.owner.Flush(c.ctx))
	}
}

func (c *crowd) writeTooLate() {
	l := c.losers[c.rng.IntN(len(c.losers))]
	err := l.Append(c.ctx, &chunk.TextDelta{Delta: "too late"})
	if err == nil {
		err = l.Flush(c.ctx)
	}
	if !errors.Is(err, spool.ErrSuperseded) {
		c.t.Fatalf("an owner that was superseded appended: %v", err)
	}
}

// read starts a reader at a random position.
func (c *crowd) read() {
	h := head(c.t, c.store, "s")
	v := view{incarnation: h.Incarnation, after: h.Seq}
	if h.Seq > 0 {
		v.after = c.rng.Uint64N(h.Seq + 1)
	}
	o := spool.ReadOptions{After: spool.Cursor{Seq: v.after, Incarnation: h.Incarnation}, Follow: c.rng.IntN(3) > 0, Max: c.rng.IntN(20)}
	r := c.log().Reader(o)
	c.readers++
	go func() {
		for {
			recs, err := r.Next(c.ctx)
			v.recs = append(v.recs, recs...)
			if err != nil || strings.Contains(string(recs[len(recs)-1].Data), lastRecord) {
				v.err = err
				c.views <- v
				return
			}
		}
	}()
}

// judge compares what one reader was given with what the store took.
func (c *crowd) judge(v view) {
	switch {
	case v.err == nil, errors.Is(v.err, io.EOF), c.trimmed && errors.Is(v.err, spool.ErrTrimmed), c.deleted && errors.Is(v.err, spool.ErrCursorAhead):
	default:
		c.t.Errorf("a reader after %d.%d: %v", v.after, v.incarnation, v.err)
	}
	taken := func(seq uint64) string {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		return c.w.taken[place{v.incarnation, seq}]
	}
	next, gaps := v.after+1, false
	if v.after == 0 && len(v.recs) > 0 && v.recs[0].Seq == 0 { // it is told that trace is missing
		gaps = c.trimmed && v.recs[0].Type == chunk.TypeTraceOmitted
		v.recs = v.recs[1:]
	}
	for i, r := range v.recs {
		for ; gaps && next < r.Seq; next++ {
			if next <= c.floors[v.incarnation] {
				continue
			}
			if omitted, err := chunk.Decode([]byte(taken(next))); err != nil || chunk.ClassOf(omitted) != chunk.Trace {
				c.t.Fatalf("a reader from the start did not get record %d, %s", next, taken(next))
			}
		}
		if r.Seq != next {
			c.t.Fatalf("a reader after %d got record %d as its %dth", v.after, r.Seq, i+1)
		}
		next++
		want := taken(r.Seq)
		if string(r.Data) != want {
			c.t.Fatalf("a reader got at %d.%d\n%s\nbut what was stored is\n%s", r.Seq, v.incarnation, r.Data, want)
		}
	}
}
