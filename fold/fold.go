// Package fold computes the state of a session from the records of its log.
//
// A [Fold] is that state: messages, custom state, turns and runs, commands and
// what became of them, and the folds of child agents. [Fold.Apply] folds the next
// record into it. The result depends on nothing but the records, and the kept ones
// alone give the same as all. The exported methods of a fold only read it.
//
// These types share the work:
//
//   - [Fold] holds what its JSON shows, and knows how to find things in it.
//   - openRun is the run that is open, and where it stands in its step.
//   - staging is the custom state as the open step changes it.
//   - pairing joins the records of one append that only mean something together.
//   - [MessageFold] builds one turn's assistant message. Wires use it by itself.
//   - [Owed] computes what somebody appends next: what closes a phase, commits a
//     step, pauses a run, settles it, or brings a history back.
//   - [Snapshot] is a fold as a value for clients.
//
// A new kind of chunk needs a line in the table of kinds.go if it changes the
// session or the message. The line names one method for each of the two.
package fold

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// Version changes whenever the same records fold into something else. Saved folds
// of another version are ignored, except that those since [Oldest] are read where the
// records that they hold are gone.
const (
	Version = 14
	Oldest  = 13
)

// Fold is a session's state: what its log's records, folded in order, say. It
// is a deterministic function of them, and the same from all records and from
// the kept ones alone.
//
// A Fold is used by one goroutine at a time. Its fields are for reading.
type Fold struct {
	Session string `json:"session"`
	Seq     uint64 `json:"seq"` // of the last record folded

	Status chunk.Status     `json:"status"`
	Reason string           `json:"reason,omitempty"` // the last run's outcome, or what it waits for
	Error  *chunk.ErrorInfo `json:"error,omitempty"`  // of the last run, if it failed

	Messages    []*chunk.Message `json:"messages"`
	State       json.RawMessage  `json:"state,omitempty"` // custom state, staged patches applied; nil until set
	Turns       []*Turn          `json:"turns"`
	Checkpoints []Checkpoint     `json:"checkpoints,omitempty"`
	Usage       chunk.Usage      `json:"usage"` // of all model calls of the session

	// CheckpointID is the latest checkpoint of the history as it stands: the last
	// one, or the one that a rollback went back to. Checkpoints keeps all, so that a
	// rollback can be undone.
	CheckpointID string `json:"checkpointId,omitempty"`

	// Retired are the ids of calls that the history does not hold any more. They must
	// not be used again, because answers name the call by its id.
	Retired []string `json:"retired,omitempty"`

	Inbox

	// Origin is where the session came from, if it is a branch.
	Origin *Origin `json:"origin,omitempty"`

	// Verdicts of all commands, by command id.
	Verdicts map[string]Verdict `json:"verdicts"`
	// Asked says what the commands asked for, by command id: the [Digest] of the first
	// command of an id. It tells a repeat from another command. Folds that earlier
	// versions saved have none for the commands in them.
	Asked map[string]string `json:"asked,omitempty"`

	// Children are the folds of the child agents, in the order in which they began. A
	// turn that waits for children goes on when none of them waits for an answer.
	Children []*Fold `json:"children,omitempty"`

	ChildInfo

	parent  *Fold
	open    openRun
	current *MessageFold // of the open or last turn
	staging staging
	pairs   pairing
	last    *Command // the latest answer to the session or a child, while the run is open
}

// Inbox is what commands have asked for and no run has acted on yet.
type Inbox struct {
	// Waiting holds the commands that will open a run and have not yet.
	Waiting []*Command `json:"waiting,omitempty"`
	// Continue opens the run that goes on with the paused turn, or ends it. It is the
	// last answer that the turn waited for, a stop, or a message that takes its place.
	Continue *Command `json:"continue,omitempty"`
	// Answers are the ids of the answers to the paused turn, or to the open step, that
	// no run has acted on yet.
	Answers []string `json:"answers,omitempty"`
	// Stop is the stop that the open run, or the next one, has yet to obey.
	Stop *Command `json:"stop,omitempty"`
	// Interrupt is the interrupt that the open run, or the next one, has yet to
	// obey.
	Interrupt *Command `json:"interrupt,omitempty"`
	// Rolled is the command of a rollback that nothing has followed yet.
	Rolled string `json:"rolled,omitempty"`
}

// ChildInfo is what the parent's records say of a child agent. It is empty for the
// root.
type ChildInfo struct {
	AgentType string `json:"agentType,omitempty"` // its agent's name
	CallID    string `json:"callId,omitempty"`    // the call that began it
	Mode      string `json:"mode,omitempty"`      // as its subagent_start gives it
	Began     uint64 `json:"began,omitempty"`     // sequence of its subagent_start
	Ended     uint64 `json:"ended,omitempty"`     // sequence of its subagent_end; 0 before
	// Forgotten is set when the history does not hold the child's call any more. The
	// next run ends the child.
	Forgotten bool `json:"forgotten,omitempty"`
}

// Turn is a user message and everything until its answer is settled.
type Turn struct {
	ID        string `json:"id"`               // of the command that opened it
	MessageID string `json:"messageId"`        // its assistant message
	Opened    uint64 `json:"opened"`           // sequence of the turn's first record
	From      string `json:"from,omitempty"`   // the checkpoint that it began at, after a rollback
	Rolled    uint64 `json:"rolled,omitempty"` // sequence of the rollback that dropped what it said, or a part of it
	Runs      []*Run `json:"runs"`
}

// Run is one execution inside a turn.
type Run struct {
	ID        string        `json:"id"`
	TurnID    string        `json:"turnId"`
	AgentType string        `json:"agentType,omitempty"`
	Mode      string        `json:"mode"`
	Due       uint64        `json:"due"`   // sequence from which the session was due for this run
	Start     uint64        `json:"start"` // of run_started
	End       uint64        `json:"end"`   // of run_finished or run_suspended; 0 while open
	StartTime int64         `json:"startTime,omitempty"`
	EndTime   int64         `json:"endTime,omitempty"`
	Commands  []string      `json:"commands,omitempty"` // ids of those it answers
	Outcome   chunk.Outcome `json:"outcome,omitempty"`
	Code      string        `json:"code,omitempty"`      // which limit it reached, or how it failed
	Suspended string        `json:"suspended,omitempty"` // what it waits for
	Pending   []string      `json:"pending,omitempty"`   // the calls that it waits for
	Expires   int64         `json:"expires,omitempty"`   // when it stops waiting, Unix milliseconds
	Step      int           `json:"step,omitempty"`      // number of the step in which it was suspended,
	StepID    string        `json:"stepId,omitempty"`    // and its id
	Finish    string        `json:"finish,omitempty"`    // why its model had stopped
	More      bool          `json:"more,omitempty"`      // suspended before the provider had said all
	Steps     int           `json:"steps"`
	Usage     chunk.Usage   `json:"usage"`
	// Recoveries counts how often the run was taken over since its last step.
	Recoveries int `json:"recoveries,omitempty"`
}

// Checkpoint names the state after a step.
type Checkpoint struct {
	ID           string `json:"id"`
	RunID        string `json:"runId"`
	StepCount    int    `json:"stepCount"`
	StepID       string `json:"stepId,omitempty"`
	Seq          uint64 `json:"seq"`
	MessageCount int    `json:"messageCount"`
	Time         int64  `json:"time"`
}

// Origin is where a branch came from.
type Origin struct {
	Session      string `json:"sessionId"`
	CheckpointID string `json:"checkpointId"`
	CommandID    string `json:"commandId,omitempty"` // what made it; "" if its session id did
	Seq          uint64 `json:"seq"`                 // of the record that completed it
}

// New returns the fold of an empty log.
func New(session string) *Fold {
	return &Fold{
		Session:  session,
		Status:   chunk.StatusEnded,
		Messages: []*chunk.Message{},
		Turns:    []*Turn{},
		Verdicts: map[string]Verdict{},
		Asked:    map[string]string{},
	}
}

// Apply decodes and folds the next record. A record that was folded before is
// ignored, so a reader may overlap.
func (f *Fold) Apply(r chunk.Record) error {
	if r.Seq <= f.Seq {
		return nil
	}
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return chunk.ErrInvalidChunk.With(f.Session, err)
	}
	f.ApplyChunk(r, c)
	return nil
}

// ApplyChunk is Apply for a record that is already decoded.
func (f *Fold) ApplyChunk(r chunk.Record, c chunk.Chunk) {
	if r.Seq <= f.Seq {
		return
	}
	agent := c.ChunkBase().AgentID
	below := agent != f.Session && f.descends(agent)
	f.pairs.next(r.Type, below)
	f.Seq = r.Seq
	k := kinds[c.ChunkType()]
	switch {
	case below:
		f.applyBelow(r, c, agent)
	case chunk.IsCommand(r.Type):
		f.ask(c)
		k.toSession(f, r, c)
	case agent == "" || agent == f.Session:
		k.toSession(f, r, c)
		k.toMessage(f.current, r, c)
	default:
		// The fold of a child may be fed its subtree's records alone, with those of the
		// root that concern it.
		if _, ok := c.(*chunk.ExecutorSuperseded); ok {
			f.supersede()
		}
	}
}

// Start is the last sequence before the turn.
func (t *Turn) Start() uint64 { return t.Opened - 1 }

// LastRun returns the turn's latest run.
func (t *Turn) LastRun() *Run { return t.Runs[len(t.Runs)-1] }

// before returns the runs that the given one takes up: the paused ones right before
// it.
func (t *Turn) before(runID string) []*Run {
	n := slices.IndexFunc(t.Runs, func(r *Run) bool { return r.ID == runID })
	first := max(n, 0)
	for first > 0 && t.Runs[first-1].Suspended != "" {
		first--
	}
	return t.Runs[first:max(n, 0)]
}
