package runner

import (
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/engine"
)

// Observer is told what a runner and its runs do; each member may be nil. They
// are called from the goroutines of runs, several at a time, and must not block.
type Observer struct {
	agent.Observer // steps, model calls and tool calls

	// Claimed: a session is served here from now on. waited is how long it has been
	// due; 0 if that is not known.
	Claimed  func(session string, waited time.Duration)
	Released func(session string)

	RunStarted    func(r agent.RunInfo)
	RunRecovered  func(r agent.RunInfo)              // its owner was lost; it goes on here
	RunHandedOver func(r agent.RunInfo)              // the runner drains; the next owner goes on with it
	RunSuspended  func(r agent.RunInfo, kind string) // it waits for answers
	// RunFinished: err says why it failed, and may hold what its log must not.
	RunFinished func(r agent.RunInfo, err error)

	// Failed reports what kept a session from being served; session is "" if none
	// could be claimed. nil: the logs' logger is told.
	Failed func(session string, err error)
}

// all returns an observer that tells these, in order.
func all(observers ...Observer) Observer {
	return Observer{
		Claimed:       each2(observers, func(o *Observer) func(string, time.Duration) { return o.Claimed }),
		Released:      each(observers, func(o *Observer) func(string) { return o.Released }),
		RunStarted:    each(observers, func(o *Observer) func(agent.RunInfo) { return o.RunStarted }),
		RunRecovered:  each(observers, func(o *Observer) func(agent.RunInfo) { return o.RunRecovered }),
		RunHandedOver: each(observers, func(o *Observer) func(agent.RunInfo) { return o.RunHandedOver }),
		RunSuspended:  each2(observers, func(o *Observer) func(agent.RunInfo, string) { return o.RunSuspended }),
		RunFinished:   each2(observers, func(o *Observer) func(agent.RunInfo, error) { return o.RunFinished }),
		Observer: agent.Observer{
			StepStarted:   each2(observers, func(o *Observer) func(agent.RunInfo, int) { return o.StepStarted }),
			StepCommitted: each2(observers, func(o *Observer) func(agent.RunInfo, int) { return o.StepCommitted }),
			StepDiscarded: each3(observers, func(o *Observer) func(agent.RunInfo, int, string) { return o.StepDiscarded }),
			ModelStarted:  each2(observers, func(o *Observer) func(agent.RunInfo, agent.ModelCall) { return o.ModelStarted }),
			ModelEnded:    each2(observers, func(o *Observer) func(agent.RunInfo, agent.ModelCall) { return o.ModelEnded }),
			ModelRetry: each3(observers, func(o *Observer) func(agent.RunInfo, agent.ModelCall, time.Duration) {
				return o.ModelRetry
			}),
			ToolStarted: each2(observers, func(o *Observer) func(agent.RunInfo, agent.ToolCall) { return o.ToolStarted }),
			ToolEnded:   each2(observers, func(o *Observer) func(agent.RunInfo, agent.ToolCall) { return o.ToolEnded }),
		},
	}
}

// engine returns what an engine tells.
func (o *Observer) engine() engine.Observer {
	return engine.Observer{Observer: o.Observer, RunStarted: o.RunStarted, RunRecovered: o.RunRecovered, RunHandedOver: o.RunHandedOver,
		RunSuspended: o.RunSuspended, RunFinished: o.RunFinished}
}

// each returns a function that calls one member of every observer that has it.
func each[A any](observers []Observer, member func(*Observer) func(A)) func(A) {
	return func(a A) {
		for i := range observers {
			if tell := member(&observers[i]); tell != nil {
				tell(a)
			}
		}
	}
}

// each2 is each for members with two arguments.
func each2[A, B any](observers []Observer, member func(*Observer) func(A, B)) func(A, B) {
	return func(a A, b B) {
		for i := range observers {
			if tell := member(&observers[i]); tell != nil {
				tell(a, b)
			}
		}
	}
}

// each3 is each for members with three arguments.
func each3[A, B, C any](observers []Observer, member func(*Observer) func(A, B, C)) func(A, B, C) {
	return func(a A, b B, c C) {
		for i := range observers {
			if tell := member(&observers[i]); tell != nil {
				tell(a, b, c)
			}
		}
	}
}

// waited returns how long a session has been due.
func waited(lease spool.Lease) time.Duration {
	if due := lease.Head.Due; due > 0 {
		return max(time.Duration(lease.Now-due)*time.Millisecond, 0)
	}
	return 0
}
