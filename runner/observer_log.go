package runner

import (
	"log/slog"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/redact"
)

// logged returns an observer that tells a logger: how runs end at info, a failure as
// a warning, everything else at debug. Of what was said it logs nothing.
func logged(log *slog.Logger, now func() time.Time) Observer {
	l := &runLog{log, now}
	return Observer{
		Claimed:       l.claimed,
		Released:      l.released,
		RunStarted:    l.runStarted,
		RunRecovered:  l.runRecovered,
		RunHandedOver: l.runHandedOver,
		RunSuspended:  l.runSuspended,
		RunFinished:   l.runFinished,
		Observer: agent.Observer{
			StepStarted:   l.stepStarted,
			StepCommitted: l.stepCommitted,
			StepDiscarded: l.stepDiscarded,
			ModelStarted:  l.modelStarted,
			ModelEnded:    l.modelEnded,
			ModelRetry:    l.modelRetry,
			ToolStarted:   l.toolStarted,
			ToolEnded:     l.toolEnded,
		},
	}
}

// runLog writes what a runner and its runs do into a logger.
type runLog struct {
	log *slog.Logger
	now func() time.Time
}

func (l *runLog) debug(msg string, r agent.RunInfo, args ...any) {
	l.log.Debug(msg, append([]any{"session", r.Session, "run", r.RunID}, args...)...)
}

// withError adds an error, if there is one, to a line's arguments.
func withError(args []any, err error) []any {
	if err == nil {
		return args
	}
	return append(args, "error", redact.Text(err.Error()))
}

func (l *runLog) claimed(session string, waited time.Duration) {
	l.log.Debug("claimed", "session", session, "waited", waited)
}

func (l *runLog) released(session string) { l.log.Debug("released", "session", session) }

func (l *runLog) runStarted(r agent.RunInfo) {
	l.debug("run started", r, "agent", r.Agent, "mode", r.Mode, "turn", r.TurnID)
}

func (l *runLog) runRecovered(r agent.RunInfo) {
	l.log.Info("run recovered", "session", r.Session, "run", r.RunID, "agent", r.Agent)
}

func (l *runLog) runHandedOver(r agent.RunInfo) {
	l.log.Info("run handed over", "session", r.Session, "run", r.RunID, "agent", r.Agent)
}

func (l *runLog) runSuspended(r agent.RunInfo, kind string) {
	l.debug("run suspended", r, "kind", kind)
}

func (l *runLog) runFinished(r agent.RunInfo, err error) {
	args := []any{"session", r.Session, "run", r.RunID, "agent", r.Agent, "outcome", string(r.Outcome)}
	if r.Code != "" {
		args = append(args, "code", r.Code)
	}
	args = append(args, "steps", r.Steps, "inputTokens", r.Usage.InputTokens, "outputTokens", r.Usage.OutputTokens)
	if !r.Started.IsZero() {
		args = append(args, "took", l.now().Sub(r.Started).Round(time.Millisecond))
	}
	if err == nil {
		l.log.Info("run finished", args...)
		return
	}
	l.log.Warn("run failed", withError(args, err)...)
}

func (l *runLog) stepStarted(r agent.RunInfo, step int) { l.debug("step started", r, "step", step) }

func (l *runLog) stepCommitted(r agent.RunInfo, step int) { l.debug("step committed", r, "step", step) }

func (l *runLog) stepDiscarded(r agent.RunInfo, step int, reason string) {
	l.debug("step discarded", r, "step", step, "reason", reason)
}

func (l *runLog) modelStarted(r agent.RunInfo, c agent.ModelCall) {
	l.debug("model called", r, "step", c.Step, "attempt", c.Attempt, "resumed", c.Resumed)
}

func (l *runLog) modelEnded(r agent.RunInfo, c agent.ModelCall) {
	args := []any{"step", c.Step, "attempt", c.Attempt, "took", c.Duration, "finish", c.FinishReason,
		"inputTokens", c.Usage.InputTokens, "outputTokens", c.Usage.OutputTokens}
	l.debug("model answered", r, withError(args, c.Err)...)
}

func (l *runLog) modelRetry(r agent.RunInfo, c agent.ModelCall, delay time.Duration) {
	l.log.Info("model call retried", "session", r.Session, "run", r.RunID, "step", c.Step, "attempt", c.Attempt+1,
		"delay", delay.Round(time.Millisecond), "error", redact.Text(c.Err.Error()))
}

func (l *runLog) toolStarted(r agent.RunInfo, c agent.ToolCall) {
	l.debug("tool called", r, "tool", c.Name, "call", c.ID)
}

func (l *runLog) toolEnded(r agent.RunInfo, c agent.ToolCall) {
	args := []any{"tool", c.Name, "call", c.ID, "took", c.Duration}
	l.debug("tool answered", r, withError(args, c.Err)...)
}
