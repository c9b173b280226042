package provider

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/spool-run/spool/model"
)

// watch reads an answer's body and ends the request when the provider is silent:
// no byte for idle, or no data for progress.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	idle, progress           time.Duration
	idleTimer, progressTimer *time.Timer

	mu   sync.Mutex
	body io.ReadCloser
	dead bool
}

func newWatch(ctx context.Context, idle, progress time.Duration) *watch {
	w := &watch{idle: idle, progress: progress}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.idleTimer = w.timer(idle, "the provider sent nothing for ")
	w.progressTimer = w.timer(progress, "the provider made no progress for ")
	return w
}

func (w *watch) timer(d time.Duration, what string) *time.Timer {
	if d <= 0 {
		return nil
	}
	return time.AfterFunc(d, func() {
		w.end(&model.Error{Code: model.CodeTimeout, Message: what + d.String(), Retryable: true})
	})
}

// end cancels the request. A body that does not heed the context is closed.
func (w *watch) end(cause error) {
	w.cancel(cause)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	if w.body != nil {
		w.body.Close()
	}
}

func (w *watch) watch(body io.ReadCloser) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.body = body
	if w.dead {
		body.Close()
	}
	w.bytes()
}

func (w *watch) bytes() {
	if w.idleTimer != nil {
		w.idleTimer.Reset(w.idle)
	}
}

func (w *watch) data() {
	if w.progressTimer != nil {
		w.progressTimer.Reset(w.progress)
	}
}

func (w *watch) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if n > 0 {
		w.bytes()
	}
	return n, err
}

func (w *watch) stop() {
	for _, t := range []*time.Timer{w.idleTimer, w.progressTimer} {
		if t != nil {
			t.Stop()
		}
	}
	w.cancel(nil)
}
