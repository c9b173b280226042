package fold

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/spool-run/spool/chunk"
)

// FoldVersion changes whenever the same records fold into something else. Saved
// folds of another version are ignored.
const Version = 13

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
	// one, or the one that a rollback went back to. Checkpoints keeps all, so that
	// one can come back to what a rollback has left.
	CheckpointID string `json:"checkpointId,omitempty"`

	// Retired are the ids of calls that the history holds no more. They are not
	// used again: answers to calls are known by them.
	Retired []string `json:"retired,omitempty"`

	// Waiting holds the commands that will open a run and have not yet.
	Waiting []*Command `json:"waiting,omitempty"`
	// Continue is what lets the paused turn go on, or ends it, with another run:
	// the last answer that it waited for, a stop, or a message that takes its
	// place.
	Continue *Command `json:"continue,omitempty"`
	// Answers are the ids of the answers that the paused turn has got, or the open
	// step, that no run has acted on yet.
	Answers []string `json:"answers,omitempty"`
	// Stop is the stop that the open run, or the next one, has yet to obey.
	Stop *Command `json:"stop,omitempty"`
	// Interrupt is the interrupt that the open run, or the next one, has yet to
	// obey.
	Interrupt *Command `json:"interrupt,omitempty"`
	// Rolled is the command of a rollback that nothing has followed yet.
	Rolled string `json:"rolled,omitempty"`

	// Origin is where the session came from, if it is a branch.
	Origin *Origin `json:"origin,omitempty"`

	// Verdicts of all commands, by command id.
	Verdicts map[string]Verdict `json:"verdicts"`

	// Children are the folds of the child agents, in the order in which they
	// began. What they do changes nothing else here, but that a turn which waits
	// for them waits until they have all their answers.
	Children []*Fold `json:"children,omitempty"`
	// Of a child: its agent's name, the call that began it, the mode that its
	// subagent_start gives, the sequences of that and of its subagent_end, 0
	// before; and whether the history has forgotten that call, so that the next run
	// ends the child.
	AgentType string `json:"agentType,omitempty"`
	CallID    string `json:"callId,omitempty"`
	Mode      string `json:"mode,omitempty"`
	Began     uint64 `json:"began,omitempty"`
	Ended     uint64 `json:"ended,omitempty"`
	Forgotten bool   `json:"forgotten,omitempty"`

	parent    *Fold
	last      *Command // the latest answer to a child, while the run is open
	run       *Run     // the open one
	step      int      // of the open run
	stepID    string
	stepAt    uint64 // sequence of its step_started
	phase     Phase
	finish    string // finish reason of its model phase
	more      bool   // the provider has more to say
	fatal     string
	cursor    string                     // the model's cursor of the open model phase's answer
	emitted   map[string][]*chunk.Custom // by call of the open step
	current   *MessageFold               // of the open or last turn
	committed json.RawMessage
	staged    []chunk.StatePatch
	rewind    *chunk.HistoryRewound // an edit, waiting for its user message
	resuming  *chunk.ResumeRequested
	replacing map[string]*chunk.HistoryReplaced // series that go on, by command id
	owed      string                            // the checkpoint that the last commit has named and that is not created yet
	restored  string                            // the checkpoint that the last record went back to
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

// Start is the last sequence before the turn.
func (t *Turn) Start() uint64 { return t.Opened - 1 }

// Before returns the runs that the given one takes up: those before it, back to
// the last one that ended and did not pause.
func (t *Turn) Before(runID string) []*Run {
	n := slices.IndexFunc(t.Runs, func(r *Run) bool { return r.ID == runID })
	first := max(n, 0)
	for first > 0 && t.Runs[first-1].Suspended != "" {
		first--
	}
	return t.Runs[first:max(n, 0)]
}

// LastRun returns the turn's latest run.
func (t *Turn) LastRun() *Run { return t.Runs[len(t.Runs)-1] }

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

// NewFold returns the fold of an empty log.
func New(session string) *Fold {
	return &Fold{
		Session:  session,
		Status:   chunk.StatusEnded,
		Messages: []*chunk.Message{},
		Turns:    []*Turn{},
		Verdicts: map[string]Verdict{},
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
	base := c.ChunkBase()
	below := base.AgentID != f.Session && f.descends(base.AgentID)
	if f.rewind != nil && (below || r.Type != chunk.TypeUserMessage) {
		f.rewind = nil // an edit whose user message did not follow
	}
	if r.Type != chunk.TypeUserMessage {
		f.resuming = nil
	}
	if r.Type != chunk.TypeResumeRequested {
		f.restored = ""
	}
	f.Seq = r.Seq
	if below {
		f.applyBelow(r, c, base.AgentID)
		return
	}
	if chunk.IsCommand(r.Type) {
		f.applyCommand(r, c)
		return
	}
	if base.AgentID != "" && base.AgentID != f.Session {
		if c, ok := c.(*chunk.ExecutorSuperseded); ok { // f is of a child's subtree alone
			f.supersede(r, c)
		}
		return // else whoever that is
	}
	f.enter(r, c)
	switch c := c.(type) {
	case *chunk.RunStarted:
		f.startRun(r, c)
		return
	case *chunk.AssistantMessage:
		if c.Usage != nil {
			f.Usage = f.Usage.Add(*c.Usage)
			if f.run != nil {
				f.run.Usage = f.run.Usage.Add(*c.Usage)
			}
		}
	case *chunk.SubAgentStart:
		f.adopt(c, r.Seq)
	case *chunk.SubAgentEnd:
		if child := f.Child(c.SubSessionID); child != nil && child != f && child.Ended == 0 {
			child.Ended = r.Seq
		}
	case *chunk.StatePatch:
		f.stage(c)
	case *chunk.StepDiscarded:
		f.unstage(func(chunk.StatePatch) bool { return false })
	case *chunk.StreamResync:
		if c.Reason == "branch" && c.SourceSessionID != "" {
			f.Origin = &Origin{c.SourceSessionID, c.CheckpointID, c.CommandID, r.Seq}
		}
	case *chunk.CheckpointCreated:
		f.Checkpoints = append(f.Checkpoints, Checkpoint{ID: c.CheckpointID, RunID: c.RunID, StepCount: c.StepCount,
			StepID: f.current.stepID(), Seq: r.Seq, MessageCount: len(f.Messages), Time: c.Timestamp})
		f.CheckpointID, f.owed = c.CheckpointID, ""
	}
	if f.current == nil {
		return
	}
	f.current.Apply(r, c)
	switch c := c.(type) {
	case *chunk.StepCommitted:
		if !c.More {
			f.commitStep(c)
		}
	case *chunk.RunSuspended:
		f.endRun(r, func(run *Run) {
			run.Suspended, run.Pending, run.Expires = c.Kind, c.ToolCallIDs, c.ExpiresAt
			run.Step, run.StepID, run.More, run.Finish = f.step, c.StepID, f.more, f.finish
			f.Status, f.Reason, f.Error = chunk.StatusPaused, c.Kind, nil
			f.unheeded(run)
		})
	case *chunk.RunFinished:
		f.endRun(r, func(run *Run) {
			run.Outcome, run.Code = c.Outcome, c.Code
			f.Answers = nil // to children that are stopped with it
			f.Status, f.Reason, f.Error = chunk.StatusEnded, string(c.Outcome), nil
			if c.Outcome == chunk.OutcomeFailed {
				f.Status = chunk.StatusFailed
				f.Error = &chunk.ErrorInfo{Error: c.Error, Code: c.Code, Recoverable: c.Recoverable}
			}
		})
	}
}

// startRun opens a run, and its turn if it is the first of it, and lets the
// commands that it answers take effect.
func (f *Fold) startRun(r chunk.Record, c *chunk.RunStarted) {
	run := &Run{ID: c.RunID, TurnID: c.TurnID, AgentType: c.AgentType, Mode: c.Mode,
		Due: r.Seq, Start: r.Seq, StartTime: r.Time, Commands: c.Commands}
	from := ""
	for _, id := range c.Commands {
		if i := slices.IndexFunc(f.Waiting, func(w *Command) bool { return w.ID == id }); i >= 0 {
			w := f.Waiting[i]
			run.Due = min(run.Due, w.Seq)
			from = w.CheckpointID
			f.takeEffect(w)
			if w.EditID != "" {
				f.Verdicts[w.EditID] = Verdict{State: VerdictAccepted, RunID: c.RunID}
			}
			f.Waiting = slices.Delete(f.Waiting, i, i+1)
		}
		f.Verdicts[id] = Verdict{State: VerdictAccepted, RunID: c.RunID}
	}
	turn, last := f.Turn(c.TurnID), (*Run)(nil)
	if turn != nil {
		last = turn.LastRun()
		if f.Continue != nil {
			run.Due = min(run.Due, f.Continue.Seq)
		}
		f.Continue, f.Answers = nil, nil
	} else {
		turn = &Turn{ID: c.TurnID, MessageID: c.MessageID, Opened: run.Due, From: from}
		f.Turns = append(f.Turns, turn)
		f.current = NewMessageFold(f.Session)
		f.Messages = append(f.Messages, f.current.Message())
	}
	turn.Runs = append(turn.Runs, run)
	f.current.Apply(r, c)
	f.run, f.step, f.stepID, f.phase = run, 0, "", PhaseNone
	f.finish, f.fatal, f.cursor, f.emitted, f.last = "", "", "", nil, nil
	f.Rolled, f.owed = "", ""
	clear(f.replacing)
	f.heed(run)
	if last != nil {
		f.goOn(last)
	}
	f.Status, f.Reason, f.Error = chunk.StatusActive, "", nil
}

func (f *Fold) commitStep(c *chunk.StepCommitted) {
	if c.Partial {
		f.unstage(func(p chunk.StatePatch) bool {
			if p.ToolCallID == "" {
				return true
			}
			i := f.current.findTool(p.ToolCallID) // a hook's has none
			return i < 0 || f.current.message.Parts[i].Tool.State == chunk.ToolCompleted
		})
	}
	f.committed, f.staged = f.State, nil
	f.stepID, f.phase, f.cursor, f.emitted = "", PhaseNone, "", nil
	f.Answers = nil // the open run has taken them
	if f.run != nil {
		f.run.Steps++
		f.run.Recoveries = 0
		f.owed = c.CheckpointID
	}
}

func (f *Fold) endRun(r chunk.Record, say func(*Run)) {
	if f.run == nil {
		return
	}
	f.run.End, f.run.EndTime = r.Seq, r.Time
	say(f.run)
	if f.staged != nil {
		f.committed, f.staged = f.State, nil
	}
	if f.Stop != nil && f.Stop.Seq < r.Seq && f.Continue == nil && !f.run.passes(f.Stop) {
		f.Stop = nil
	}
	if f.Interrupt != nil && !f.run.passes(f.Interrupt) {
		f.Interrupt = nil
	}
	f.run, f.step, f.stepID, f.phase, f.cursor = nil, 0, "", PhaseNone, ""
}

// passes reports whether a stop or an interrupt is not for this run but for the
// next: it came behind a message that took a pause's place, before the run that
// only ends the pause.
func (r *Run) passes(c *Command) bool { return r.Mode == chunk.ModeSuperseded && c.Seq < r.Start }

// Spent returns how long the open run has taken by now, with the runs that it took
// up; what they were paused does not count. 0 if none is open.
func (f *Fold) Spent(now time.Time) time.Duration {
	if f.run == nil {
		return 0
	}
	spent := now.Sub(time.UnixMilli(f.run.StartTime))
	for _, run := range f.LastTurn().Before(f.run.ID) {
		spent += time.Duration(run.EndTime-run.StartTime) * time.Millisecond
	}
	return max(spent, 0)
}

// Used returns what the open run has used by now, with the runs that it took up
// and the children that worked for them.
func (f *Fold) Used() chunk.Usage {
	var used chunk.Usage
	if f.run == nil {
		return used
	}
	for _, run := range slices.Concat(f.LastTurn().Before(f.run.ID), []*Run{f.run}) {
		used = used.Add(run.Usage).Add(f.usedBelow(run.ID))
	}
	return used
}

// Live reports whether a run is open or a command waits to open one.
func (f *Fold) Live() bool { return f.run != nil || len(f.Waiting) > 0 || f.Continue != nil }

// Asks reports whether the paused turn waits for somebody's answer, and what is
// queued behind it waits with it.
func (f *Fold) Asks() bool { return f.awaiting() != nil && f.Continue == nil }

// OpenRun returns the run that is open, or nil.
func (f *Fold) OpenRun() *Run { return f.run }

// OpenStep returns the open run's step number, and the step's id while the step
// is open.
func (f *Fold) OpenStep() (number int, id string) { return f.step, f.stepID }

// Turn returns a turn by its id, or nil.
func (f *Fold) Turn(id string) *Turn {
	for i := len(f.Turns) - 1; i >= 0; i-- {
		if f.Turns[i].ID == id {
			return f.Turns[i]
		}
	}
	return nil
}

// LastTurn returns the latest turn that has a run, or nil.
func (f *Fold) LastTurn() *Turn {
	if len(f.Turns) == 0 {
		return nil
	}
	return f.Turns[len(f.Turns)-1]
}

// Run returns a run by its id, or nil.
func (f *Fold) Run(id string) *Run {
	for i := len(f.Turns) - 1; i >= 0; i-- {
		for _, run := range f.Turns[i].Runs {
			if run.ID == id {
				return run
			}
		}
	}
	return nil
}

// Message returns a message by its id, or nil.
func (f *Fold) Message(id string) *chunk.Message {
	for i := len(f.Messages) - 1; i >= 0; i-- {
		if f.Messages[i].ID == id {
			return f.Messages[i]
		}
	}
	return nil
}

// LiveAt tells what a reader who stood at sequence n knew: the id of the turn
// that was live then, the first one if others waited behind it, or else of the
// latest that had begun ("" for none).
func (f *Fold) LiveAt(n uint64) (turnID string, live bool) {
	for _, t := range f.Turns {
		if t.Opened > n {
			continue
		}
		turnID = t.ID
		for _, run := range t.Runs {
			if run.Due <= n && (run.End == 0 || run.End > n) {
				return turnID, true
			}
		}
		if f.Continue != nil && f.Continue.Seq <= n && t == f.LastTurn() {
			return turnID, true
		}
	}
	for _, w := range f.Waiting {
		if w.Seq <= n && !f.Asks() {
			return w.ID, true
		}
	}
	return turnID, false
}

// TurnAt returns the turn whose records a reader of sequence n had come to: the
// latest of which a run had started. nil: none had.
func (f *Fold) TurnAt(n uint64) *Turn {
	for i := len(f.Turns) - 1; i >= 0; i-- {
		if f.Turns[i].Runs[0].Start <= n {
			return f.Turns[i]
		}
	}
	return nil
}
