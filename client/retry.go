package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/spool-run/spool/internal/wait"
)

// Retry says how requests and streams are tried again. A pause is a random part of
// Base·2ⁿ, at most of Cap, after n failures ("full jitter"), and at least what the
// server asks for with Retry-After.
type Retry struct {
	// Max is how many attempts in a row may fail. A stream's count begins again whenever it
	// makes progress. 0: 10; negative: no bound.
	Max  int
	Base time.Duration // 0: 100 ms
	Cap  time.Duration // 0: 10 s
	// Jitter returns a random number below n. nil: of math/rand.
	Jitter func(n int64) int64
	// Notify is told before each pause why the latest attempt failed. nil: nobody is.
	Notify func(err error, pause time.Duration)
}

func (r *Retry) defaults() {
	if r.Max == 0 {
		r.Max = 10
	}
	if r.Base <= 0 {
		r.Base = 100 * time.Millisecond
	}
	if r.Cap <= 0 {
		r.Cap = 10 * time.Second
	}
	if r.Jitter == nil {
		r.Jitter = rand.Int64N
	}
}

// pause waits before the next attempt, after so many failures in a row. It fails with
// [ErrUnreachable] when they are too many, and with ctx's error.
func (r *Retry) pause(ctx context.Context, session string, failures int, cause error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.Max >= 0 && failures >= r.Max {
		return ErrUnreachable.Because(fmt.Sprintf("the server cannot be reached: %d attempts failed", failures)).With(session, cause)
	}
	most := r.Cap
	if shift := min(failures-1, 30); shift < 30 && r.Base<<shift < r.Cap && r.Base<<shift > 0 {
		most = r.Base << shift
	}
	d := time.Duration(r.Jitter(int64(most) + 1))
	if e, ok := errors.AsType[*Error](cause); ok {
		d = max(d, e.RetryAfter)
	}
	if r.Notify != nil {
		r.Notify(cause, d)
	}
	if err := wait.Sleep(ctx, d); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// isDial reports whether an error is that of a connection that was never made.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
