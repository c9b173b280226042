// Package agent says what an agent is and runs one step of it: a model call and
// the tools that it asks for. It knows no store, no HTTP and no wire; where its
// runs live, and how they end, is the business of package runner.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/tool"
)

// Agent is a model with instructions and tools. It is data: many runs use one
// Agent at the same time, and nobody modifies it while they do.
type Agent struct {
	Name         string // the agent type in the log; selects the agent of a session
	Instructions string // the system prompt
	Model        model.Model
	Tools        []tool.Tool
	Companions   []Companion // agents that the model can spawn and talk to
	// MoreTools returns tools that may come and go, for example those of an MCP
	// server. It is called once a step and must not block. Agents among them are
	// left out. Of several tools with one name the first counts; Tools come first.
	// nil: there are none.
	MoreTools func() []tool.Tool
	Output    *Output // what the final answer must be; nil for free text: see [OutputOf]

	MaxDepth    int           // of sub-agents below a run of this agent; 0: 5
	MaxTokens   int           // of one answer; 0: the provider's default
	Temperature *float64      // nil: the provider's default
	ToolTimeout time.Duration // of one call; 0: no limit
	WaitLimit   time.Duration // of a pause: then approvals that were asked for are denied, and client-executed calls fail; 0: no limit
	MaxRetries  int           // of a model call that failed and may be repeated; 0: 2, negative: none

	// FailPartial says what becomes of a model call that broke off after it had shown
	// something: it failed in mid-answer, or its process was lost, and its answer
	// cannot be resumed. If it is true, the run fails, and what was shown is its
	// answer. Otherwise the model is asked again where that may help, and what was
	// shown is retracted.
	FailPartial bool

	// Limits. A run that reaches one ends with the outcome limit and the code of
	// a [Limit]; what it said so far is the answer. Pauses do not count, and runs
	// before a pause count for the one that goes on.
	MaxSteps    int           // model calls of one turn; 0: 20
	MaxAnswer   int           // bytes of text, reasoning and arguments in one model call's answer; 0: 8 MiB, negative: no limit
	TokenBudget int64         // input and output of all model calls, of children too; looked at between steps; 0: no limit
	StepTimeout time.Duration // of one model call with its repeats, and the calls it asks for; 0: no limit
	RunTimeout  time.Duration // of all steps, also across lost owners; 0: no limit

	Hooks *Hooks // nil for none

	// StartMetadata and FinishMetadata return what is stored with a run and shown
	// in the wires' start and finish frames: a value whose JSON is an object, or
	// nil. Each is called once, by the process that owns the run.
	StartMetadata  func(ctx context.Context, r RunInfo) any
	FinishMetadata func(ctx context.Context, r RunInfo) any
}

const (
	defaultMaxSteps   = 20
	defaultMaxAnswer  = 8 << 20
	defaultMaxRetries = 2
)

// RunInfo describes a run to metadata functions.
type RunInfo struct {
	Session   string
	Agent     string // its name
	RunID     string
	TurnID    string
	MessageID string
	Mode      string
	Started   time.Time // by the caller that started it
	// Set when the run finishes.
	Outcome      chunk.Outcome
	FinishReason string
	Code         string // which limit it has reached, or how it failed
	Steps        int
	Usage        chunk.Usage
}

// Check reports what is wrong with the agent's definition, or nil.
func (a *Agent) Check() error { return a.check(nil) }

func (a *Agent) check(above []*Agent) error {
	if slices.Contains(above, a) {
		return nil // it may call itself, as deep as is allowed
	}
	if a.Name == "" {
		return errors.New("agent: it has no name")
	}
	if a.Model == nil {
		return fmt.Errorf("agent %s: it has no model", a.Name)
	}
	seen := map[string]bool{}
	for _, t := range a.Tools {
		name := t.Spec().Name
		if seen[name] {
			return fmt.Errorf("agent %s: two tools are called %q", a.Name, name)
		}
		seen[name] = true
	}
	return a.checkChildren(above)
}

func (a *Agent) maxSteps() int {
	if a.MaxSteps > 0 {
		return a.MaxSteps
	}
	return defaultMaxSteps
}

func (a *Agent) maxAnswer() int {
	switch {
	case a.MaxAnswer < 0:
		return math.MaxInt
	case a.MaxAnswer == 0:
		return defaultMaxAnswer
	}
	return a.MaxAnswer
}

func (a *Agent) maxRetries() int {
	if a.MaxRetries != 0 {
		return max(a.MaxRetries, 0)
	}
	return defaultMaxRetries
}

// Output is the shape of a structured answer.
type Output struct{ schema *tool.Schema }

// OutputOf returns the shape of T. It panics if T has no JSON Schema, as that is
// a mistake in the program.
func OutputOf[T any]() *Output {
	schema, err := tool.SchemaOf[T]()
	if err != nil {
		panic(fmt.Sprintf("agent.OutputOf: %v", err))
	}
	return &Output{schema}
}

// OutputSchema returns the shape that a JSON Schema describes.
func OutputSchema(raw json.RawMessage) (*Output, error) {
	schema, err := tool.ParseSchema(raw)
	if err != nil {
		return nil, fmt.Errorf("agent: output schema: %w", err)
	}
	return &Output{schema}, nil
}

// Log is what a run needs of its session's log: the owner's writer, and the fold
// of what is committed.
type Log interface {
	// Append queues chunks in order; Flush returns when all of them are
	// committed.
	Append(ctx context.Context, chunks ...chunk.Chunk) error
	Flush(ctx context.Context) error
	// View calls fn with the fold of everything committed; fn must not keep it.
	View(ctx context.Context, fn func(f *fold.Fold) error) error
	// Blob resolves a reference to a large value; any other value is returned as
	// it is.
	Blob(ctx context.Context, ref json.RawMessage) (json.RawMessage, error)
}

// Seams are what a run takes from outside so that tests and other engines can
// control it. All but Ready and the logger are needed.
type Seams struct {
	Now func() time.Time
	// StoreTime is the store's clock, in Unix milliseconds: pauses expire by it.
	StoreTime func() int64
	NewID     func() string
	Go        func(func())                                     // runs a function concurrently
	Sleep     func(ctx context.Context, d time.Duration) error // waits, or returns ctx's error

	// Ready waits until it is certain that the run's owner still holds its lease, or fails
	// with ctx's cause. It is called before each request to a model and before tools are
	// called. nil: it is always certain.
	Ready func(ctx context.Context) error

	Logger *slog.Logger // gets the stacks of tools that panicked; nil: discard
}

// within returns a context that ends with cause after d.
func (s Seams) within(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	s.Go(func() {
		if s.Sleep(ctx, d) == nil {
			end(cause)
		}
	})
	return ctx, func() { end(nil) }
}

// metadata encodes what a metadata function returns. A value that is no JSON object,
// or larger than 64 KiB, is dropped. If the function panics, there is no metadata:
// that must not fail a run.
func metadata(ctx context.Context, of func(context.Context, RunInfo) any, r RunInfo) (raw json.RawMessage) {
	if of == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			raw = nil
		}
	}()
	v := of(ctx, r)
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil || len(raw) == 0 || len(raw) > maxMetadataBytes || raw[0] != '{' {
		return nil
	}
	return raw
}

// Start returns the record that begins a run, with the agent's start metadata.
func (a *Agent) Start(ctx context.Context, r RunInfo, commands []string) *chunk.RunStarted {
	c := &chunk.RunStarted{TurnID: r.TurnID, MessageID: r.MessageID, Mode: r.Mode, Commands: commands}
	c.RunID, c.Metadata = r.RunID, metadata(ctx, a.StartMetadata, r)
	return c
}

// Finish returns the record that ends a run as r says, with the agent's finish
// metadata. Why the run failed is not in it.
func (a *Agent) Finish(ctx context.Context, r RunInfo) *chunk.RunFinished {
	c := &chunk.RunFinished{Outcome: r.Outcome, FinishReason: r.FinishReason}
	c.RunID = r.RunID
	if r.Usage != (chunk.Usage{}) {
		usage := r.Usage
		c.Usage = &usage
	}
	c.Metadata = metadata(ctx, a.FinishMetadata, r)
	return c
}
