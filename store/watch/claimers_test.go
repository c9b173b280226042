package watch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// office is a place where claimers wait for work.
type office struct {
	t      *testing.T
	q      Claimers
	closed chan struct{}
	mu     sync.Mutex
	due    []string      // kinds of work
	again  time.Duration // for look
	looks  int
	found  []int // who found something, in order
}

var errOffice = errors.New("closed")

// await has somebody wait for a kind of work, which is not done then.
func (o *office) await(ctx context.Context, who int, kind string) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := o.q.Await(ctx, o.closed, errOffice, func() (bool, time.Duration, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.looks++
			return slices.Contains(o.due, kind), o.again, nil
		})
		o.mu.Lock()
		defer o.mu.Unlock()
		if err == nil {
			o.found = append(o.found, who)
		}
		done <- err
	}()
	synctest.Wait()
	return done
}

func inOffice(t *testing.T, test func(o *office)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &office{t: t, closed: make(chan struct{}), again: -1}
		test(o)
		close(o.closed)
		synctest.Wait()
		o.q.mu.Lock()
		defer o.q.mu.Unlock()
		if len(o.q.waiting) != 0 {
			t.Errorf("%d wait in a closed office", len(o.q.waiting))
		}
	})
}

// set says what work there is, and counts looks from now on.
func (o *office) set(due ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due, o.looks = due, 0
}

func (o *office) becomes(due ...string) {
	o.set(due...)
	o.q.Wake()
	synctest.Wait()
}

func (o *office) want(when string, looks int, found ...int) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looks != looks || !slices.Equal(o.found, found) {
		o.t.Errorf("%s: %d looks, %v found something; want %d and %v", when, o.looks, o.found, looks, found)
	}
}

func TestOneClaimerIsWoken(t *testing.T) {
	inOffice(t, func(o *office) {
		for who := range 5 {
			o.await(context.Background(), who, "work")
		}
		o.becomes("work")
		o.want("work for one", 1, 0)
		o.set()
		time.Sleep(time.Minute)
		synctest.Wait()
		o.want("after it was claimed, the others look once", 4, 0)
		o.set()
		time.Sleep(time.Minute)
		o.want("and then rest", 0, 0)
		o.becomes("work")
		o.q.Wake()
		synctest.Wait()
		o.want("work for two", 2, 0, 1, 2)
	})
}

// What the first does not claim, the others find within a second.
func TestUnclaimedWorkIsFound(t *testing.T) {
	inOffice(t, func(o *office) {
		for who := range 3 {
			o.await(context.Background(), who, "work")
		}
		o.becomes("work")
		o.want("work", 1, 0)
		time.Sleep(secondLook)
		synctest.Wait()
		o.mu.Lock()
		slices.Sort(o.found)
		o.mu.Unlock()
		o.want("it is still due", 3, 0, 1, 2)
	})
}

// Those who cannot do it give the turn to the next.
func TestTurnIsGivenOn(t *testing.T) {
	inOffice(t, func(o *office) {
		o.await(context.Background(), 0, "other")
		o.await(context.Background(), 1, "other")
		o.await(context.Background(), 2, "work")
		o.await(context.Background(), 3, "work")
		o.becomes("work")
		o.want("work for the third", 3, 2)
	})
	inOffice(t, func(o *office) { // one who leaves with a turn that was not used
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan error, 1)
		begun, looked := make(chan struct{}), make(chan struct{})
		go func() {
			left <- o.q.Await(ctx, o.closed, errOffice, func() (bool, time.Duration, error) {
				close(begun)
				<-looked
				return false, -1, ctx.Err()
			})
		}()
		<-begun
		o.await(context.Background(), 1, "work")
		o.becomes("work")
		o.want("the first is busy looking", 0)
		cancel()
		close(looked)
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		o.want("the first has left", 1, 1)
	})
}

// Claimers look again when look says so, the others a little after the first.
func TestClaimersLookAgain(t *testing.T) {
	inOffice(t, func(o *office) {
		o.again = time.Second / 2
		for who := range 3 {
			o.await(context.Background(), who, "work")
		}
		o.set()
		time.Sleep(time.Second/2 - 1)
		o.want("before", 0)
		o.set("work")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		o.want("the first", 1, 0)
		o.set()
		time.Sleep(secondLook / 4)
		synctest.Wait()
		o.want("the others", 2, 0)
	})
}

func TestClaimersEnd(t *testing.T) {
	inOffice(t, func(o *office) {
		ctx, cancel := context.WithCancel(context.Background())
		one, two := o.await(ctx, 0, "work"), o.await(context.Background(), 1, "work")
		cancel()
		if err := <-one; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		close(o.closed)
		if err := <-two; !errors.Is(err, errOffice) {
			t.Error(err)
		}
		o.closed = make(chan struct{})
		failed := errors.New("failed")
		if err := o.q.Await(context.Background(), nil, nil, func() (bool, time.Duration, error) { return false, 0, failed }); err != failed {
			t.Error(err)
		}
	})
}
