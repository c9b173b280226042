package runner

import (
	"context"

	"github.com/spool-run/spool/agent"
)

// Annotations are what a program adds to the runs of a runner's agents. Each function is
// called once, by the process that owns the run, and its result is stored. Other
// processes and later readers only read it.
type Annotations struct {
	// StartMetadata and FinishMetadata are those of agents that have none of their own:
	// see [agent.Agent].
	StartMetadata  func(ctx context.Context, r agent.RunInfo) any
	FinishMetadata func(ctx context.Context, r agent.RunInfo) any
	// MessageID names the assistant message of a session's next turn. If the session has
	// that id already, a number is appended to it: "answer", "answer-2", …. An id that is
	// not valid is replaced by a new one. nil: all ids are new ones.
	MessageID func(session string) string
}

// Annotate sets the annotations of the runs in sessions that are claimed from now on.
// Functions that are nil leave those that were set before.
func (r *Runner) Annotate(a Annotations) {
	for {
		before := r.annotations.Load()
		next := a
		if before != nil {
			if next.StartMetadata == nil {
				next.StartMetadata = before.StartMetadata
			}
			if next.FinishMetadata == nil {
				next.FinishMetadata = before.FinishMetadata
			}
			if next.MessageID == nil {
				next.MessageID = before.MessageID
			}
		}
		if r.annotations.CompareAndSwap(before, &next) {
			return
		}
	}
}

// annotated returns the agent with the runner's metadata where it has none of its own.
func (r *Runner) annotated(a *agent.Agent) *agent.Agent {
	n := r.annotations.Load()
	if (n.StartMetadata == nil || a.StartMetadata != nil) && (n.FinishMetadata == nil || a.FinishMetadata != nil) {
		return a
	}
	with := *a
	if with.StartMetadata == nil {
		with.StartMetadata = n.StartMetadata
	}
	if with.FinishMetadata == nil {
		with.FinishMetadata = n.FinishMetadata
	}
	return &with
}
