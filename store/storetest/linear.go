package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Promise: calls that overlap have an order in which a page of obvious code would have
// given the same answers, and which keeps those calls in order that do not overlap.
var linearChecks = []check{
	{"ConcurrentCalls", func(t *testing.T, x *suite) {
		s := x.open(t)
		for seed := 0; seed < 24; seed += x.stride(t) {
			judge(t, record(t, s, fmt.Sprint("s", seed), uint64(seed)))
		}
	}},
}

const (
	linearClients = 5
	linearCalls   = 16 // of each client
)

// recorder makes calls of one session from several goroutines and notes when each began
// and ended, by a counter that they share.
type recorder struct {
	ctx     context.Context
	s       spool.Store
	session string
	ticks   atomic.Int64

	mu      sync.Mutex
	lease   spool.Lease // the latest one that a client was given
	ordinal uint64      // under it
	history []porcupine.Operation
}

// record returns a history of concurrent calls.
func record(t *testing.T, s spool.Store, session string, seed uint64) []porcupine.Operation {
	r := &recorder{ctx: limit(t), s: s, session: session, lease: spool.Lease{Session: session, Epoch: 1}}
	parallel(linearClients, func(client int) {
		rng := rand.New(rand.NewPCG(seed, uint64(client)))
		for n := range linearCalls {
			r.do(client, r.draw(rng, fmt.Sprintf("%d-%d", client, n)))
		}
	})
	return r.history
}

func (r *recorder) do(client int, c call) {
	began := r.ticks.Add(1)
	a := c.do(r.ctx, r.s)
	ended := r.ticks.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.claim != nil && a.err == nil && a.lease.Epoch > r.lease.Epoch {
		r.lease, r.ordinal = a.lease, 0
	}
	r.history = append(r.history, porcupine.Operation{ClientId: client, Input: &c, Call: began, Output: &a, Return: ended})
}

// draw chooses a client's next call.
func (r *recorder) draw(rng *rand.Rand, label string) call {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := recs(chunk.Class(rng.IntN(2)), label, 1+rng.IntN(3))
	_, trims := r.s.(spool.Trimmer)
	switch n := rng.IntN(30); {
	case n < 9:
		return call{append: r.owners(rng, batch)}
	case n < 13:
		return call{append: &spool.Append{Session: r.session, Records: batch}}
	case n < 20:
		c := readCall{after: rng.Uint64N(r.lease.Head.Seq + 20), max: 50}
		if rng.IntN(2) == 0 {
			c = readCall{q: &spool.KeptQuery{After: rng.Uint64N(r.lease.Head.Seq + 1), Max: 50}}
		}
		return call{session: r.session, read: &c}
	case n < 22:
		return call{session: r.session, head: true}
	case n < 25:
		return call{claim: &spool.Claim{ID: fmt.Sprint("c", rng.IntN(4)), Owner: "o", TTL: time.Hour, Session: r.session, Force: rng.IntN(3) == 0}}
	case n < 26:
		l := r.lease
		return call{renew: &l}
	case n < 28:
		l := r.lease
		return call{release: &l}
	case n < 29 && trims:
		return call{session: r.session, trim: &[2]uint64{rng.Uint64N(r.lease.Head.Seq + 5), rng.Uint64N(r.lease.Head.Seq + 3)}}
	case trims && rng.IntN(2) == 0:
		return call{session: r.session, delete: true}
	}
	return call{session: r.session, head: true}
}

// owners returns an append under the latest lease: the next one, or one that was made.
func (r *recorder) owners(rng *rand.Rand, batch []chunk.Record) *spool.Append {
	a := &spool.Append{Session: r.session, Epoch: r.lease.Epoch, Writer: "w", Records: batch}
	if r.ordinal == 0 || rng.IntN(4) > 0 {
		r.ordinal++
	}
	a.Ordinal = r.ordinal
	a.Row.Status = []chunk.Status{"", chunk.StatusActive, chunk.StatusEnded}[rng.IntN(3)]
	if rng.IntN(3) == 0 {
		a.Settle = &spool.Settle{Seen: r.lease.Head.Seq + rng.Uint64N(30)}
	}
	return a
}

// judge fails the test if the history has no such order.
func judge(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	model := porcupine.Model{
		Init: func() any { return &logModel{} },
		Step: func(state, input, output any) (bool, any) {
			next, err := state.(*logModel).step(input.(*call), output.(*answer))
			return err == nil, &next
		},
		Equal: func(a, b any) bool { return a.(*logModel).same(b.(*logModel)) },
	}
	result, info := porcupine.CheckOperationsVerbose(model, history, 0)
	if result == porcupine.Ok {
		return
	}
	var b strings.Builder
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range history {
		fmt.Fprintf(&b, "%4d to %4d  client %d  %s: %s\n", o.Call, o.Return, o.ClientId, describe(o.Input.(*call)), o.Output.(*answer))
	}
	longest := 0
	for _, order := range info.PartialLinearizationsOperations()[0] {
		longest = max(longest, len(order))
	}
	t.Fatalf("these calls have no order (at most %d of %d):\n%s", longest, len(history), &b)
}

// describe says a call in a line.
func describe(c *call) string {
	switch {
	case c.append != nil && c.append.Epoch == 0:
		return fmt.Sprintf("command %v", texts(c.append.Records))
	case c.append != nil:
		a := c.append
		return fmt.Sprintf("append %d/%d %v status %q settle %+v", a.Epoch, a.Ordinal, texts(a.Records), a.Row.Status, a.Settle)
	case c.claim != nil:
		return fmt.Sprintf("claim %+v", *c.claim)
	case c.renew != nil:
		return fmt.Sprint("renew ", c.renew.Epoch)
	case c.release != nil:
		return fmt.Sprint("release ", c.release.Epoch)
	case c.read != nil && c.read.q != nil:
		return fmt.Sprintf("read kept %+v", *c.read.q)
	case c.read != nil:
		return fmt.Sprintf("read %d records after %d", c.read.max, c.read.after)
	case c.trim != nil:
		return fmt.Sprint("trim ", *c.trim)
	case c.delete:
		return "delete"
	}
	return "head"
}

// String says an answer in a line.
func (a *answer) String() string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.lease.Epoch > 0:
		return fmt.Sprintf("epoch %d, head %+v", a.lease.Epoch, a.lease.Head)
	case a.res.Head.Incarnation > 0:
		return fmt.Sprintf("%d to %d, repeated %v, head %+v", a.res.First, a.res.Last, a.res.Repeated, a.res.Head)
	}
	return fmt.Sprintf("%v, head %+v", texts(a.records), a.head)
}
