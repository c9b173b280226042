package runner

import (
	"log/slog"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/redact"
)

// Observer is told what a runner and its runs do; each member may be nil. They
// are called from the goroutines of runs, several at a time, and must not block.
type Observer struct {
	agent.Observer // steps, model calls and tool calls

	// Claimed: a session is served here from now on. It has waited so long since
	// it became due; 0 if that is not known.
	Claimed  func(session string, waited time.Duration)
	Released func(session string)

	RunStarted   func(r agent.RunInfo)
	RunRecovered func(r agent.RunInfo)              // its owner was lost; it goes on here
	RunSuspended func(r agent.RunInfo, kind string) // it waits for answers
	// RunFinished: err says why it failed, and may hold what its log must not.
	RunFinished func(r agent.RunInfo, err error)

	// Failed reports what kept a session from being served, "" for claiming
	// itself. nil: the logs' logger.
	Failed func(session string, err error)
}

// all returns an observer that tells these, in order.
func all(observers ...Observer) Observer {
	run := func(member func(Observer) func(agent.RunInfo)) func(agent.RunInfo) {
		return func(r agent.RunInfo) {
			for _, o := range observers {
				if fn := member(o); fn != nil {
					fn(r)
				}
			}
		}
	}
	step := func(member func(Observer) func(agent.RunInfo, int)) func(agent.RunInfo, int) {
		return func(r agent.RunInfo, n int) {
			for _, o := range observers {
				if fn := member(o); fn != nil {
					fn(r, n)
				}
			}
		}
	}
	model := func(member func(Observer) func(agent.RunInfo, agent.ModelCall)) func(agent.RunInfo, agent.ModelCall) {
		return func(r agent.RunInfo, c agent.ModelCall) {
			for _, o := range observers {
				if fn := member(o); fn != nil {
					fn(r, c)
				}
			}
		}
	}
	tool := func(member func(Observer) func(agent.RunInfo, agent.ToolCall)) func(agent.RunInfo, agent.ToolCall) {
		return func(r agent.RunInfo, c agent.ToolCall) {
			for _, o := range observers {
				if fn := member(o); fn != nil {
					fn(r, c)
				}
			}
		}
	}
	joined := Observer{
		RunStarted:   run(func(o Observer) func(agent.RunInfo) { return o.RunStarted }),
		RunRecovered: run(func(o Observer) func(agent.RunInfo) { return o.RunRecovered }),
		RunSuspended: func(r agent.RunInfo, kind string) {
			for _, o := range observers {
				if o.RunSuspended != nil {
					o.RunSuspended(r, kind)
				}
			}
		},
		RunFinished: func(r agent.RunInfo, err error) {
			for _, o := range observers {
				if o.RunFinished != nil {
					o.RunFinished(r, err)
				}
			}
		},
		Claimed: func(session string, waited time.Duration) {
			for _, o := range observers {
				if o.Claimed != nil {
					o.Claimed(session, waited)
				}
			}
		},
		Released: func(session string) {
			for _, o := range observers {
				if o.Released != nil {
					o.Released(session)
				}
			}
		},
	}
	joined.Observer = agent.Observer{
		StepStarted:   step(func(o Observer) func(agent.RunInfo, int) { return o.StepStarted }),
		StepCommitted: step(func(o Observer) func(agent.RunInfo, int) { return o.StepCommitted }),
		StepDiscarded: func(r agent.RunInfo, n int, reason string) {
			for _, o := range observers {
				if o.StepDiscarded != nil {
					o.StepDiscarded(r, n, reason)
				}
			}
		},
		ModelStarted: model(func(o Observer) func(agent.RunInfo, agent.ModelCall) { return o.ModelStarted }),
		ModelEnded:   model(func(o Observer) func(agent.RunInfo, agent.ModelCall) { return o.ModelEnded }),
		ModelRetry: func(r agent.RunInfo, c agent.ModelCall, delay time.Duration) {
			for _, o := range observers {
				if o.ModelRetry != nil {
					o.ModelRetry(r, c, delay)
				}
			}
		},
		ToolStarted: tool(func(o Observer) func(agent.RunInfo, agent.ToolCall) { return o.ToolStarted }),
		ToolEnded:   tool(func(o Observer) func(agent.RunInfo, agent.ToolCall) { return o.ToolEnded }),
	}
	return joined
}

// logged tells a logger the same: how runs end at info, a failure as a warning,
// everything else at debug. Of what was said it logs nothing.
func logged(log *slog.Logger, now func() time.Time) Observer {
	debug := func(msg string, r agent.RunInfo, args ...any) {
		log.Debug(msg, append([]any{"session", r.Session, "run", r.RunID}, args...)...)
	}
	o := Observer{
		Claimed: func(session string, waited time.Duration) {
			log.Debug("claimed", "session", session, "waited", waited)
		},
		Released:     func(session string) { log.Debug("released", "session", session) },
		RunStarted:   func(r agent.RunInfo) { debug("run started", r, "agent", r.Agent, "mode", r.Mode, "turn", r.TurnID) },
		RunSuspended: func(r agent.RunInfo, kind string) { debug("run suspended", r, "kind", kind) },
		RunRecovered: func(r agent.RunInfo) {
			log.Info("run recovered", "session", r.Session, "run", r.RunID, "agent", r.Agent)
		},
		RunFinished: func(r agent.RunInfo, err error) {
			args := []any{"session", r.Session, "run", r.RunID, "agent", r.Agent, "outcome", string(r.Outcome)}
			if r.Code != "" {
				args = append(args, "code", r.Code)
			}
			args = append(args, "steps", r.Steps, "inputTokens", r.Usage.InputTokens, "outputTokens", r.Usage.OutputTokens)
			if !r.Started.IsZero() {
				args = append(args, "took", now().Sub(r.Started).Round(time.Millisecond))
			}
			if err == nil {
				log.Info("run finished", args...)
				return
			}
			log.Warn("run failed", append(args, "error", redact.Text(err.Error()))...)
		},
	}
	o.Observer = agent.Observer{
		StepStarted:   func(r agent.RunInfo, step int) { debug("step started", r, "step", step) },
		StepCommitted: func(r agent.RunInfo, step int) { debug("step committed", r, "step", step) },
		StepDiscarded: func(r agent.RunInfo, step int, reason string) {
			debug("step discarded", r, "step", step, "reason", reason)
		},
		ModelStarted: func(r agent.RunInfo, c agent.ModelCall) {
			debug("model called", r, "step", c.Step, "attempt", c.Attempt, "resumed", c.Resumed)
		},
		ModelEnded: func(r agent.RunInfo, c agent.ModelCall) {
			args := []any{"step", c.Step, "attempt", c.Attempt, "took", c.Duration, "finish", c.FinishReason,
				"inputTokens", c.Usage.InputTokens, "outputTokens", c.Usage.OutputTokens}
			if c.Err != nil {
				args = append(args, "error", redact.Text(c.Err.Error()))
			}
			debug("model answered", r, args...)
		},
		ModelRetry: func(r agent.RunInfo, c agent.ModelCall, delay time.Duration) {
			log.Info("the model is asked again", "session", r.Session, "run", r.RunID, "step", c.Step, "attempt", c.Attempt+1,
				"delay", delay.Round(time.Millisecond), "error", redact.Text(c.Err.Error()))
		},
		ToolStarted: func(r agent.RunInfo, c agent.ToolCall) { debug("tool called", r, "tool", c.Name, "call", c.ID) },
		ToolEnded: func(r agent.RunInfo, c agent.ToolCall) {
			args := []any{"tool", c.Name, "call", c.ID, "took", c.Duration}
			if c.Err != nil {
				args = append(args, "error", redact.Text(c.Err.Error()))
			}
			debug("tool answered", r, args...)
		},
	}
	return o
}

// waited returns how long a session has been due.
func waited(lease spool.Lease, now time.Time) time.Duration {
	if due := lease.Head.Due; due > 0 {
		return max(now.Sub(time.UnixMilli(due)), 0)
	}
	return 0
}
