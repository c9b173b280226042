package agent

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
)

const (
	maxBackoff    = 30 * time.Second
	maxRetryAfter = 2 * time.Minute // what asks for more is not waited for
)

// answer has the model answer, in the log. A call that fails is made again where
// that may help: what it has shown is discarded first.
func (s *step) answer(ctx context.Context, base *model.Request) error {
	s.asked = base
	req, err := s.beforeModel(ctx, base)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		if err := s.run.ready(ctx); err != nil {
			return err
		}
		t := &transcript{step: s, ids: map[string]*call{}}
		ended := s.modelCalled(attempt, false)
		err := t.stream(ctx, s.agent.Model.Stream(ctx, req))
		call := ended(err)
		if err == nil {
			return s.afterModel(ctx, call)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failed, delay := s.again(err, t.visible, attempt)
		if failed == nil {
			return err
		}
		_ = s.agent.Abandon(ctx, s.run.Seams, t.cursor)
		s.run.spend(s.usage) // what a cut answer has cost counts too
		s.usage = chunk.Usage{}
		if t.visible {
			if err := s.discard(ctx, "model_retry"); err != nil {
				return err
			}
		}
		s.run.modelRetry(call, delay)
		if err := s.announce(ctx, failed, attempt+1, delay); err != nil {
			return err
		}
		if err := s.run.awaitRetry(ctx, delay); err != nil {
			return err
		}
		if !t.visible {
			continue
		}
		if err := s.append(ctx, &chunk.StepStarted{StepID: s.id}); err != nil {
			return err
		}
		s.run.stepStarted(s.number)
		if req, err = s.beforeModel(ctx, base); err != nil {
			return err
		}
	}
}

// again decides whether a failed model call is made again, and after which delay. A
// nil error means that it is not.
func (s *step) again(err error, visible bool, attempt int) (*model.Error, time.Duration) {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || !e.Retryable || attempt >= s.agent.maxRetries() || e.RetryAfter > maxRetryAfter {
		return nil, 0
	}
	if visible && (s.agent.FailPartial || e.Code == model.CodeUnknown) {
		return nil, 0
	}
	// Half of the delay is spread. Otherwise all runs that fail at the same time would
	// call the provider again at the same time. The spread depends on the step alone,
	// so that the same run always waits the same time.
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.id + "/" + strconv.Itoa(attempt)))
	spread := float64(h.Sum64()>>11) / (1 << 53)
	backoff := min(time.Second<<min(attempt, 10), maxBackoff)
	delay := backoff/2 + time.Duration(spread*float64(backoff/2))
	if e.RetryAfter > 0 {
		delay = max(delay, e.RetryAfter+time.Duration(spread*float64(e.RetryAfter/4)))
	}
	return e, delay
}

// discard drops what the model has said in this step, and what hooks have done.
// If that was nothing, there is nothing to drop.
func (s *step) discard(ctx context.Context, reason string) error {
	if err := s.run.Log.Flush(ctx); err != nil {
		return err
	}
	var chunks []chunk.Chunk
	err := s.run.Log.View(ctx, func(f *fold.Fold) error {
		if f.Shown() {
			chunks = f.Owed().Discard(reason)
		}
		return nil
	})
	if err != nil || len(chunks) == 0 {
		return err
	}
	s.forget()
	s.state = nil
	s.run.stepDiscarded(s.number, reason)
	return s.append(ctx, chunks...)
}

// hookAgain calls the hooks before a model call again, in a step that takes the place
// of a discarded one. The model has its request already, so that what they make of it
// does not count.
func (s *step) hookAgain(ctx context.Context) error {
	if len(s.hooks()) == 0 {
		return nil
	}
	s.state = nil
	if s.asked == nil {
		var err error
		if s.asked, err = s.request(ctx); err != nil {
			return err
		}
	}
	_, err := s.beforeModel(ctx, s.asked)
	return err
}

// forget drops what the step knows of the model's words.
func (s *step) forget() {
	for _, c := range s.calls {
		delete(s.run.callIDs, c.id)
	}
	s.calls, s.usage, s.finish, s.paused = nil, chunk.Usage{}, "", false
	s.text.Reset()
}

// awaitRetry waits before a failed model call is made again. As the model has said
// nothing, the run is at a step boundary: if it is to end or to pause there, the error
// is a *stepBoundary that says how.
func (r *Run) awaitRetry(ctx context.Context, d time.Duration) error {
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	r.stops.mu.Lock()
	r.stops.wait = cancel
	r.stops.mu.Unlock()
	result, err := r.boundary(ctx) // it may have been asked before
	if err == nil && !result.Over() {
		if r.Seams.Sleep(waits, d) != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		result, err = r.boundary(ctx)
	}
	if err == nil && result.Over() {
		r.Info.Steps-- // the step that was begun does not count
		err = &stepBoundary{result}
	}
	return err
}

// stepBoundary ends a run's steps at a boundary inside of a step that has said nothing.
type stepBoundary struct{ Result }

func (*stepBoundary) Error() string { return "agent: the run is at a step boundary" }

// announce shows readers that the model is asked again. It is no part
// of the message.
func (s *step) announce(ctx context.Context, e *model.Error, attempt int, delay time.Duration) error {
	data, err := json.Marshal(struct {
		Attempt int    `json:"attempt"` // the one that follows, from 1
		Code    string `json:"code"`
		DelayMs int64  `json:"delayMs"`
	}{attempt, e.Code, delay.Milliseconds()})
	if err != nil {
		return err
	}
	return s.append(ctx, &chunk.Custom{EventName: "model-retry", Data: data, Transient: true})
}
