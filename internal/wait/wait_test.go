package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("slept %v: %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

func TestFor(t *testing.T) {
	errClosed := errors.New("closed")
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		never, done := make(chan struct{}), make(chan struct{})
		close(done)
		for name, c := range map[string]struct {
			ctx           context.Context
			d             time.Duration
			woken, closed chan struct{}
			want          error
			takes         time.Duration
		}{
			"woken":  {t.Context(), -1, done, never, nil, 0},
			"time":   {t.Context(), time.Minute, never, never, nil, time.Minute},
			"ctx":    {ended, -1, never, never, context.Canceled, 0},
			"closed": {t.Context(), time.Minute, never, done, errClosed, 0},
		} {
			begun := time.Now()
			if err := For(c.ctx, c.d, c.woken, c.closed, errClosed); !errors.Is(err, c.want) || time.Since(begun) != c.takes {
				t.Errorf("%s: %v after %v", name, err, time.Since(begun))
			}
		}
	})
}
