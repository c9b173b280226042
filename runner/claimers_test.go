package runner_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// granting is a store that grants a claim only when the test says so, and whose caller may have
// left by then.
type granting struct {
	spool.Leaser
	asked chan struct{}
	grant chan struct{}
}

type grantingStore struct {
	spool.Store
	*granting
}

func (g *granting) Claim(ctx context.Context, claim spool.Claim) (spool.Lease, error) {
	g.asked <- struct{}{}
	<-g.grant
	lease, err := g.Leaser.Claim(context.WithoutCancel(ctx), claim)
	if ctx.Err() != nil {
		return spool.Lease{}, ctx.Err()
	}
	return lease, err
}

// A session whose claim is under way while its runner is told to stop is not lost to the
// others until the lease expires.
func TestClaimAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, time.Hour} {
		store := memstore.New(nil)
		slow := &granting{Leaser: store, asked: make(chan struct{}, 1), grant: make(chan struct{})}
		logs := spool.NewLogs(grantingStore{store, slow}, nil)
		log, err := logs.Log("s")
		if err == nil {
			_, err = log.Command(t.Context(), spool.Row{}, say("u", "hello"))
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := runner.New(logs, []*agent.Agent{demo(nil)}, &runner.Options{LeaseTTL: time.Hour, DrainGrace: grace})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		<-slow.asked
		stop()
		close(slow.grant)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if _, err := store.Claim(t.Context(), spool.Claim{Owner: "another"}); err != nil {
			t.Errorf("grace %v: %v", grace, err)
		}
		if err := logs.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
