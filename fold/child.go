package fold

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// Child returns the fold of a child agent, or of a child's child, by its session
// id. It returns nil if there is none, and the fold itself for its own id.
//
// A child's Seq is that of its own last record. Its position, which
// [Fold.Position] and [Fold.Snapshot] name, is the root's.
func (f *Fold) Child(session string) *Fold {
	for f != nil && session != f.Session {
		f = f.toward(session)
	}
	return f
}

// toward returns the child in whose subtree an agent is, or nil.
func (f *Fold) toward(session string) *Fold {
	suffix, ok := strings.CutPrefix(session, f.Session)
	if !ok || suffix == "" || suffix[0] != '.' {
		return nil
	}
	number, _, _ := strings.Cut(suffix[1:], ".")
	id := session[:len(f.Session)+1+len(number)]
	if n, err := strconv.Atoi(number); err == nil && n > 0 && n <= len(f.Children) && f.Children[n-1].Session == id {
		return f.Children[n-1]
	}
	if i := slices.IndexFunc(f.Children, func(c *Fold) bool { return c.Session == id }); i >= 0 {
		return f.Children[i]
	}
	return nil
}

// ChildOf returns the child that a call began, or nil.
func (f *Fold) ChildOf(callID string) *Fold {
	if i := slices.IndexFunc(f.Children, func(c *Fold) bool { return c.CallID == callID }); i >= 0 {
		return f.Children[i]
	}
	return nil
}

// NextChild returns the session id of the next child.
func (f *Fold) NextChild() string { return fmt.Sprintf("%s.%d", f.Session, len(f.Children)+1) }

// NextRun returns the id of a child's next run, which belongs to a run of its
// parent's.
func (f *Fold) NextRun(parentRun string) string { return f.runAfter(parentRun, 0) }

// runAfter is NextRun for a child that has begun n runs more.
func (f *Fold) runAfter(parentRun string, n int) string {
	for _, t := range f.Turns {
		n += len(t.Runs)
	}
	return fmt.Sprintf("%s%s-r%d", parentRun, f.Session[strings.LastIndexByte(f.Session, '.'):], n+1)
}

// usedBelow returns what descendants have used in runs that belong to this run, which
// is one of the fold's agent or of an agent above it.
func (f *Fold) usedBelow(run string) chunk.Usage {
	var used chunk.Usage
	for _, c := range f.Children {
		for _, t := range c.Turns {
			for _, r := range t.Runs {
				if strings.HasPrefix(r.ID, run+".") { // see runAfter
					used = used.Add(r.Usage)
				}
			}
		}
		used = used.Add(c.usedBelow(run))
	}
	return used
}

// TotalUsage returns Usage and that of all children, added up.
func (f *Fold) TotalUsage() chunk.Usage {
	sum := f.Usage
	for _, c := range f.Children {
		sum = sum.Add(c.TotalUsage())
	}
	return sum
}

// descends reports whether an agent is a descendant of the fold's.
func (f *Fold) descends(agent string) bool {
	return len(agent) > len(f.Session) && agent[len(f.Session)] == '.' && strings.HasPrefix(agent, f.Session) &&
		chunk.RootID(agent) == chunk.RootID(f.Session)
}

// applyBelow folds a record of a descendant: into that one's fold, and for answers
// and stops also into the folds of those above it.
func (f *Fold) applyBelow(r chunk.Record, c chunk.Chunk, agent string) {
	child := f.Child(agent)
	if !chunk.IsCommand(r.Type) {
		if child != nil {
			child.ApplyChunk(r, c)
			if r.Type == chunk.TypeStepCommitted { // a child's step is progress of the runs above it
				for up := child.parent; up != nil; up = up.parent {
					if up.open.run != nil {
						up.open.run.Recoveries = 0
					}
				}
			}
		}
		return
	}
	id := chunk.CommandID(c)
	if f.Verdict(id).State != VerdictUnknown {
		return
	}
	if child == nil {
		f.judge(id, Verdict{State: VerdictRefused, Code: RefusedUnknown})
		return
	}
	child.ApplyChunk(r, c)
	if t := r.Type; t != chunk.TypeToolApprovalResponse && t != chunk.TypeToolResultSubmitted && t != chunk.TypeStopRequested ||
		child.Verdict(id).State != VerdictAccepted {
		return
	}
	for up := child.parent; up != nil; up = up.parent {
		if r.Type != chunk.TypeStopRequested {
			up.Answers = append(up.Answers, id)
			if up.open.run != nil {
				up.Verdicts[id] = Verdict{State: VerdictAccepted, RunID: up.open.run.ID, From: r.Seq}
			}
		}
		up.last = &Command{ID: id, Type: r.Type, Seq: r.Seq, Mode: modeOf(r.Type)}
		up.childrenAnswered()
	}
}

// subAgentStart notes a child that began.
func (f *Fold) subAgentStart(r chunk.Record, c *chunk.SubAgentStart) {
	number, ok := strings.CutPrefix(c.SubSessionID, f.Session+".")
	if n, err := strconv.Atoi(number); !ok || err != nil || n <= 0 || f.Child(c.SubSessionID) != nil {
		return
	}
	child := New(c.SubSessionID)
	child.ChildInfo = ChildInfo{AgentType: c.SubAgentType, CallID: c.CallID, Mode: c.Mode, Began: r.Seq}
	child.parent = f
	f.Children = append(f.Children, child)
}

// subAgentEnd notes that a child has ended.
func (f *Fold) subAgentEnd(r chunk.Record, c *chunk.SubAgentEnd) {
	if child := f.Child(c.SubSessionID); child != nil && child != f && child.Ended == 0 {
		child.Ended = r.Seq
	}
}

// Position returns the sequence up to which the log was folded. It is the same for
// the root and its children.
func (f *Fold) Position() uint64 {
	for f.parent != nil {
		f = f.parent
	}
	return f.Seq
}
