package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/tool"
)

// Run is one run while it lives: what its steps share.
type Run struct {
	Info  RunInfo // Steps and Usage grow with the run
	Log   Log
	Seams Seams

	Inherited []*Hooks // of the agents above, outermost first
	Hooks     *Hooks   // of the program that runs it, called last; nil for none
	Observer  *Observer
	Grace     time.Duration // how long its model and tools may go on when its context has ended

	begun  string // id of the step in which BeforeRun was called
	budget int64
	used   atomic.Int64 // tokens of this run, of the turn's runs before it, and of children

	callIDs    map[string]bool // of the session, so far
	correction string          // what the model is told about its last answer
	corrected  bool
	maxDepth   int // of agents below this one; 0: as the agent says
	crew       *crew
	parent     *Run            // of a child
	alive      context.Context // of a child: as long as its parent's run is
	stops      stops
}

// ready waits until the run may start something that has an effect outside of its log.
func (r *Run) ready(ctx context.Context) error {
	if r.Seams.Ready == nil {
		return nil
	}
	return r.Seams.Ready(ctx)
}

// Result says how the run goes on after a step.
type Result struct {
	Done         bool          // otherwise another step follows
	Outcome      chunk.Outcome // if done
	FinishReason string        // if done
	Code         string        // if done: which limit was reached

	// Suspended is what the run waits for, if it does: a kind of run_suspended.
	// The step stays open in its tool phase.
	Suspended string
	Waiting   []Waiting // the calls
	Children  []string  // the sessions of the children that wait
}

// Waiting is a call that waits for an answer.
type Waiting struct{ CallID, Name string }

// modelPhase runs the next step's model phase and returns the step, whose tool phase
// follows. It returns no step if the run came to a step boundary meanwhile.
func (a *Agent) modelPhase(ctx context.Context, r *Run) (*step, Result, error) {
	s := &step{agent: a, run: r, number: r.Info.Steps + 1}
	s.id = fmt.Sprintf("%s-s%d", r.Info.RunID, s.number)
	req, err := s.request(ctx)
	if err != nil {
		return nil, Result{}, err
	}
	r.Info.Steps = s.number
	if !s.begun {
		if err := s.append(ctx, &chunk.StepStarted{StepID: s.id}); err != nil {
			return nil, Result{}, err
		}
	}
	r.stepStarted(s.number)
	err = s.answer(ctx, req)
	r.spend(s.usage) // what a cut answer has cost counts too
	if at, ok := errors.AsType[*stepBoundary](err); ok {
		return nil, at.Result, nil
	}
	if err == nil {
		err = s.closeModelPhase(ctx)
	}
	if err != nil {
		return nil, Result{}, err
	}
	return s, Result{}, nil
}

// toolPhase does what the model asked for and commits the step, or leaves it
// open because somebody must answer first.
func (s *step) toolPhase(ctx context.Context) (Result, error) {
	waiting, err := s.runTools(ctx)
	if err != nil {
		return Result{}, err
	}
	if len(waiting) > 0 {
		return s.suspend(waiting), s.run.Log.Flush(ctx)
	}
	result, err := s.decide(ctx)
	if err == nil {
		err = s.afterStep(ctx, result)
	}
	if err != nil {
		return Result{}, err
	}
	return result, s.commit(ctx)
}

func (s *step) suspend(calls []*call) Result {
	var result Result
	approval := false
	for _, c := range calls {
		if c.waitsFor != "" {
			result.Children = append(result.Children, c.waitsFor)
			continue
		}
		approval = approval || !c.client
		result.Waiting = append(result.Waiting, Waiting{c.id, c.name})
	}
	return result.suspended(approval)
}

// suspended says what kind of pause it is to wait for the result's calls and
// children.
func (r Result) suspended(approval bool) Result {
	switch {
	case len(r.Children) > 0:
		r.Suspended = chunk.SuspendedChildren
	case approval:
		r.Suspended = chunk.SuspendedApproval
	default:
		r.Suspended = chunk.SuspendedClientTool
	}
	return r
}

// step is one step while it runs.
type step struct {
	agent  *Agent
	tools  []tool.Tool // of this step: see allTools
	run    *Run
	number int
	id     string
	begun  bool   // another process began it, and it has shown nothing
	fatal  string // the error of a call that ends the run
	output bool   // its structured output is in the log

	finish string
	paused bool // the provider has more to say
	usage  chunk.Usage
	text   strings.Builder
	calls  []*call        // in the order in which the model began them
	asked  *model.Request // before hooks changed it
	state  *stepState     // nil until somebody asks

	nextChild int // number of the next child
}

// append stamps chunks with the run and step, and appends them.
func (s *step) append(ctx context.Context, chunks ...chunk.Chunk) error {
	for _, c := range chunks {
		b := c.ChunkBase()
		b.RunID, b.Step = s.run.Info.RunID, s.number
	}
	return s.run.Log.Append(ctx, chunks...)
}

// closeModelPhase commits what the model said.
func (s *step) closeModelPhase(ctx context.Context) error {
	if err := s.run.Log.Flush(ctx); err != nil {
		return err
	}
	var chunks []chunk.Chunk
	err := s.run.Log.View(ctx, func(f *fold.Fold) error {
		var usage *chunk.Usage
		if s.usage != (chunk.Usage{}) {
			usage = &s.usage
		}
		chunks = f.Owed().CloseModelPhase(s.finish, usage)
		chunks[len(chunks)-1].(*chunk.AssistantMessage).Unfinished = s.paused
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if m, ok := c.(*chunk.AssistantMessage); ok {
			s.noteEffectIDs(m.Parts)
		}
	}
	return s.append(ctx, chunks...)
}

// noteEffectIDs takes the ids under which the message's calls have their effects.
func (s *step) noteEffectIDs(parts []chunk.Part) {
	for _, p := range parts {
		if p.Tool == nil {
			continue
		}
		if c := s.call(p.Tool.CallID); c != nil {
			c.effectID = p.Tool.EffectID
		}
	}
}

// judge says whether the run is done. For a structured answer it returns the
// value, or why it is not accepted: then the run goes on with a correction.
func (s *step) judge() (result Result, output json.RawMessage, rejected error) {
	if s.paused || slices.ContainsFunc(s.calls, func(c *call) bool { return !c.providerExecuted }) {
		if l := s.limit(); l != nil {
			return l.reached(), nil, nil
		}
		return Result{}, nil, nil
	}
	result = Result{Done: true, Outcome: chunk.OutcomeCompleted, FinishReason: s.finish}
	if s.agent.Output == nil {
		return result, nil, nil
	}
	if output, rejected = s.agent.Output.parse(s.text.String()); rejected != nil {
		return Result{}, nil, rejected
	}
	return result, output, nil
}

// correct makes the next step ask for a better answer.
func (s *step) correct(err error) {
	s.run.corrected = true
	s.run.correction = "Your answer was not accepted: " + err.Error() +
		"\nAnswer again with nothing but JSON that satisfies this schema:\n" + string(s.agent.Output.schema.JSON())
}

// decide says whether the run is done, and writes its structured output.
func (s *step) decide(ctx context.Context) (Result, error) {
	result, output, err := s.judge()
	if err == nil {
		if output == nil || s.output {
			return result, nil
		}
		return result, s.append(ctx, &chunk.Output{Output: output})
	}
	if s.run.corrected || s.number >= s.agent.maxSteps() {
		return Result{}, ErrOutputInvalid.With(s.run.Info.Session, err)
	}
	s.correct(err)
	data, err := json.Marshal(map[string]string{"error": err.Error()})
	if err != nil {
		return Result{}, err
	}
	return Result{}, s.append(ctx, &chunk.Custom{EventName: "output-rejected", Data: data, Transient: true})
}

// parse takes the JSON value out of an answer's text.
func (o *Output) parse(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if body, ok := strings.CutPrefix(text, "```"); ok {
		if body, ok = strings.CutSuffix(body, "```"); ok {
			_, text, _ = strings.Cut(body, "\n")
			text = strings.TrimSpace(text)
		}
	}
	value := json.RawMessage(text)
	return value, o.schema.Validate(value)
}

// commit commits the step and names the checkpoint.
func (s *step) commit(ctx context.Context) error {
	if err := s.run.Log.Flush(ctx); err != nil {
		return err
	}
	info := &s.run.Info
	checkpoint := fmt.Sprintf("cpv1-%s-s%d-t%d-%s", info.Session, s.number, s.run.Seams.Now().UnixMilli(), tail(s.run.Seams.NewID(), 6))
	var chunks []chunk.Chunk
	err := s.run.Log.View(ctx, func(f *fold.Fold) error {
		chunks = f.Owed().CloseStep(checkpoint)
		return nil
	})
	if err != nil {
		return err
	}
	chunks = append(chunks, &chunk.CheckpointCreated{CheckpointID: checkpoint, StepCount: s.number})
	if err := s.append(ctx, chunks...); err != nil {
		return err
	}
	err = s.run.Log.Flush(ctx)
	if err == nil {
		s.run.stepCommitted(s.number)
	}
	return err
}

// tail returns the last n bytes of an id.
func tail(id string, n int) string { return id[max(len(id)-n, 0):] }

func (s *step) call(id string) *call {
	for _, c := range s.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}
