package engine_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
)

// A program that has a loop of its own drives the engine itself: here, one phase under
// each lease.
func Example() {
	ctx := context.Background()
	store := memstore.New(nil)
	defer store.Close()
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	assistant := &agent.Agent{Name: "assistant", Model: scripted.New(nil)}

	in := runner.Text("hello")
	in.Session = "s"
	turn, err := runner.Execute(ctx, logs, in)
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		lease, err := logs.Claim(ctx, spool.Claim{Owner: "me"})
		if err != nil {
			break // nothing is due
		}
		if err := piece(ctx, logs, lease, assistant); err != nil {
			fmt.Println(err)
			return
		}
		if err := store.Release(ctx, lease); err != nil {
			fmt.Println(err)
			return
		}
	}
	result, err := turn.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Status, result.Reason)
	// Output:
	// begin
	// model phase
	// tool phase
	// ended completed
}

// piece does the next piece of what a claimed session needs.
func piece(ctx context.Context, logs *spool.Logs, lease spool.Lease, a *agent.Agent) error {
	e, err := engine.New(engine.Options{Logs: logs, Lease: lease, Agent: a})
	if err != nil {
		return err
	}
	defer e.Close()
	p, err := e.Plan(ctx)
	if err != nil {
		return err
	}
	var run *engine.Run
	switch p.Next {
	case engine.Begin:
		fmt.Println("begin")
		run, err = e.Begin(ctx, p)
	case engine.Recover:
		run, err = e.Recover(ctx, p)
	case engine.Settle:
		return e.Settle(ctx, p)
	case engine.Expire:
		return e.Expire(ctx)
	case engine.Rest:
		_, err := e.Rest(ctx, p)
		return err
	}
	for over := false; err == nil && !over; {
		switch run.Next() {
		case fold.PhaseModel:
			fmt.Println("model phase")
			run.ModelPhase()
		case fold.PhaseTools:
			fmt.Println("tool phase")
			run.ToolPhase()
		default:
			over, err = run.End()
			continue
		}
		over, err = run.HandOver()
	}
	return err
}
