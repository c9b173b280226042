package agent

import (
	"time"

	"github.com/spool-run/spool/chunk"
)

// Observer is told what runs do, those of sub-agents too: for metrics, traces and
// logs. Unlike hooks it changes nothing and is not in the log. Each member may be
// nil; they are called from the run's goroutines, several at a time, and must not
// block or panic.
type Observer struct {
	StepStarted   func(r RunInfo, step int)
	StepCommitted func(r RunInfo, step int)
	// StepDiscarded: what the model said in the step was retracted; it begins
	// again.
	StepDiscarded func(r RunInfo, step int, reason string)

	ModelStarted func(r RunInfo, c ModelCall)
	ModelEnded   func(r RunInfo, c ModelCall)
	// ModelRetry: the call has failed and is made again after the delay.
	ModelRetry func(r RunInfo, c ModelCall, delay time.Duration)

	// ToolStarted and ToolEnded are told of calls that are made here: of Input and
	// Result they say nothing.
	ToolStarted func(r RunInfo, c ToolCall)
	ToolEnded   func(r RunInfo, c ToolCall)
}

// ModelCall is one request to the model, or the rest of one that another process
// has made.
type ModelCall struct {
	Step    int
	Attempt int // from 0
	Resumed bool

	// Of a call that has ended.
	Duration     time.Duration
	Usage        chunk.Usage
	FinishReason string
	Err          error // why it failed, nil if it did not
}

func (r *Run) stepStarted(step int) {
	if o := r.Observer; o != nil && o.StepStarted != nil {
		o.StepStarted(r.Info, step)
	}
}

func (r *Run) stepCommitted(step int) {
	if o := r.Observer; o != nil && o.StepCommitted != nil {
		o.StepCommitted(r.Info, step)
	}
}

func (r *Run) stepDiscarded(step int, reason string) {
	if o := r.Observer; o != nil && o.StepDiscarded != nil {
		o.StepDiscarded(r.Info, step, reason)
	}
}

// modelCalled notes that a model call begins, and returns what notes its end.
func (s *step) modelCalled(attempt int, resumed bool) (ended func(err error) ModelCall) {
	r, c := s.run, ModelCall{Step: s.number, Attempt: attempt, Resumed: resumed}
	if o := r.Observer; o != nil && o.ModelStarted != nil {
		o.ModelStarted(r.Info, c)
	}
	begun := r.Seams.Now()
	return func(err error) ModelCall {
		c.Duration, c.Usage, c.Err = r.Seams.Now().Sub(begun), s.usage, err
		if err == nil {
			c.FinishReason = s.finish
		}
		if o := r.Observer; o != nil && o.ModelEnded != nil {
			o.ModelEnded(r.Info, c)
		}
		return c
	}
}

func (r *Run) modelRetry(c ModelCall, delay time.Duration) {
	if o := r.Observer; o != nil && o.ModelRetry != nil {
		o.ModelRetry(r.Info, c, delay)
	}
}

// toolCalled notes that a call is made, and returns what notes its outcome.
func (s *step) toolCalled(c *call) (ended func(err error)) {
	r, t := s.run, ToolCall{ID: c.id, Name: c.name, EffectID: c.effectID}
	if o := r.Observer; o != nil && o.ToolStarted != nil {
		o.ToolStarted(r.Info, t)
	}
	begun := r.Seams.Now()
	return func(err error) {
		t.Err, t.Duration = err, r.Seams.Now().Sub(begun)
		if o := r.Observer; o != nil && o.ToolEnded != nil {
			o.ToolEnded(r.Info, t)
		}
	}
}
