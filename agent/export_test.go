package agent

import (
	"context"

	"github.com/spool-run/spool/fold"
)

// Step runs the next step of a run: its model phase and its tool phase.
func (a *Agent) Step(ctx context.Context, r *Run) (Result, error) { return a.stepFrom(ctx, r, false) }

// Recover takes a run up where the log has left it, as far as to the end of the step that
// was open.
func (a *Agent) Recover(ctx context.Context, r *Run) (Result, error) { return a.stepFrom(ctx, r, true) }

func (a *Agent) stepFrom(ctx context.Context, r *Run, goesOn bool) (Result, error) {
	d, err := a.Driver(ctx, r, goesOn)
	if err != nil {
		return Result{}, err
	}
	phase, result, err := d.Next()
	open := d.resume || phase == fold.PhaseTools
	if phase == fold.PhaseModel && (open || !goesOn) {
		if result, err = d.ModelPhase(); err != nil || d.step == nil {
			return result, err
		}
		open = true
	}
	if err == nil && open {
		return d.ToolPhase()
	}
	return result, err
}
