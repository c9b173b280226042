package watch

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// secondLook is when the claimers that were not woken look for themselves, at the latest:
// the one that was woken may not have claimed what it was woken for.
const secondLook = 800 * time.Millisecond

// Claimers are the callers of [spool.Leaser].AwaitDue that wait in one process. What
// becomes due wakes one of them, the one that has waited longest. If it finds nothing that
// it may claim, the next one looks. The zero value is ready for use.
type Claimers struct {
	mu      sync.Mutex
	waiting []*claimer // the longest waiting first
	armed   bool       // a second look is to come
}

type claimer struct {
	turn chan bool // it is to look, and with true, to give the turn on if it finds nothing; holds one
}

// Wake has one of the claimers look: a session may have become due.
func (q *Claimers) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake(q.waiting)
}

// wake wakes the first of these that was not woken.
func (q *Claimers) wake(waiting []*claimer) {
	for _, c := range waiting {
		select {
		case c.turn <- true:
			return
		default:
		}
	}
}

// Await waits until look has found something for the caller, which is to claim it. look
// also says after how long to look again; negative: not before somebody wakes it. Await
// fails with look's error, with ctx's, and with errClosed if closed is closed.
func (q *Claimers) Await(ctx context.Context, closed <-chan struct{}, errClosed error, look func() (found bool, again time.Duration, err error)) error {
	me := &claimer{make(chan bool, 1)}
	q.mu.Lock()
	q.waiting = append(q.waiting, me)
	q.mu.Unlock()
	defer q.leave(me)
	for woken := false; ; {
		found, again, err := look()
		if err != nil {
			return err
		}
		if found {
			q.lookAgain()
			return nil
		}
		if first := q.notFound(me, woken); again >= 0 && !first {
			again += jitter(secondLook / 4) // the first one looks when a lease expires
		}
		if woken, err = me.sleep(ctx, again, closed, errClosed); err != nil {
			return err
		}
	}
}

// sleep waits until the claimer is to look.
func (c *claimer) sleep(ctx context.Context, d time.Duration, closed <-chan struct{}, errClosed error) (woken bool, err error) {
	var alarm <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		alarm = t.C
	}
	select {
	case woken = <-c.turn:
		return woken, nil
	case <-alarm:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-closed:
		return false, errClosed
	}
}

// notFound gives the turn of a claimer that was woken to the next one. It reports whether
// the claimer is the first.
func (q *Claimers) notFound(c *claimer, woken bool) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	if woken {
		q.wake(q.waiting[i+1:])
	}
	return i == 0
}

// leave ends a claimer's waiting. A turn that it has not used is another one's.
func (q *Claimers) leave(c *claimer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, c)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	select {
	case woken := <-c.turn:
		if woken {
			q.wake(q.waiting)
		}
	default:
	}
}

// lookAgain has all claimers look after a while.
func (q *Claimers) lookAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.armed {
		return
	}
	q.armed = true
	time.AfterFunc(secondLook/2+jitter(secondLook/2), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.armed = false
		for _, c := range q.waiting {
			select {
			case c.turn <- false:
			default:
			}
		}
	})
}

func jitter(d time.Duration) time.Duration { return rand.N(d) }
