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

// Promise: whoever reads a log of the store through [spool.Logs], wherever it
// begins, while owners take over from each other and histories are trimmed,
// deleted and begun anew, gets each record after its cursor once and in order, or
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
	store := x.open(t)
	trimmer, trims := store.(spool.Trimmer)
	w := &witness{Store: store, rng: rand.New(rand.NewPCG(rng.Uint64(), 2)), taken: map[place]string{}}
	var logs [2]*spool.Log
	for i := range logs {
		l := spool.NewLogs(w, &spool.Options{TailBytes: 500 + rng.IntN(10_000), BatchRecords: 1 + rng.IntN(9)})
		defer l.Close()
		g, err := l.Log("s")
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = g
	}
	ctx := limit(t)
	var owner *spool.Writer
	var losers []*spool.Writer
	take := func() {
		if owner != nil {
			losers = append(losers, owner)
		}
		owner = logs[rng.IntN(2)].Writer(own(t, store, "s", "o"), spool.WriterOptions{})
	}
	lose := func(err error) { // an owner may find out at any time that its session was deleted
		if err == nil {
			return
		}
		if !errors.Is(err, spool.ErrSuperseded) {
			t.Fatal(err)
		}
		take()
	}
	take()
	views := make(chan view, 100)
	readers, trimmed, deleted := 0, false, false
	for range 150 {
		switch n := rng.IntN(30); {
		case n < 12:
			for range 1 + rng.IntN(20) {
				lose(owner.Append(ctx, &chunk.TextDelta{Delta: strings.Repeat("x", rng.IntN(200))}))
			}
			if rng.IntN(2) == 0 {
				lose(owner.Flush(ctx))
			}
		case n < 15:
			m := chunk.Message{ID: "m", Role: chunk.RoleUser}
			if _, err := logs[rng.IntN(2)].Command(ctx, spool.Row{}, &chunk.UserMessage{CommandID: fmt.Sprint("c", rng.Uint64()), Message: m}); err != nil {
				t.Fatal(err)
			}
		case n < 16:
			_, err := owner.Commit(ctx, spool.Row{Status: []chunk.Status{chunk.StatusActive, chunk.StatusEnded}[rng.IntN(2)]}, &spool.Settle{Seen: 1 << 60})
			lose(err)
		case n < 18:
			take()
		case n < 20 && len(losers) > 0:
			l := losers[rng.IntN(len(losers))]
			err := l.Append(ctx, &chunk.TextDelta{Delta: "too late"})
			if err == nil {
				err = l.Flush(ctx)
			}
			if !errors.Is(err, spool.ErrSuperseded) {
				t.Fatalf("an owner that was superseded appended: %v", err)
			}
		case n < 21 && trims:
			h := head(t, store, "s")
			trimmed = true
			if err := trimmer.Trim(ctx, "s", h.Seq/2, h.Seq/4); err != nil {
				t.Fatal(err)
			}
		case n < 22 && trims && rng.IntN(4) == 0:
			deleted = true
			if err := trimmer.Delete(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			take() // creates it anew
		case readers < cap(views):
			h := head(t, store, "s")
			v := view{incarnation: h.Incarnation, after: h.Seq}
			if h.Seq > 0 {
				v.after = rng.Uint64N(h.Seq + 1)
			}
			o := spool.ReadOptions{After: spool.Cursor{Seq: v.after, Incarnation: h.Incarnation}, Follow: rng.IntN(3) > 0, Max: rng.IntN(20)}
			r := logs[rng.IntN(2)].Reader(o)
			readers++
			go func() {
				for {
					recs, err := r.Next(ctx)
					v.recs = append(v.recs, recs...)
					if err != nil || strings.Contains(string(recs[len(recs)-1].Data), lastRecord) {
						v.err = err
						views <- v
						return
					}
				}
			}()
		}
	}
	take()
	if _, err := owner.Commit(ctx, spool.Row{Status: chunk.StatusEnded}, &spool.Settle{Seen: 1 << 60}, &chunk.ErrorChunk{Error: lastRecord}); err != nil {
		t.Fatal(err)
	}
	for range readers {
		v := <-views
		switch {
		case v.err == nil, errors.Is(v.err, io.EOF), trimmed && errors.Is(v.err, spool.ErrTrimmed), deleted && errors.Is(v.err, spool.ErrCursorAhead):
		default:
			t.Errorf("a reader after %d.%d: %v", v.after, v.incarnation, v.err)
		}
		for i, r := range v.recs {
			if r.Seq != v.after+1+uint64(i) {
				t.Fatalf("a reader after %d got record %d as its %dth", v.after, r.Seq, i+1)
			}
			w.mu.Lock()
			want := w.taken[place{v.incarnation, r.Seq}]
			w.mu.Unlock()
			if string(r.Data) != want {
				t.Fatalf("a reader got at %d.%d\n%s\nbut what was stored is\n%s", r.Seq, v.incarnation, r.Data, want)
			}
		}
	}
	if len(w.twice) > 0 {
		slices.SortFunc(w.twice, func(a, b place) int { return int(a.seq) - int(b.seq) })
		t.Errorf("sequences were given twice: %v", w.twice)
	}
	for _, l := range append(losers, owner) {
		_ = l.Close()
	}
}
