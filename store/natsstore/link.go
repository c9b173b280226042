package natsstore

import (
	"context"
	"sync"
)

// link is the connection as long as it does not break. What was asked on it before is not
// answered afterwards.
type link struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
}

func newLink() *link {
	l := &link{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// attempt returns a context that ends with ctx or when the connection breaks.
func (l *link) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	now := l.ctx
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(now, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// broken ends the attempts.
func (l *link) broken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.ctx, l.cancel = context.WithCancel(context.Background())
}
