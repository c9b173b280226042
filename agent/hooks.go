package agent

import (
	"encoding/json"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/tool"
)

// Hooks are functions that are called around what an agent does; each may be
// nil. Where several are given they are called one after the other: first those
// of the parent agents, outermost first, then the agent's, then those of
// runner.Options, before and after alike.
//
// A hook's context ends with the run's, and what it does to the state or emits
// is part of the step in which it is called: what discards the step drops it. A
// panic is an error. An error of BeforeTool, AfterTool, BeforeSubAgent and
// AfterSubAgent is the call's outcome, which the model sees; tool.Fatal makes it
// end the run. An error of any other hook ends the run: with the outcome limit
// if it is a [*Limit], else it fails, with the error's code if it is a
// *chunk.Error or a *model.Error and with hook_failed otherwise.
type Hooks struct {
	// BeforeRun and BeforeStep are called when the step has begun, BeforeRun in
	// the first step of a run. They are called again in a step that takes the
	// place of a discarded one.
	BeforeRun  func(h HookContext) error
	BeforeStep func(h HookContext) error
	// BeforeModel may change the request, which is a copy of its own.
	BeforeModel func(h HookContext, r *model.Request) error
	// AfterModel is called with every complete answer, before it is kept.
	AfterModel func(h HookContext, a Answer) error
	// BeforeTool is called once for a call, before somebody is asked to approve
	// it. It may change the input, supply a result, or refuse with an error. A
	// call that waits for an approval or for a client has had its BeforeTool.
	BeforeTool func(h HookContext, c *ToolCall) error
	// AfterTool is called with the outcome of a call that was made here, before it
	// is kept, and may replace it.
	AfterTool func(h HookContext, c *ToolCall) error
	// BeforeSubAgent and AfterSubAgent take the place of BeforeTool and AfterTool
	// for a call that starts another agent.
	BeforeSubAgent func(h HookContext, c *SubAgentCall) error
	AfterSubAgent  func(h HookContext, c *SubAgentCall) error
	// AfterStep is called when the step is done, before it is committed.
	AfterStep func(h HookContext, r Result) error
	// AfterRun is called when the run is over or pauses, before that is kept.
	AfterRun func(h HookContext, e RunEnd)
}

// HookContext is what a hook can use: a context.Context with the session's state
// ([tool.State], [tool.UpdateState]), Emit and Progress.
type HookContext struct {
	tool.Context
	Agent string // the agent's name
	Run   RunInfo
	Step  int // 0 outside of one
}

// Answer is what the model said in a step.
type Answer struct {
	Text         string
	Calls        []AnswerCall
	FinishReason string
	Usage        chunk.Usage
	Duration     time.Duration // from the request to the answer's end
}

// AnswerCall is a tool call of an answer. Arguments is as the model wrote it and
// may be no JSON.
type AnswerCall struct{ ID, Name, Arguments string }

// ToolCall is a call around which hooks are called.
type ToolCall struct {
	ID, Name, EffectID string

	Input    json.RawMessage // BeforeTool may replace it, by what the tool takes
	Result   json.RawMessage // JSON. BeforeTool may set it: then the tool is not run
	Err      error           // why the call failed; for AfterTool, which may set and clear it
	Duration time.Duration   // for AfterTool
}

// SubAgentCall is a call that starts another agent.
type SubAgentCall struct {
	ToolCall
	SubAgent string // its name
	Session  string // its session's id
}

// RunEnd is how a run ended, or what it waits for.
type RunEnd struct {
	Outcome      chunk.Outcome // "" if it pauses
	FinishReason string
	Suspended    string // what it waits for: a kind of run_suspended
	Code         string // which limit, or how it failed
	Err          error  // why it failed
}
