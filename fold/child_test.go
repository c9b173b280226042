package fold

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/internal/matrix"
)

// as makes chunks an agent's, in a run of its own.
func as(agent, run string, chunks ...chunk.Chunk) []chunk.Chunk {
	for _, c := range chunks {
		b := c.ChunkBase()
		b.AgentID, b.AgentType, b.RunID = agent, "kid", run
		if chunk.IsCommand(c.ChunkType()) {
			b.RunID = ""
		}
	}
	return chunks
}

// callChild opens a turn whose tool phase runs a child for each call.
func (l *logOf) callChild(calls ...string) *logOf {
	l.add(user("u1", "hi"), started("r1", "u1", "u1"), step(1))
	for _, c := range calls {
		l.add(&chunk.ToolArgStreamStart{ToolCallID: c, ToolName: "ask"}, &chunk.ToolArgStreamEnd{ToolCallID: c})
	}
	l.add(l.fold.Owed().CloseModelPhase("tool-calls", nil)...)
	for _, c := range calls {
		l.add(&chunk.ToolStart{Base: chunk.Base{Step: 1}, ToolCallID: c, ToolName: "ask", Arguments: json.RawMessage(`{}`)})
		id := l.fold.NextChild()
		l.add(&chunk.SubAgentStart{SubAgentType: "kid", SubSessionID: id, CallID: c})
		l.add(as(id, "", user("u-"+id, "do"))...)
		l.add(as(id, l.fold.Child(id).NextRun("r1"), &chunk.RunStarted{TurnID: "u-" + id, MessageID: "m-" + id, Mode: "start", Commands: []string{"u-" + id}},
			step(1), &chunk.TextDelta{Delta: "from " + id})...)
	}
	return l
}

// asksApproval closes the child's model phase with a call that waits.
func (l *logOf) asksApproval(id string) *logOf {
	run := l.fold.Child(id).OpenRun().ID
	l.add(as(id, run, &chunk.ToolArgStreamStart{ToolCallID: "book", ToolName: "book"}, &chunk.ToolArgStreamEnd{ToolCallID: "book"})...)
	l.add(l.fold.Child(id).Owed().CloseModelPhase("tool-calls", &chunk.Usage{OutputTokens: 1})...)
	l.add(as(id, run, &chunk.ToolApprovalRequest{ApprovalID: "ap-" + id, ToolCallID: "book", ToolName: "book", Input: json.RawMessage(`{}`)})...)
	return l.add(l.fold.Child(id).Owed().Suspend("awaiting_approval", []string{"book"}, 70)...)
}

func (l *logOf) finishChild(id string) *logOf {
	run := l.fold.Child(id).OpenRun().ID
	l.add(l.fold.Child(id).Owed().CloseModelPhase("stop", &chunk.Usage{OutputTokens: 1})...)
	l.add(l.fold.Child(id).Owed().CloseStep("cp-" + id)...)
	l.add(as(id, run, &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"})...)
	return l.add(&chunk.SubAgentEnd{SubAgentType: "kid", SubSessionID: id, CallID: l.fold.Child(id).CallID, Result: json.RawMessage(`"ok"`)})
}

func approve(agent, id string) chunk.Chunk {
	return as(agent, "", &chunk.ToolApprovalResponse{CommandID: "yes-" + id, ApprovalID: "ap-" + id, Approved: true})[0]
}

func TestChildrenHaveTheirOwnFold(t *testing.T) {
	l := newLogOf(t).callChild("a", "b").finishChild("s.2")
	if f := l.fold; f.Status != chunk.StatusActive || len(f.Messages) != 2 || f.Messages[1].Text() != "" || f.Usage.OutputTokens != 0 || f.TotalUsage().OutputTokens != 1 {
		t.Errorf("the root: %s", jsonenc.Must(f))
	}
	one, two := l.fold.Child("s.1"), l.fold.Child("s.2")
	if one.Status != chunk.StatusActive || texts(one) != "do|from s.1" || one.CallID != "a" || one.Ended != 0 || one.OpenRun().ID != "r1.1-r1" {
		t.Errorf("s.1: %s", jsonenc.Must(one))
	}
	if two.Status != chunk.StatusEnded || texts(two) != "do|from s.2" || two.AgentType != "kid" || two.Ended == 0 || l.fold.ChildOf("b") != two {
		t.Errorf("s.2: %s", jsonenc.Must(two))
	}
	if two.Snapshot(SnapshotOptions{}).StreamSequence != l.fold.Seq {
		t.Error("a child's snapshot is not at the root's position")
	}
	for _, unknown := range []string{"s.3", "s.1.1", "s.", "t.1", "s1", "", "s.01"} {
		if l.fold.Child(unknown) != nil {
			t.Errorf("%q is a child", unknown)
		}
	}
	before := jsonenc.Must(l.fold.Children)
	l.add(as("s.7", "r", step(1), &chunk.TextDelta{Delta: "nobody"}, user("x", "x"))...)
	if string(before) != string(jsonenc.Must(l.fold.Children)) || l.fold.Verdict("x").Code != RefusedUnknown {
		t.Error("an unknown child's records changed something")
	}
	l.add(&chunk.SubAgentStart{SubAgentType: "kid", SubSessionID: "t.1", CallID: "a"}, &chunk.SubAgentStart{SubAgentType: "kid", SubSessionID: "s.1", CallID: "b"})
	if len(l.fold.Children) != 2 || one.CallID != "a" {
		t.Error("another's child was adopted, or the same twice")
	}
}

// The root waits until the last answer anywhere below it is there.
func TestAnswersBelow(t *testing.T) {
	l := newLogOf(t).callChild("a", "b")
	l.asksApproval("s.1").asksApproval("s.2")
	l.add(approve("s.2", "s.2"))
	if l.fold.Continue != nil || l.fold.Child("s.2").Continue == nil || l.fold.Verdict("yes-s.2").State != VerdictAccepted {
		t.Fatal("the first answer, while the root's run is open")
	}
	l.add(l.fold.Owed().Suspend("awaiting_children", nil, 80, "s.1", "s.2")...)
	if calls := l.fold.PendingCalls(); len(calls) != 1 || calls[0].Agent != "s.1" || calls[0].CallID != "book" || l.fold.Expires() != 70 {
		t.Fatalf("%+v, expires %d", calls, l.fold.Expires())
	}
	if agent, c := l.fold.FindCall(func(c *chunk.ToolPart) bool { return c.Approval != nil && c.Approval.ID == "ap-s.2" }); agent != "s.2" || c.CallID != "book" {
		t.Errorf("the call was found at %q", agent)
	}
	// The calls that wait for children take no answer from outside.
	l.add(&chunk.ToolResultSubmitted{CommandID: "fake", ToolCallID: "a", Result: json.RawMessage(`1`)})
	if v := l.fold.Verdict("fake"); v.Code != RefusedNotPending {
		t.Errorf("%+v", v)
	}
	saved, err := l.fold.Save()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(saved)
	if err != nil {
		t.Fatal(err)
	}
	l.add(approve("s.1", "s.1"), approve("s.1", "s.1"))
	for _, r := range l.records {
		if err := loaded.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(jsonenc.Must(l.fold)), string(jsonenc.Must(loaded))); diff != "" {
		t.Errorf("a saved fold goes on differently:\n%s", diff)
	}
	f := l.fold
	if c := f.Continue; c == nil || c.ID != "yes-s.1" || c.Mode != "approval" || strings.Join(f.Answers, " ") != "yes-s.2 yes-s.1" {
		t.Fatalf("%s", jsonenc.Must(f))
	}
	l.add(&chunk.RunStarted{Base: chunk.Base{RunID: "r2"}, TurnID: "u1", MessageID: "m-u1", Mode: "approval", Commands: f.Answers})
	if f.Verdict("yes-s.2").RunID != "r2" || f.Phase() != PhaseTools || len(f.Answers) > 0 {
		t.Errorf("the run that goes on: %s", jsonenc.Must(f))
	}
}

// All answers may be there before the root has paused.
func TestAnsweredBeforeThePause(t *testing.T) {
	l := newLogOf(t).callChild("a").asksApproval("s.1")
	l.add(approve("s.1", "s.1"))
	l.add(l.fold.Owed().Suspend("awaiting_children", nil, 0, "s.1")...)
	if c := l.fold.Continue; c == nil || c.ID != "yes-s.1" {
		t.Errorf("%s", jsonenc.Must(l.fold))
	}
}

// Whatever record a run with children dies behind, settling it ends the children
// too, deepest first.
func TestSettlingWithChildren(t *testing.T) {
	whole := newLogOf(t).callChild("a", "b", "c").finishChild("s.2").asksApproval("s.3")
	run := whole.fold.Child("s.1").OpenRun().ID
	whole.add(as("s.1", run, &chunk.ToolArgStreamStart{ToolCallID: "x", ToolName: "ask"}, &chunk.ToolArgStreamEnd{ToolCallID: "x"})...)
	whole.add(whole.fold.Child("s.1").Owed().CloseModelPhase("tool-calls", nil)...)
	whole.add(as("s.1", run, &chunk.ToolStart{ToolCallID: "x", ToolName: "ask", Arguments: json.RawMessage(`{}`)},
		&chunk.SubAgentStart{SubAgentType: "kid", SubSessionID: "s.1.1", CallID: "x"})...)
	whole.add(as("s.1.1", "", user("deep", "do"))...)
	whole.add(as("s.1.1", run+".1-r1", &chunk.RunStarted{TurnID: "deep", MessageID: "m-deep", Mode: "start", Commands: []string{"deep"}}, step(1), &chunk.TextDelta{Delta: "deep"})...)
	for i := range matrix.Points(t, len(whole.records)-1, 6) {
		k := i + 2
		full := settleFrom(t, whole.records[:k], -1)
		for crash := range len(full.records) - k {
			again := settleFrom(t, whole.records[:k], crash)
			if a, b := settledState(full.fold), settledState(again.fold); a != b {
				t.Fatalf("cut %d, crash after %d:\n%s\n%s", k, crash, a, b)
			}
		}
		kept := full.refold(func(r chunk.Record) bool { return r.Class == chunk.Kept })
		if a, b := string(jsonenc.Must(full.fold)), string(jsonenc.Must(kept)); a != b {
			t.Fatalf("cut %d: kept records say something else:\n%s\n%s", k, a, b)
		}
		var check func(f *Fold)
		check = func(f *Fold) {
			if f.Live() || f.Status == chunk.StatusPaused || f.Status == chunk.StatusActive || f.parent != nil && f.Ended == 0 {
				t.Fatalf("cut %d: %s is not over: %s", k, f.Session, jsonenc.Must(f))
			}
			for _, c := range f.Children {
				check(c)
			}
		}
		check(full.fold)
		order := []string{}
		for _, r := range full.records[k:] {
			if r.Type == chunk.TypeRunFinished {
				order = append(order, r.Agent)
			}
		}
		if k == len(whole.records) && strings.Join(order, " ") != "s.1.1 s.1 s.3 s" {
			t.Errorf("ended in the order %v", order)
		}
	}
}

// settledState is what a settled fold says but for where it says it.
func settledState(f *Fold) string {
	var b strings.Builder
	var write func(f *Fold)
	write = func(f *Fold) {
		b.WriteString(f.Session + " " + string(f.Status) + " " + f.Reason + "\n")
		for _, m := range f.Messages {
			c := m.Clone()
			c.Time = 0
			for i := range c.Parts {
				if c.Parts[i].Type == chunk.PartData {
					c.Parts[i].Data, c.Parts[i].First = nil, 0
				}
			}
			b.Write(append(jsonenc.Must(c), '\n'))
		}
		for _, c := range f.Children {
			write(c)
		}
	}
	write(f)
	return b.String()
}
