package sim_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// patience is how long, in virtual time, a user may take. Whoever needs longer is stuck.
const patience = time.Hour

// world is one simulation.
type world struct {
	seed    uint64
	ctx     context.Context
	cancel  context.CancelFunc
	begun   time.Time
	weather weather
	spoiled spoiled
	store   *audit
	effects *effects
	network *network

	mu     sync.Mutex
	trace  []string
	wrong  []string
	seen   map[string]int
	nodes  []*node // that take requests
	names  int     // nodes that were ever started
	calm   bool    // nothing goes wrong any more
	outage time.Time
	ended  sync.WaitGroup // nodes on their way out
	late   sync.WaitGroup // calls of the store that the network holds back
}

// report is what came of a simulation.
type report struct {
	trace, wrong []string
	seen         map[string]int // what happened, and how often
}

// spoiled is what of the simulation is broken, for tests of the simulator.
type spoiled struct {
	store  func(storetest.Engine) storetest.Engine // puts a broken store in the place of this one
	agent  func(*agent.Agent)
	reader func(id string) (skip bool) // of the AI SDK wire
}

func (s *spoiled) any() bool { return s.store != nil || s.agent != nil || s.reader != nil }

// simulate runs a seed.
func simulate(t *testing.T, seed uint64, sp spoiled) (r report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{seed: seed, spoiled: sp, begun: time.Now(), effects: newEffects(), seen: map[string]int{}}
		w.ctx, w.cancel = context.WithTimeout(context.Background(), patience)
		defer w.cancel()
		rnd := w.random("weather")
		w.weather = newWeather(rnd)
		clock := time.Duration(rnd.Int64N(int64(2*w.weather.skew)+1)) - w.weather.skew
		o := &memstore.Options{Now: func() time.Time { return time.Now().Add(clock) }}
		w.store = newAudit(w, memstore.New(o), o)
		w.network = newNetwork(w)
		w.happened("%+v, the store's clock %v", w.weather, clock)
		w.run()
		r = report{w.trace, w.wrong, w.seen}
	})
	return r
}

// run lets everybody do their work, and checks what came of it.
func (w *world) run() {
	for range 2 + w.random("nodes").IntN(2) {
		w.start()
	}
	over := make(chan struct{})
	var troubled sync.WaitGroup
	troubled.Go(func() { w.trouble(over) })
	var working sync.WaitGroup
	users := w.people()
	for _, u := range users {
		working.Go(u.live)
	}
	producers := w.producers()
	for _, p := range producers {
		working.Go(p.live)
	}
	working.Wait()
	close(over)
	troubled.Wait()
	w.calmDown()
	w.late.Wait()
	time.Sleep(time.Minute) // what they have brought is settled
	w.check(users, producers)
	for len(w.nodes) > 0 {
		w.stop(w.nodes[0])
	}
	w.network.close()
	w.ended.Wait()
	w.store.close()
}

// random returns an actor's own source of chance, so that one actor's decisions do not
// depend on another's.
func (w *world) random(actor string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(actor))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// happened adds a line to the trace.
func (w *world) happened(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%8.3fs ", time.Since(w.begun).Seconds())+fmt.Sprintf(format, args...))
}

// count counts what has happened.
func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what]++
}

// fail notes what is not as it must be.
func (w *world) fail(format string, args ...any) {
	w.happened("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
	if w.spoiled.any() {
		w.cancel() // one is enough
	}
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// chance is a source of chance that several goroutines use.
type chance struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

// below returns a number below n, 0 if n is 0.
func (c *chance) below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.Int64N(n)
}

// happens reports whether something of this probability happens.
func (c *chance) happens(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.Float64() < p
}

func (c *chance) upTo(d time.Duration) time.Duration { return time.Duration(c.below(int64(d) + 1)) }
