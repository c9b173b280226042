package sim_test

import (
	"math/rand/v2"
	"time"
)

// weather is how much goes wrong in a simulation. Chances are those of one call.
type weather struct {
	latency    time.Duration // of a call of the store, at most, each way
	lost       float64       // the request does not arrive
	unanswered float64       // it is done, and the answer does not arrive
	late       float64       // it arrives after its caller has been told that it did not
	doubled    float64       // it arrives again, later
	hung       float64       // nothing comes back until the caller gives up
	waits      float64       // the connection of a waiting call is cut

	dials float64 // a connection to a node cannot be made
	cuts  float64 // a connection to a node is cut
	bytes int     // after at most this many bytes

	skew    time.Duration // of clocks, at most, in both directions
	every   time.Duration // between two troubles, on average
	trouble [troubles]int // weights
}

// What can happen to nodes and to the store.
const (
	killed      = iota // a node dies
	drained            // a node hands over and ends
	cutOff             // a node cannot reach the store for a while
	away               // the store is away for everybody
	stepped            // a node's clock steps
	disconnects        // all connections to the nodes are cut
	setBack            // the store is set back to an earlier state, and says so
	troubles
)

var names = [troubles]string{"killed", "drained", "cut off", "away", "stepped", "disconnects", "set back"}

func newWeather(rnd *rand.Rand) weather {
	// often returns 0 in half of the seeds, and else a chance up to p.
	often := func(p float64) float64 {
		if rnd.IntN(2) == 0 {
			return 0
		}
		return p * rnd.Float64()
	}
	latencies := []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}
	skews := []time.Duration{0, 200 * time.Millisecond, 5 * time.Second, time.Hour}
	w := weather{
		latency: latencies[rnd.IntN(len(latencies))],
		lost:    often(0.1), unanswered: often(0.1), late: often(0.05), doubled: often(0.1), hung: often(0.01), waits: often(0.5),
		dials: often(0.3), cuts: often(0.9), bytes: 200 << rnd.IntN(6),
		skew: skews[rnd.IntN(len(skews))], every: time.Duration(2+rnd.IntN(20)) * time.Second,
	}
	for i := range w.trouble {
		if rnd.IntN(2) == 0 {
			w.trouble[i] = 1 + rnd.IntN(4)
		}
	}
	// What is lost cannot be checked, so most seeds lose nothing.
	if rnd.IntN(4) > 0 {
		w.trouble[setBack] = 0
	}
	return w
}

// storms is how long troubles come.
const storms = 90 * time.Second

// trouble makes trouble until everybody is done, or the storms are over.
func (w *world) trouble(over <-chan struct{}) {
	rnd := w.random("trouble")
	sum := 0
	for _, n := range w.weather.trouble {
		sum += n
	}
	for end := time.Now().Add(storms); sum > 0 && time.Now().Before(end); {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(rnd.Int64N(int64(2 * w.weather.every)))):
		}
		what, at := 0, rnd.IntN(sum)
		for at >= w.weather.trouble[what] {
			at -= w.weather.trouble[what]
			what++
		}
		w.cause(what, rnd)
	}
	select {
	case <-over:
	case <-time.After(storms):
		w.calmDown()
	}
}

// cause makes one trouble.
func (w *world) cause(what int, rnd *rand.Rand) {
	w.count(names[what])
	n := w.anyNode(rnd)
	pause := time.Duration(rnd.Int64N(int64(25 * time.Second)))
	switch {
	case what == away:
		w.happened("the store is away for %v", pause)
		w.interrupt(pause)
	case what == disconnects:
		w.happened("all connections are cut")
		w.network.cutAll()
	case what == setBack:
		w.store.setBack(time.Duration(rnd.Int64N(int64(20 * time.Second))))
	case n == nil:
	case what == killed:
		w.kill(n)
		w.startLater(pause)
	case what == drained:
		w.drain(n)
		w.startLater(pause)
	case what == cutOff:
		w.happened("%s cannot reach the store for %v", n.name, pause)
		n.link.interrupt(pause)
	case what == stepped:
		n.step(time.Duration(rnd.Int64N(int64(2*w.weather.skew)+1)) - w.weather.skew)
	}
}

// interrupt takes the store away from all nodes.
func (w *world) interrupt(d time.Duration) {
	w.mu.Lock()
	w.outage = time.Now().Add(d)
	nodes := append([]*node(nil), w.nodes...)
	w.mu.Unlock()
	for _, n := range nodes {
		n.link.interrupt(d)
	}
}

// calmDown ends all trouble. Two nodes at least are there from now on.
func (w *world) calmDown() {
	w.mu.Lock()
	was := w.calm
	w.calm = true
	w.mu.Unlock()
	if was {
		return
	}
	w.happened("it is calm")
	w.mu.Lock()
	nodes := append([]*node(nil), w.nodes...)
	w.mu.Unlock()
	for _, n := range nodes {
		n.link.interrupt(0)
	}
	for n := len(nodes); n < 2; n++ {
		w.start()
	}
}
