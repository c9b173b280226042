package branch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/branch"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/wire/wiretest"
)

// loaded returns logs in which a session holds the given records.
func loaded(t *testing.T, store spool.Store, session string, records []chunk.Record, row spool.Row) *spool.Logs {
	t.Helper()
	lease, err := store.(spool.Leaser).Claim(t.Context(), spool.Claim{Owner: "test", Session: session, Force: true, Principal: row.Principal})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if _, err := store.Append(t.Context(), spool.Append{Session: session, Epoch: lease.Epoch, Records: []chunk.Record{r}, Row: row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.(spool.Leaser).Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	logs := spool.NewLogs(store, nil)
	t.Cleanup(func() { _ = logs.Close() })
	return logs
}

func foldOf(t *testing.T, logs *spool.Logs, session string) *fold.Fold {
	t.Helper()
	g, err := logs.Log(session)
	if err != nil {
		t.Fatal(err)
	}
	h, err := g.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.FoldAt(t.Context(), h.Seq)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustMake(t *testing.T, logs *spool.Logs, from, checkpoint, to string) *fold.Origin {
	t.Helper()
	origin, err := branch.Make(t.Context(), logs, from, branch.Options{CheckpointID: checkpoint, Session: to, CommandID: "cmd-" + to})
	if err != nil {
		t.Fatalf("branch at %s: %v", checkpoint, err)
	}
	return origin
}

// sameFold compares what folds say, whatever the sequences are.
var sameFold = cmp.Options{
	cmpopts.IgnoreUnexported(chunk.Part{}, fold.Fold{}),
	cmpopts.IgnoreFields(fold.Fold{}, "Session", "Seq", "Origin", "Began", "Ended"),
	cmpopts.IgnoreFields(chunk.Part{}, "First"),
	cmpopts.IgnoreFields(fold.Turn{}, "Opened", "Rolled"),
	cmpopts.IgnoreFields(fold.Run{}, "Due", "Start", "End"),
	cmpopts.IgnoreFields(fold.Checkpoint{}, "Seq"),
	cmpopts.EquateEmpty(),
}

// forget takes commands out of a fold.
func forget(f *fold.Fold, ids ...string) {
	for _, id := range ids {
		delete(f.Verdicts, id)
		delete(f.Asked, id)
	}
}

// expected is the fold of the source at a checkpoint, and settled as a branch is.
func expected(t *testing.T, records []chunk.Record, session, checkpoint string) *fold.Fold {
	t.Helper()
	f := fold.New(session)
	at := slices.IndexFunc(records, func(r chunk.Record) bool {
		c, _ := chunk.Decode(r.Data)
		cp, ok := c.(*chunk.CheckpointCreated)
		return ok && cp.CheckpointID == checkpoint && r.Agent == session
	})
	for _, r := range records[:at+1] {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	run := f.OpenRun()
	if run == nil {
		t.Fatalf("no run is open at %s", checkpoint)
	}
	for _, w := range f.Waiting {
		forget(f, w.ID, w.EditID)
	}
	if f.Stop != nil {
		forget(f, f.Stop.ID)
	}
	if f.Interrupt != nil {
		forget(f, f.Interrupt.ID)
	}
	f.Waiting, f.Stop, f.Interrupt = nil, nil, nil
	// What the run did afterwards, if it did no more than end.
	var end []chunk.Record
	for _, r := range records[at+1:] {
		c, _ := chunk.Decode(r.Data)
		if id := c.ChunkBase().RunID; id != run.ID && !strings.HasPrefix(id, run.ID+".") || chunk.IsCommand(r.Type) || r.Class == chunk.Trace {
			continue
		}
		end = append(end, r)
		if fin, ok := c.(*chunk.RunFinished); ok && fin.Outcome == chunk.OutcomeCompleted {
			break
		} else if _, step := c.(*chunk.StepStarted); step || ok || r.Type == chunk.TypeRunSuspended {
			end = nil
			break
		}
	}
	if len(end) == 0 {
		for i, c := range append(f.Owed().Unsettled("the session was branched while this ran"), f.Owed().Suspend("interrupted", nil, 0)...) {
			c.ChunkBase().Timestamp = records[at].Time
			data, err := chunk.Append(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			end = append(end, chunk.Record{Seq: f.Seq + uint64(i) + 1, Type: c.ChunkType(), Agent: c.ChunkBase().AgentID, Time: records[at].Time, Data: data})
		}
	}
	for _, r := range end {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// checkBranches makes a branch at every checkpoint and compares.
func checkBranches(t *testing.T, logs *spool.Logs, session string, records []chunk.Record) {
	t.Helper()
	source := foldOf(t, logs, session)
	if len(source.Checkpoints) == 0 {
		t.Fatal("no checkpoints")
	}
	for i, cp := range source.Checkpoints {
		to := fmt.Sprintf("branch-%s-%d", session, i)
		origin := mustMake(t, logs, session, cp.ID, to)
		want, got := expected(t, records, session, cp.ID), foldOf(t, logs, to)
		if diff := cmp.Diff(want, got, sameFold); diff != "" {
			t.Fatalf("branch at %s differs (-source +branch):\n%s", cp.ID, diff)
		}
		if got.Live() || got.Origin == nil || *got.Origin != *origin || origin.Session != session || origin.Seq != got.Seq {
			t.Fatalf("live %v, origin %+v", got.Live(), got.Origin)
		}
		checkOrder(t, want, got)
		h, err := logs.Store().Head(t.Context(), to)
		if err != nil || h.Due != 0 || h.Status != got.Status || h.Seq != got.Seq {
			t.Fatalf("head %+v, %v", h, err)
		}
		kept, _, err := logs.Store().ReadKept(t.Context(), to, spool.KeptQuery{Max: 1 << 20})
		if err != nil || uint64(len(kept)) != h.Seq {
			t.Fatalf("%d kept records of %d, %v", len(kept), h.Seq, err)
		}
		for i, r := range kept {
			if r.Seq != uint64(i+1) || bytes.Contains(r.Data, []byte(`"agentId":"`+session)) || chunk.RootID(r.Agent) != to {
				t.Fatalf("record %d of agent %s: %s", r.Seq, r.Agent, r.Data)
			}
		}
	}
}

// checkOrder says that the sequences of parts and of the records around them
// stand in one order in both folds.
func checkOrder(t *testing.T, want, got *fold.Fold) {
	t.Helper()
	list := func(f *fold.Fold) (seqs []uint64) {
		for _, m := range f.Messages {
			if m.Role != chunk.RoleAssistant || f.Turn(m.TurnID) == nil {
				continue
			}
			for _, p := range m.Parts {
				seqs = append(seqs, p.First)
			}
			for _, run := range f.Turn(m.TurnID).Runs {
				seqs = append(seqs, run.Start, run.End)
			}
		}
		return seqs
	}
	a, b := list(want), list(got)
	for i := range a {
		for j := range a {
			if (a[i] < a[j]) != (b[i] < b[j]) {
				t.Fatalf("%d, %d in the source; %d, %d in the branch", a[i], a[j], b[i], b[j])
			}
		}
	}
}

func TestBranchesOfTheCorpus(t *testing.T) {
	records := wiretest.Corpus()
	for name, trim := range map[string]bool{"whole": false, "trimmed": true} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(nil)
			logs := loaded(t, store, wiretest.Session, records, spool.Row{Agent: "assistant", Principal: "ann", Title: "News"})
			if trim {
				if err := store.Trim(t.Context(), wiretest.Session, uint64(len(records)), 0); err != nil {
					t.Fatal(err)
				}
			}
			checkBranches(t, logs, wiretest.Session, records)
			info, err := store.Session(t.Context(), "branch-"+wiretest.Session+"-0")
			if err != nil || info.Agent != "assistant" || info.Principal != "ann" || info.Title != "News" {
				t.Errorf("row %+v, %v", info, err)
			}
			// A branch is a session like any other: it can be branched.
			first := foldOf(t, logs, "branch-"+wiretest.Session+"-1")
			mustMake(t, logs, first.Session, first.Checkpoints[0].ID, "again")
			again, direct := foldOf(t, logs, "again"), foldOf(t, logs, "branch-"+wiretest.Session+"-0")
			if diff := cmp.Diff(direct, again, sameFold); diff != "" {
				t.Errorf("the branch of a branch differs (-direct +again):\n%s", diff)
			}
		})
	}
}

// failing is a store that fails from a number of appends on.
type failing struct {
	*memstore.Store
	left int
}

func (s *failing) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if s.left == 0 {
		return spool.Appended{}, spool.ErrClosed // a sudden end
	}
	s.left--
	return s.Store.Append(ctx, a)
}

func TestBranchSurvivesItsMaker(t *testing.T) {
	records := wiretest.Corpus()
	mem := memstore.New(nil)
	whole := foldOf(t, loaded(t, mem, wiretest.Session, records, spool.Row{}), wiretest.Session)
	at := whole.Checkpoints[len(whole.Checkpoints)-1].ID
	o := branch.Options{CheckpointID: at, Session: "b", CommandID: "c"}
	attempt := func(left int) (*fold.Origin, error) {
		// Small batches, and each attempt another process.
		logs := spool.NewLogs(&failing{mem, left}, &spool.Options{BatchRecords: 7})
		defer logs.Close()
		return branch.Make(t.Context(), logs, wiretest.Session, o)
	}
	visible := func() bool {
		logs := spool.NewLogs(mem, nil)
		defer logs.Close()
		g, err := logs.Log("b")
		if err != nil {
			t.Fatal(err)
		}
		_, head := g.Head(t.Context())
		view := g.View(t.Context(), func(*fold.Fold) error { return nil })
		_, claim := logs.Claim(t.Context(), spool.Claim{Owner: "thief", Session: "b"})
		_, command := mem.Append(t.Context(), spool.Append{Session: "b", Records: records[:1]})
		page, err := mem.Sessions(t.Context(), spool.SessionQuery{})
		if err != nil {
			t.Fatal(err)
		}
		listed := slices.ContainsFunc(page.Sessions, func(i spool.SessionInfo) bool { return i.Session == "b" })
		for _, err := range []error{head, view, command} {
			if listed != !errors.Is(err, spool.ErrNotFound) {
				t.Fatalf("listed %v, but %v", listed, err)
			}
		}
		if !errors.Is(claim, spool.ErrNothingDue) {
			t.Fatalf("claimed: %v", claim)
		}
		return listed
	}
	crashes := 0
	for ; ; crashes++ {
		_, err := attempt(2) // two batches more
		if err == nil {
			break
		}
		if !errors.Is(err, spool.ErrClosed) || visible() {
			t.Fatalf("crash %d: %v", crashes, err)
		}
	}
	if crashes < 5 {
		t.Fatalf("the copy took only %d attempts", crashes)
	}
	logs := spool.NewLogs(mem, nil)
	defer logs.Close()
	if diff := cmp.Diff(expected(t, records, wiretest.Session, at), foldOf(t, logs, "b"), sameFold); diff != "" {
		t.Error(diff)
	}
	before := foldOf(t, logs, "b").Seq
	if again, err := attempt(0); err != nil || again.Seq != before {
		t.Errorf("a repeat wrote or failed: %+v, %v", again, err)
	}
}

// Callers that ask for the same branch at once get the same.
func TestBranchTwiceAtOnce(t *testing.T) {
	records := wiretest.Corpus()
	mem := memstore.New(nil)
	whole := foldOf(t, loaded(t, mem, wiretest.Session, records, spool.Row{}), wiretest.Session)
	at := whole.Checkpoints[len(whole.Checkpoints)-1].ID
	const askers = 4
	origins, errs := make([]*fold.Origin, askers), make([]error, askers)
	var all sync.WaitGroup
	for i := range askers {
		logs := spool.NewLogs(mem, &spool.Options{BatchRecords: 1 + i})
		defer logs.Close()
		all.Go(func() {
			origins[i], errs[i] = branch.Make(t.Context(), logs, wiretest.Session, branch.Options{CheckpointID: at, Session: "b", CommandID: "c"})
		})
	}
	all.Wait()
	for i, o := range origins {
		if errs[i] != nil || *o != *origins[0] {
			t.Errorf("asker %d: %+v, %v", i, o, errs[i])
		}
	}
	logs := spool.NewLogs(mem, nil)
	defer logs.Close()
	if diff := cmp.Diff(expected(t, records, wiretest.Session, at), foldOf(t, logs, "b"), sameFold); diff != "" {
		t.Error(diff)
	}
}

func TestBranchRefusals(t *testing.T) {
	records := wiretest.Corpus()
	store := memstore.New(nil)
	logs := loaded(t, store, wiretest.Session, records, spool.Row{})
	f := foldOf(t, logs, wiretest.Session)
	first, second := f.Checkpoints[0].ID, f.Checkpoints[1].ID
	mustMake(t, logs, wiretest.Session, first, "there")
	mustMake(t, logs, wiretest.Session, first, "there") // the same again
	for name, c := range map[string]struct {
		from string
		o    branch.Options
		want error
	}{
		"unknown session":     {"nobody", branch.Options{CheckpointID: first, Session: "new"}, spool.ErrNotFound},
		"unknown checkpoint":  {wiretest.Session, branch.Options{CheckpointID: "cp", Session: "new"}, spool.ErrNotFound},
		"reserved id":         {wiretest.Session, branch.Options{CheckpointID: first, Session: "new.1"}, chunk.ErrInvalidID},
		"no id":               {wiretest.Session, branch.Options{CheckpointID: first}, chunk.ErrInvalidID},
		"a child":             {wiretest.Session + ".1", branch.Options{CheckpointID: first, Session: "new"}, chunk.ErrInvalidID},
		"into itself":         {wiretest.Session, branch.Options{CheckpointID: first, Session: wiretest.Session}, spool.ErrExists},
		"into another branch": {wiretest.Session, branch.Options{CheckpointID: second, Session: "there", CommandID: "cmd-there"}, spool.ErrExists},
		"by another command":  {wiretest.Session, branch.Options{CheckpointID: first, Session: "there", CommandID: "other"}, spool.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := branch.Make(t.Context(), logs, c.from, c.o); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if _, err := store.Head(t.Context(), "new"); !errors.Is(err, spool.ErrNotFound) {
				t.Error("something was written")
			}
		})
	}
	if err := store.Trim(t.Context(), wiretest.Session, 0, f.Checkpoints[0].Seq); err != nil {
		t.Fatal(err)
	}
	again := spool.NewLogs(store, nil)
	defer again.Close()
	if _, err := branch.Make(t.Context(), again, wiretest.Session, branch.Options{CheckpointID: first, Session: "new"}); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("below the floor: %v", err)
	}
}

// A session that appears while its id is being taken keeps what it has.
func TestBranchMeetsACommand(t *testing.T) {
	store := memstore.New(nil)
	logs := loaded(t, store, wiretest.Session, wiretest.Corpus(), spool.Row{})
	first := foldOf(t, logs, wiretest.Session).Checkpoints[0].ID
	racing := spool.NewLogs(&racer{store}, nil)
	defer racing.Close()
	if _, err := branch.Make(t.Context(), racing, wiretest.Session, branch.Options{CheckpointID: first, Session: "b"}); !errors.Is(err, spool.ErrExists) {
		t.Fatalf("got %v", err)
	}
	h, err := store.Head(t.Context(), "b")
	if err != nil || h.Seq != 1 || h.Status != chunk.StatusEnded || h.Due == 0 {
		t.Fatalf("head %+v, %v", h, err)
	}
	if _, err := logs.Claim(t.Context(), spool.Claim{Owner: "runner", Session: "b"}); err != nil {
		t.Errorf("nobody can run it: %v", err)
	}
}

// racer lets a command arrive right behind a claim.
type racer struct{ *memstore.Store }

func (s *racer) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	_, err := s.Store.Append(ctx, spool.Append{Session: c.Session, Records: []chunk.Record{{Type: chunk.TypeUserMessage,
		Data: json.RawMessage(`{"type":"user_message","commandId":"x","message":{"id":"x","role":"user","parts":[]}}`)}}})
	if err != nil {
		return spool.Lease{}, err
	}
	return s.Store.Claim(ctx, c)
}

func TestBranchTakesLargeValues(t *testing.T) {
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Command(t.Context(), spool.Row{}, &chunk.UserMessage{CommandID: "u", Message: chunk.Message{ID: "u", Role: chunk.RoleUser,
		Parts: []chunk.Part{{Type: chunk.PartText, Text: strings.Repeat("long ", 20_000)}}}}); err != nil {
		t.Fatal(err)
	}
	lease, err := logs.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s"})
	if err != nil {
		t.Fatal(err)
	}
	w := g.Writer(lease, spool.WriterOptions{RunID: "r"})
	large := json.RawMessage(`"` + strings.Repeat("x", 100_000) + `"`)
	if _, err := w.Commit(t.Context(), spool.Row{Status: chunk.StatusActive}, nil,
		&chunk.RunStarted{TurnID: "u", MessageID: "m", Mode: "start", Commands: []string{"u"}}, &chunk.StepStarted{StepID: "st"},
		&chunk.ToolStart{ToolCallID: "c", ToolName: "t", Arguments: json.RawMessage(`{"$blob":"mine"}`)},
		&chunk.ToolEnd{ToolCallID: "c", ToolName: "t", Result: large, Success: true},
		&chunk.StepCommitted{StepID: "st"}, &chunk.CheckpointCreated{CheckpointID: "cp", StepCount: 1}); err != nil {
		t.Fatal(err)
	}
	mustMake(t, logs, "s", "cp", "b")
	if err := store.Delete(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	b, err := logs.Log("b")
	if err != nil {
		t.Fatal(err)
	}
	f := foldOf(t, logs, "b")
	call := f.Messages[1].Parts[1].Tool
	if got, err := b.Blob(t.Context(), call.Output); err != nil || string(got) != string(large) {
		t.Errorf("%.80s, %v", got, err)
	}
	if got, err := b.Blob(t.Context(), call.Input); err != nil || string(got) != `{"$blob":"mine"}` {
		t.Errorf("%s, %v", got, err)
	}
	said, err := f.Messages[0].Parts[0].Whole(func(v json.RawMessage) (json.RawMessage, error) { return b.Blob(t.Context(), v) })
	if err != nil || len(said.Text) != 100_000 {
		t.Errorf("%d bytes of the question, %v", len(said.Text), err)
	}
}

// Children that are at work when their root is branched are stopped there, with
// what they have shown; those that rest are as they were.
func TestBranchStopsChildren(t *testing.T) {
	f := fold.New("s")
	var records []chunk.Record
	add := func(chunks ...chunk.Chunk) {
		t.Helper()
		for _, c := range chunks {
			b := c.ChunkBase()
			if b.AgentID == "" {
				b.AgentID = "s"
				if !chunk.IsCommand(c.ChunkType()) {
					b.RunID = "r"
				}
			}
			b.Timestamp = int64(1000 + len(records))
			data, err := chunk.Append(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			r := chunk.Record{Seq: uint64(len(records) + 1), Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Class: chunk.ClassOf(c), Data: data}
			records = append(records, r)
			if err := f.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	child := func(n int) chunk.Base {
		return chunk.Base{AgentID: fmt.Sprint("s.", n), RunID: fmt.Sprintf("r.%d-r1", n)}
	}
	begin := func(n int) {
		add(&chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: fmt.Sprint("s.", n), CallID: fmt.Sprint("c", n), Mode: chunk.ChildBackground},
			&chunk.RunStarted{Base: child(n), TurnID: fmt.Sprint("t", n), MessageID: fmt.Sprint("m", n), Mode: "start"},
			&chunk.StepStarted{Base: child(n), StepID: fmt.Sprint("s", n)}, &chunk.TextDelta{Base: child(n), Delta: "half a wo"})
	}
	add(&chunk.UserMessage{CommandID: "u", Message: chunk.Message{ID: "u", Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "hi"}}}},
		&chunk.RunStarted{TurnID: "u", MessageID: "m", Mode: "start", Commands: []string{"u"}}, &chunk.StepStarted{StepID: "st"}, &chunk.TextDelta{Delta: "go"})
	add(f.Owed().CloseModelPhase("tool-calls", nil)...)
	begin(1)
	begin(2)
	add(&chunk.AssistantMessage{Base: child(2), MessageID: "m2", StepID: "s2", Parts: []chunk.Part{{Type: chunk.PartText, First: 12, Text: "all of it"}}},
		&chunk.StepCommitted{Base: child(2), StepID: "s2"}, &chunk.RunFinished{Base: child(2), Outcome: chunk.OutcomeCompleted})
	add(f.Owed().CloseStep("cp")...)
	add(&chunk.CheckpointCreated{CheckpointID: "cp", StepCount: 1}, &chunk.StepStarted{StepID: "st2"},
		&chunk.TextDelta{Base: child(1), Delta: "rd, and so on"})

	logs := loaded(t, memstore.New(nil), "s", records, spool.Row{})
	checkBranches(t, logs, "s", records)
	got := foldOf(t, logs, "branch-s-0")
	if len(got.Children) != 2 || got.Children[0].Session != "branch-s-0.1" || got.Children[0].OpenRun() != nil || got.Children[0].Reason != "stopped" ||
		got.Children[0].Messages[0].Parts[1].Text != "half a wo" || got.Children[1].Reason != "completed" {
		t.Errorf("children %+v, %+v", got.Children[0], got.Children[1])
	}
}
