package runner_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// claimed counts the claims on a store, and tells when somebody waits.
type claimed struct {
	spool.Leaser
	claims  atomic.Int64
	waiting chan struct{}
}

type countedStore struct {
	spool.Store
	*claimed
}

func (c *claimed) Claim(ctx context.Context, claim spool.Claim) (spool.Lease, error) {
	c.claims.Add(1)
	return c.Leaser.Claim(ctx, claim)
}

func (c *claimed) AwaitDue(ctx context.Context, claim spool.Claim) error {
	c.waiting <- struct{}{}
	return c.Leaser.AwaitDue(ctx, claim)
}

// A command wakes one of the runners in its process, not all.
func TestCommandWakesOneRunner(t *testing.T) {
	t.Parallel()
	const runners, commands = 10, 20
	file, err := sqlitestore.Open(filepath.Join(t.TempDir(), "spool.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]spool.Store{"memory": memstore.New(nil), "sqlite": file} {
		t.Run(name, func(t *testing.T) {
			count := &claimed{Leaser: store.(spool.Leaser), waiting: make(chan struct{}, 100*commands)}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			released := make(chan struct{}, commands)
			var logs *spool.Logs
			for range runners {
				logs = spool.NewLogs(countedStore{store, count}, nil) // each is a node of its own
				defer logs.Close()
				r, err := runner.New(logs, []*agent.Agent{demo(nil)}, &runner.Options{
					Observer: runner.Observer{Released: func(string) { released <- struct{}{} }}})
				if err != nil {
					t.Fatal(err)
				}
				running.Go(func() {
					if err := r.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			defer running.Wait()
			defer stop()
			for range runners {
				<-count.waiting
			}
			before := count.claims.Load()
			for i := range commands {
				session := fmt.Sprint("s", i)
				log, err := logs.Log(session)
				if err == nil {
					_, err = log.Command(ctx, spool.Row{}, say("u", "hello"))
				}
				if err != nil {
					t.Fatal(err)
				}
				<-released
				<-count.waiting
			}
			if n := count.claims.Load() - before; n > 3*commands {
				t.Errorf("%d claims for %d commands", n, commands)
			} else {
				t.Logf("%.2f claims a command", float64(n)/commands)
			}
		})
	}
}
