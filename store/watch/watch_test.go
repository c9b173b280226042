package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// engine is a networked engine: a map, what was asked of it, and how long it takes.
type engine struct {
	mu         sync.Mutex
	rows       map[string]State
	subscribed map[string]bool
	calls      []string
	delay      time.Duration
	fails      error
}

func newEngine() *engine {
	return &engine{rows: map[string]State{}, subscribed: map[string]bool{}}
}

// answer says how long the engine takes from now on, and with what error.
func (e *engine) answer(delay time.Duration, fails error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.delay, e.fails = delay, fails
}

// set changes a session without telling anybody.
func (e *engine) set(session string, seq uint64) State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.rows[session]
	s.Version++
	s.Exists, s.Head = true, spool.Head{Incarnation: 1, Seq: seq}
	e.rows[session] = s
	return s
}

func (e *engine) remove(session string) State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := State{Version: e.rows[session].Version + 1}
	e.rows[session] = s
	return s
}

func (e *engine) call(ctx context.Context, text string) error {
	e.mu.Lock()
	e.calls = append(e.calls, text)
	delay, fails := e.delay, e.fails
	e.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fails
}

func (e *engine) read(ctx context.Context, sessions []string, found func(string, State)) error {
	e.mu.Lock()
	rows := maps.Clone(e.rows) // as they are when the question arrives; the answer takes its time
	e.mu.Unlock()
	text := fmt.Sprint("read ", sessions)
	if len(sessions) > 3 {
		text = fmt.Sprint("read ", len(sessions))
	}
	if err := e.call(ctx, text); err != nil {
		return err
	}
	for _, id := range sessions {
		if s, ok := rows[id]; ok {
			found(id, s)
		}
	}
	return nil
}

func (e *engine) subscribe(ctx context.Context, session string) (func(), error) {
	if err := e.call(ctx, "subscribe "+session); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscribed[session] = true
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.calls = append(e.calls, "cancel "+session)
		delete(e.subscribed, session)
	}, nil
}

// called returns what was asked since the last time.
func (e *engine) called() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.calls
	e.calls = nil
	return calls
}

func (e *engine) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := e.called(); !slices.Equal(got, want) {
		t.Fatalf("the engine was asked %q, want %q", got, want)
	}
}

type answer struct {
	head spool.Head
	next []chunk.Record
	err  error
}

func waitFor(ctx context.Context, h *Hub, session string, seen uint64) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		var head spool.Head
		if seen > 0 {
			head = spool.Head{Incarnation: 1, Seq: seen}
		}
		got, next, err := h.Wait(ctx, session, head)
		c <- answer{got, next, err}
	}()
	return c
}

func wantSeq(t *testing.T, c <-chan answer, seq uint64) {
	t.Helper()
	if got := <-c; got.err != nil || got.head.Seq != seq {
		t.Fatalf("got %+v, %v; want sequence %d", got.head, got.err, seq)
	}
}

func wantStill(t *testing.T, c <-chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case got := <-c:
		t.Fatalf("got %+v, %v; it had to wait", got.head, got.err)
	default:
	}
}

// in runs a test with a hub in a bubble with a clock of its own.
func in(t *testing.T, o Options, test func(t *testing.T, h *Hub, e *engine)) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		o := o
		o.Read, o.Subscribe = e.read, e.subscribe
		h := NewHub(o)
		defer h.Close()
		test(t, h, e)
	})
}

// silent is a hub that reads only when it is told to.
var silent = Options{Poll: -1}

// However many wait for a session, it is subscribed to and read once. It stays watched for
// a while after the last one has left, so that coming back asks the engine for nothing.
func TestOneSubscription(t *testing.T) {
	in(t, Options{Poll: -1, Linger: 10 * time.Second}, func(t *testing.T, h *Hub, e *engine) {
		e.set("s", 1)
		all := []<-chan answer{waitFor(t.Context(), h, "s", 1)}
		e.want(t, "subscribe s", "read [s]")
		for range 50 {
			all = append(all, waitFor(t.Context(), h, "s", 1))
		}
		e.want(t)
		h.Apply("s", e.set("s", 2))
		for _, c := range all {
			wantSeq(t, c, 2)
		}
		for seq := uint64(2); seq < 5; seq++ {
			c := waitFor(t.Context(), h, "s", seq)
			wantStill(t, c)
			h.Apply("s", e.set("s", seq+1))
			wantSeq(t, c, seq+1)
			time.Sleep(9 * time.Second)
		}
		e.want(t)
		time.Sleep(2 * time.Second)
		e.want(t, "cancel s")
		c := waitFor(t.Context(), h, "s", 5)
		e.want(t, "subscribe s", "read [s]")
		time.Sleep(time.Hour)
		wantStill(t, c) // with a waiter it stays watched
		e.want(t)
	})
}

// Callers that come while a read is on its way share the next one, which sees what happened
// before they came.
func TestOneReadForMany(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		e.answer(time.Second, nil)
		first := waitFor(t.Context(), h, "s", 0)
		time.Sleep(1500 * time.Millisecond)
		e.want(t, "subscribe s", "read [s]")
		e.set("s", 1)
		all := []<-chan answer{first}
		for range 50 {
			all = append(all, waitFor(t.Context(), h, "s", 0))
		}
		for _, c := range all {
			wantSeq(t, c, 1)
		}
		e.want(t, "read [s]")
	})
}

// The goroutine ends with the last watch, and the next waiter starts it again.
func TestIdleHub(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			c := waitFor(ctx, h, "s", 0)
			wantStill(t, c)
			cancel()
			if got := <-c; !errors.Is(got.err, context.Canceled) {
				t.Fatal(got.err)
			}
			time.Sleep(time.Minute)
			h.run.Wait()
			e.want(t, "subscribe s", "read [s]", "cancel s")
		}
	})
}

// A notification without the state leads to one read, however many come meanwhile; one of a
// version that is known leads to none.
func TestGapsAreRead(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		one := e.set("s", 1)
		c := waitFor(t.Context(), h, "s", 1)
		e.want(t, "subscribe s", "read [s]")
		h.Changed("s", one.Version)
		h.Changed("another", 7)
		e.want(t)
		e.answer(time.Second, nil)
		for range 10 {
			h.Changed("s", 2)
		}
		e.want(t, "read [s]") // too early: nothing has changed
		e.set("s", 2)
		for range 10 {
			h.Changed("s", 2)
			h.Changed("s", 0)
		}
		e.want(t)
		wantSeq(t, c, 2)
		e.want(t, "read [s]")
	})
}

// After a connection broke, everything that is watched is read.
func TestResync(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		a, b := waitFor(t.Context(), h, "a", 0), waitFor(t.Context(), h, "b", 0)
		wantStill(t, a)
		e.called()
		e.set("a", 1)
		h.Resync()
		wantSeq(t, a, 1)
		wantStill(t, b)
		if got := e.called(); len(got) != 1 {
			t.Errorf("asked %q", got)
		}
	})
}

// Without a notification a change is seen after the poll's time at most. Sessions without
// waiters are not read.
func TestLostNotification(t *testing.T) {
	in(t, Options{Linger: time.Hour}, func(t *testing.T, h *Hub, e *engine) {
		for seq := range uint64(20) {
			c := waitFor(t.Context(), h, "s", seq)
			wantStill(t, c)
			time.Sleep(time.Duration(rand.N(5000)) * time.Millisecond)
			e.set("s", seq+1)
			at := time.Now()
			wantSeq(t, c, seq+1)
			if late := time.Since(at); late > time.Second {
				t.Fatalf("noticed after %v", late)
			}
		}
		e.called()
		time.Sleep(time.Minute)
		e.want(t)
	})
}

// An answer that was on its way while a newer state came does not replace it.
func TestNothingGoesBack(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		e.set("s", 1)
		e.answer(time.Second, nil)
		c := waitFor(t.Context(), h, "s", 1)
		wantStill(t, c) // the subscription is on its way
		time.Sleep(1500 * time.Millisecond)
		two := e.set("s", 2) // the read is on its way, and has seen 1
		h.Apply("s", two)
		wantSeq(t, c, 2)
		h.Apply("s", State{Exists: true, Version: 1, Head: spool.Head{Incarnation: 1, Seq: 1}})
		c = waitFor(t.Context(), h, "s", 2)
		time.Sleep(time.Minute)
		wantStill(t, c)
	})
}

// A caller that has read more than the hub knows is not given what it had before: what the
// hub knows is an answer only if it is certainly newer, or else is read again.
func TestCallerKnowsMore(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		e.set("s", 1)
		first := waitFor(t.Context(), h, "s", 1)
		e.want(t, "subscribe s", "read [s]")
		e.set("s", 2) // by another process
		more := waitFor(t.Context(), h, "s", 2)
		e.want(t, "read [s]")
		wantStill(t, more)
		wantSeq(t, first, 2)
		wantSeq(t, waitFor(t.Context(), h, "s", 1), 2) // certainly newer
		e.want(t)
		gone := e.remove("s")
		h.Apply("s", gone)
		if got := <-more; !errors.Is(got.err, spool.ErrNotFound) {
			t.Fatal(got)
		}
		e.set("s", 3) // created again
		wantSeq(t, waitFor(t.Context(), h, "s", 2), 3)
		e.want(t, "read [s]")
		// Of a head that differs in its status alone nobody knows which one is newer.
		wantHead := spool.Head{Incarnation: 1, Seq: 3}
		if got, _, err := h.Wait(t.Context(), "s", spool.Head{Incarnation: 1, Seq: 3, Due: 7}); err != nil || got != wantHead {
			t.Fatal(got, err)
		}
		e.want(t, "read [s]")
		// A caller that has seen nothing gets the present head.
		e.set("s", 4)
		wantSeq(t, waitFor(t.Context(), h, "s", 0), 4)
	})
}

// A read that fails fails the calls that need it. The others wait on, and it is made again.
func TestFailures(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		e.set("s", 1)
		waits := waitFor(t.Context(), h, "s", 1)
		wantStill(t, waits)
		broken := spool.ErrUnavailable.With("", errors.New("broken"))
		e.answer(0, broken)
		for _, session := range []string{"s", "new"} {
			if got := <-waitFor(t.Context(), h, session, 9); !errors.Is(got.err, broken.Err) {
				t.Fatalf("%s: %v", session, got.err)
			}
		}
		e.set("s", 2)
		h.Changed("s", 2)
		time.Sleep(time.Minute)
		wantStill(t, waits)
		e.answer(0, nil)
		wantSeq(t, waits, 2)
		// An engine that does not answer is unavailable.
		e.answer(time.Hour, nil)
		if got := <-waitFor(t.Context(), h, "slow", 0); !errors.Is(got.err, spool.ErrUnavailable) {
			t.Fatal(got.err)
		}
	})
}

// Close ends the calls and the subscriptions, also in the middle of a read.
func TestClose(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Hour} {
		in(t, silent, func(t *testing.T, h *Hub, e *engine) {
			e.answer(delay, nil)
			var all []<-chan answer
			for i := range 10 {
				all = append(all, waitFor(t.Context(), h, fmt.Sprint("s", i%3), 0))
			}
			synctest.Wait()
			h.Close()
			for _, c := range all {
				if got := <-c; !errors.Is(got.err, spool.ErrClosed) {
					t.Error(got.err)
				}
			}
			if len(e.subscribed) > 0 {
				t.Errorf("still subscribed: %v", e.subscribed)
			}
			e.called()
			if got := <-waitFor(t.Context(), h, "s", 0); !errors.Is(got.err, spool.ErrClosed) {
				t.Error(got.err)
			}
			h.Changed("s0", 0)
			h.Resync()
			h.Apply("s0", State{})
			h.Close()
			e.want(t)
		})
	}
}

// Many sessions are read together.
func TestBatches(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		h.o.Subscribe = nil
		for i := range 1200 {
			waitFor(t.Context(), h, fmt.Sprint(i), 0)
		}
		synctest.Wait()
		e.called()
		h.Resync()
		e.want(t, "read 500", "read 500", "read 200")
	})
}

// Several writers, readers that come and go, and notifications that are lost, doubled, late
// and out of order: every reader gets to the end, and none goes back.
func TestAnyNotifications(t *testing.T) {
	for seed := range uint64(20) {
		in(t, Options{}, func(t *testing.T, h *Hub, e *engine) {
			e.answer(3*time.Millisecond, nil)
			const last = 60
			var all sync.WaitGroup
			for r := range 12 {
				all.Go(func() {
					var seen spool.Head
					for seen.Seq < last {
						got, _, err := h.Wait(t.Context(), fmt.Sprint(r%3), seen)
						if err != nil || got.Seq <= seen.Seq {
							t.Errorf("after %+v: %+v, %v", seen, got, err)
							return
						}
						seen = got
						if r > 6 {
							time.Sleep(50 * time.Millisecond) // it reads behind
						}
					}
				})
			}
			rng := rand.New(rand.NewPCG(seed, 1))
			for seq := uint64(1); seq <= last; seq++ {
				for s := range 3 {
					id := fmt.Sprint(s)
					state := e.set(id, seq)
					for range rng.IntN(3) {
						late, whole := time.Duration(rng.IntN(40))*time.Millisecond, rng.IntN(2) == 0
						all.Go(func() {
							time.Sleep(late)
							if whole {
								h.Apply(id, state)
							} else {
								h.Changed(id, state.Version)
							}
						})
					}
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			}
			all.Wait()
		})
	}
}

// What is known answers a caller only if it is what the caller has seen or certainly newer.
func TestCertainlyNewer(t *testing.T) {
	type head = spool.Head
	seen := head{Incarnation: 2, Seq: 5, Epoch: 3, Floor: 1, TraceFloor: 2}
	for name, test := range map[string]struct {
		change func(h *head)
		want   bool
	}{
		"the same":                 {func(h *head) {}, true},
		"records":                  {func(h *head) { h.Seq++ }, true},
		"a claim":                  {func(h *head) { h.Epoch++ }, true},
		"a trim":                   {func(h *head) { h.TraceFloor++; h.Floor++ }, true},
		"a later incarnation":      {func(h *head) { *h = head{Incarnation: 3} }, true},
		"fewer records":            {func(h *head) { h.Seq-- }, false},
		"before a claim":           {func(h *head) { h.Epoch-- }, false},
		"before a trim":            {func(h *head) { h.TraceFloor-- }, false},
		"an earlier incarnation":   {func(h *head) { h.Incarnation--; h.Seq = 100 }, false},
		"another status":           {func(h *head) { h.Status = "paused" }, false},
		"another due":              {func(h *head) { h.Due = 1 }, false},
		"fewer records, one claim": {func(h *head) { h.Seq--; h.Epoch++ }, false},
		"a claim before a trim":    {func(h *head) { h.Epoch++; h.Floor-- }, false},
	} {
		h := seen
		test.change(&h)
		w := &watch{known: true, state: State{Exists: true, Head: h}}
		if got := w.answers(seen); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// upTo adds the records from first to the head to a state.
func upTo(s State, first uint64) State {
	for seq := first; seq <= s.Head.Seq; seq++ {
		s.Records = append(s.Records, chunk.Record{Seq: seq, Data: []byte("x")})
	}
	return s
}

// A waiter that comes back gets what was reported since it left, if nothing is missing.
func TestRecordsArePassedOn(t *testing.T) {
	in(t, silent, func(t *testing.T, h *Hub, e *engine) {
		want := func(c <-chan answer, head uint64, next ...uint64) {
			t.Helper()
			got := <-c
			var seqs []uint64
			for _, r := range got.next {
				seqs = append(seqs, r.Seq)
			}
			if got.err != nil || got.head.Seq != head || !slices.Equal(seqs, next) {
				t.Fatalf("got head %d with %v, %v; want %d with %v", got.head.Seq, seqs, got.err, head, next)
			}
		}
		ask := func(seen uint64) <-chan answer { return waitFor(t.Context(), h, "s", seen) }
		e.set("s", 1)
		c := ask(1)
		wantStill(t, c)
		h.Apply("s", upTo(e.set("s", 2), 2))
		want(c, 2, 2)
		// While nobody waits, others follow, some of them twice.
		h.Apply("s", upTo(e.set("s", 3), 3))
		h.Apply("s", upTo(e.set("s", 5), 3))
		want(ask(2), 5, 3, 4, 5)
		want(ask(1), 5) // what it lacks is gone
		h.Apply("s", e.set("s", 5))
		want(ask(3), 5, 4, 5)
		// A notification without its records, and one whose records begin too late.
		h.Apply("s", e.set("s", 6))
		want(ask(5), 6)
		h.Apply("s", upTo(e.set("s", 9), 8))
		want(ask(6), 9)
		want(ask(7), 9, 8, 9)
		// Records that were trimmed meanwhile, and records of a log that was deleted.
		late := e.set("s", 10)
		late.Head.TraceFloor = 10
		h.Apply("s", upTo(late, 10))
		want(ask(9), 10)
		h.Apply("s", upTo(e.set("s", 11), 11))
		again := e.set("s", 12)
		again.Head.Incarnation = 2
		h.Apply("s", upTo(again, 12))
		want(ask(10), 12)
		want(ask(11), 12)
		// More than the hub keeps.
		again = e.set("s", 13)
		again.Head.Incarnation = 2
		again.Records = []chunk.Record{{Seq: 13, Data: make([]byte, maxNext+1)}}
		h.Apply("s", again)
		want(ask(12), 13)
		e.want(t, "subscribe s", "read [s]")
	})
}
