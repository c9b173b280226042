package fold

import (
	"slices"
	"sort"

	"github.com/spool-run/spool/chunk"
)

// This file has what is found in a fold by an id or a position.

// Live reports whether a run is open or a command waits to open one.
func (f *Fold) Live() bool { return f.open.run != nil || len(f.Waiting) > 0 || f.Continue != nil }

// Asks reports whether the paused turn still waits for somebody's answer. Messages in
// the queue wait with it.
func (f *Fold) Asks() bool { return f.awaiting() != nil && f.Continue == nil }

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

// LiveAt returns the turn that was live for a reader who had seen the log up to
// sequence n: the first one, if others waited behind it. If none was live, it returns
// the latest turn that had begun, or "".
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

// Begun returns how many turns the session has had, with those that waiting commands will
// begin. Turns that the history forgot count.
func (f *Fold) Begun() int { return len(f.Turns) + len(f.Waiting) }

// TurnAt returns the latest turn of which a run had started at sequence n, or nil.
func (f *Fold) TurnAt(n uint64) *Turn {
	i := sort.Search(len(f.Turns), func(i int) bool { return f.Turns[i].Runs[0].Start > n })
	if i == 0 {
		return nil
	}
	return f.Turns[i-1]
}

// Checkpoint returns a checkpoint by its id, or nil. Checkpoints stay after a rollback
// or an edit.
func (f *Fold) Checkpoint(id string) *Checkpoint {
	return f.lastCheckpoint(func(c Checkpoint) bool { return c.ID == id })
}

// TurnCheckpoint returns the turn's latest checkpoint, or nil.
func (f *Fold) TurnCheckpoint(t *Turn) *Checkpoint {
	return f.lastCheckpoint(func(c Checkpoint) bool {
		return slices.ContainsFunc(t.Runs, func(r *Run) bool { return r.ID == c.RunID })
	})
}

func (f *Fold) lastCheckpoint(match func(Checkpoint) bool) *Checkpoint {
	for i := len(f.Checkpoints) - 1; i >= 0; i-- {
		if match(f.Checkpoints[i]) {
			return &f.Checkpoints[i]
		}
	}
	return nil
}

// Interrupted returns the run that an interrupt has paused and that can still go
// on, or nil.
func (f *Fold) Interrupted() *Run {
	run := f.Break()
	if run == nil || f.Live() || f.Message(f.LastTurn().MessageID) == nil {
		return nil
	}
	return run
}

// Break returns the run in which the last turn was interrupted, if no other run has
// followed it, or nil.
func (f *Fold) Break() *Run {
	if t := f.LastTurn(); f.Status == chunk.StatusPaused && t != nil && t.LastRun().Suspended == chunk.SuspendedInterrupted {
		return t.LastRun()
	}
	return nil
}

// FindCall returns the first call that matches, and the session id of its agent. It
// looks into the session's own messages first, and then into those of children.
func (f *Fold) FindCall(match func(t *chunk.ToolPart) bool) (agent string, t *chunk.ToolPart) {
	for _, m := range f.Messages {
		for i := range m.Parts {
			if t := m.Parts[i].Tool; t != nil && match(t) {
				return f.Session, t
			}
		}
	}
	for _, c := range f.Children {
		if agent, t := c.FindCall(match); t != nil {
			return agent, t
		}
	}
	return "", nil
}
