package aisdk_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

// crowd writes a turn in which a root and companions of its speak at the same
// time, each in steps of its own.
type crowd struct {
	*logOf
	r     *rand.Rand
	calls int
	cast  []*speaker
}

type speaker struct {
	session, run string
	step         int
	open         bool     // in its model phase
	writing      string   // a call whose arguments it writes
	asked        []string // calls without an outcome
}

func newCrowd(t testing.TB, seed uint64) *crowd {
	w := &crowd{logOf: newLog(t).user("t").start("r", "t", "t").begin(), r: rand.New(rand.NewPCG(seed, 7))}
	w.cast = []*speaker{{session: "s", run: "r", step: 1, open: true}}
	for i := 1; i <= 3; i++ {
		c := &speaker{session: fmt.Sprintf("s.%d", i), run: fmt.Sprintf("r.%d", i)}
		w.add(&chunk.SubAgentStart{SubAgentType: "x", SubSessionID: c.session, CallID: fmt.Sprintf("c%d", i), Mode: chunk.ChildBackground})
		w.by(c, &chunk.RunStarted{TurnID: c.session, MessageID: "a-" + c.session, Mode: "start"})
		w.cast = append(w.cast, c)
	}
	return w
}

func (w *crowd) by(s *speaker, chunks ...chunk.Chunk) {
	for _, c := range chunks {
		b := c.ChunkBase()
		b.AgentID, b.RunID, b.Step = s.session, s.run, s.step
		w.add(c)
	}
}

func (w *crowd) foldOf(s *speaker) *fold.Fold {
	if s.session == "s" {
		return w.fold
	}
	return w.fold.Child(s.session)
}

// act has a speaker do the next thing; it settles what is open if it is its last.
func (w *crowd) act(s *speaker, last bool) {
	said := false
	switch {
	case !s.open && len(s.asked) > 0 && (last || w.r.IntN(2) == 0):
		call := s.asked[0]
		s.asked = s.asked[1:]
		w.by(s, &chunk.ToolStart{ToolCallID: call, ToolName: "look", Arguments: json.RawMessage(`{"n":1}`), EffectID: s.run + call})
		w.by(s, &chunk.ToolEnd{ToolCallID: call, ToolName: "look", Result: json.RawMessage(`1`), Success: w.r.IntN(4) > 0})
		said = true
	case !s.open && last:
	case !s.open && len(s.asked) == 0:
		s.step++
		s.open = true
		w.by(s, &chunk.StepStarted{StepID: fmt.Sprintf("%s-%d", s.run, s.step)})
		return
	case s.open && s.writing != "":
		if w.r.IntN(3) > 0 && !last {
			w.by(s, &chunk.ToolArgStreamDelta{ToolCallID: s.writing, Delta: "1"})
			return
		}
		w.by(s, &chunk.ToolArgStreamDelta{ToolCallID: s.writing, Delta: "}"}, &chunk.ToolArgStreamEnd{ToolCallID: s.writing, ToolName: "look"})
		s.asked, s.writing = append(s.asked, s.writing), ""
		return
	case s.open && last:
		w.by(s, w.foldOf(s).Owed().CloseModelPhase("stop", nil)...)
		s.open = false
		return
	}
	if said || !s.open {
		if !s.open && len(s.asked) == 0 && s.step > 0 {
			w.by(s, w.foldOf(s).Owed().CloseStep(fmt.Sprintf("c%d", len(w.records)))...)
		}
		return
	}
	switch w.r.IntN(12) {
	case 0:
		w.by(s, w.foldOf(s).Owed().CloseModelPhase("stop", nil)...)
		s.open = false
		if len(s.asked) == 0 {
			w.by(s, w.foldOf(s).Owed().CloseStep(fmt.Sprintf("c%d", len(w.records)))...)
		}
	case 1:
		w.calls++
		s.writing = fmt.Sprintf("k%d", w.calls)
		w.by(s, &chunk.ToolArgStreamStart{ToolCallID: s.writing, ToolName: "look"}, &chunk.ToolArgStreamDelta{ToolCallID: s.writing, Delta: `{"n":`})
	case 2:
		w.by(s, &chunk.Thinking{Content: "hm "})
	case 3:
		w.by(s, &chunk.Thinking{Content: "so", IsComplete: true, ProviderMetadata: json.RawMessage(`{"m":{"sig":"x"}}`)})
	case 4:
		w.by(s, &chunk.Custom{EventName: "doc", ID: "d", Data: json.RawMessage(fmt.Sprint(w.r.IntN(3)))})
	case 5:
		w.by(s, &chunk.Custom{EventName: "note", Data: json.RawMessage(`{}`)})
	case 6:
		w.by(s, &chunk.Citation{SourceID: "x", URL: "https://example.com/"})
	case 7:
		if w.r.IntN(3) == 0 {
			s.asked, s.writing, s.open = nil, "", false
			w.by(s, &chunk.StepDiscarded{StepID: fmt.Sprintf("%s-%d", s.run, s.step), Reason: "crash_recovery"})
		}
	default:
		w.by(s, &chunk.TextDelta{Delta: []string{"a", " b", "", "c\n"}[w.r.IntN(4)]})
	}
}

func (w *crowd) play(acts int) *crowd {
	w.cast[0].step = 1
	for range acts {
		w.act(w.cast[w.r.IntN(len(w.cast))], false)
	}
	for _, s := range append(w.cast[1:], w.cast[0]) {
		for s.open || len(s.asked) > 0 || s.writing != "" {
			w.act(s, true)
		}
		if s.step > 0 {
			w.by(s, w.foldOf(s).Owed().CloseStep(fmt.Sprintf("c%d", len(w.records)))...)
		}
		w.by(s, &chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"})
	}
	return w
}

// TestFlattenedCrowds: agents that all speak at once, over each other's steps,
// are one message for every reader, wherever it begins.
func TestFlattenedCrowds(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"flatten", "flatten7"} {
		cuts, blocks := 0, 0
		for seed := range uint64(12) {
			w := newCrowd(t, seed).play(120)
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) { checkCuts(t, w.logOf, profiles[name], 3) })
			o := profiles[name]
			p := aisdk.NewProjector(wire.Subject{Turn: "t"}, &o)
			for _, r := range w.records {
				frames, err := p.Apply(nil, r)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range frames {
					if f.Cut {
						cuts++
					}
					if strings.Contains(string(f.Data), `"text-start"`) {
						blocks++
					}
				}
			}
		}
		if cuts == 0 || blocks < 100 {
			t.Errorf("%s: %d cuts, %d blocks", name, cuts, blocks)
		}
	}
}

// TestFlatten: what children say stands in the root's message with their names,
// and readers are cut for nothing but what is taken back.
func TestFlatten(t *testing.T) {
	t.Parallel()
	log := wiretest.Agents()
	f := fold.New(wiretest.Session)
	for _, r := range log {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	o := profiles["flatten"]
	cuts := map[string]int{}
	said := map[string]string{}
	calls := map[string]string{}
	for _, turn := range f.Turns {
		p := aisdk.NewProjector(wire.Subject{Turn: turn.ID}, &o)
		for _, r := range log {
			frames, err := p.Apply(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			for _, frame := range frames {
				if frame.Cut {
					cuts[fmt.Sprint(r.Agent, " ", r.Type)]++
				}
			}
		}
		r, err := read(&o, planOf(t, p), true)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range r.client.Message.Parts {
			var of struct{ Spool struct{ Agent string } }
			_ = json.Unmarshal(part.ProviderMetadata, &of)
			if part.Type == "text" {
				said[of.Spool.Agent] += part.Text
			}
			if part.IsTool() {
				calls[part.ToolCallID] = part.State
			}
			if part.Type == "data-subagent" {
				t.Errorf("a part is %+v", part)
			}
		}
	}
	if len(cuts) != 1 || cuts[wiretest.Session+".2 step_discarded"] != 1 {
		t.Errorf("readers were cut at %v", cuts)
	}
	for agent, want := range map[string]string{".1": "Trains leave hourly.Trains are older.", ".1.1": "In 1825. Or so they say.", ".2": "Planes are fast.", ".4.1": "Where are you?Berlin."} {
		if got := said[wiretest.Session+agent]; got != want {
			t.Errorf("%s said %q", agent, got)
		}
	}
	for call, want := range map[string]string{".3/pay": "output-available", ".3/sign": "output-denied", ".1/history": "output-available", ".4.1/location": "output-available"} {
		if got := calls[wiretest.Session+call]; got != want {
			t.Errorf("call %s is %q", call, got)
		}
	}
	if !strings.HasPrefix(said[""], "I will ask two of mine.") {
		t.Errorf("the root said %q", said[""])
	}
}

// TestFlattenedArguments: what a sub-agent writes of a call is shown as it is
// written, to those who are there and those who come; behind a step of the message it
// waits until it is whole, and then readers are cut.
func TestFlattenedArguments(t *testing.T) {
	t.Parallel()
	child := func(c chunk.Chunk) chunk.Chunk {
		*c.ChunkBase() = chunk.Base{AgentID: "s.1", RunID: "r.1", Step: 1}
		return c
	}
	l := newLog(t).user("t").start("r", "t", "t").begin().
		add(&chunk.SubAgentStart{SubAgentType: "x", SubSessionID: "s.1", CallID: "p", Mode: chunk.ChildBackground},
			child(&chunk.RunStarted{TurnID: "s.1", MessageID: "a-s.1", Mode: "start"}), child(&chunk.StepStarted{StepID: "r.1-1"}),
			child(&chunk.ToolArgStreamStart{ToolCallID: "c", ToolName: "look"}),
			child(&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: `{"n":`}),
			child(&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: `[1`}))
	o := profiles["flatten"]
	live, p := project(t, l, "t", &o)
	want := `{"type":"tool-input-start","toolCallId":"s.1/c","toolName":"look","dynamic":true}
{"type":"tool-input-delta","toolCallId":"s.1/c","inputTextDelta":"{\"n\":"}
{"type":"tool-input-delta","toolCallId":"s.1/c","inputTextDelta":"[1"}`
	if got := events(live); !strings.HasSuffix(got, want) {
		t.Errorf("live:\n%s\nwant it to end with\n%s", got, want)
	}
	want = strings.ReplaceAll(want, `"}
{"type":"tool-input-delta","toolCallId":"s.1/c","inputTextDelta":"[1`, `[1`)
	if got := events(planOf(t, p)); !strings.HasSuffix(got, want) {
		t.Errorf("plan:\n%s\nwant it to end with\n%s", got, want)
	}

	apply := func(chunks ...chunk.Chunk) (frames []spool.Frame) {
		t.Helper()
		n := len(l.records)
		for _, r := range l.add(chunks...).records[n:] {
			var err error
			if frames, err = p.Apply(frames, r); err != nil {
				t.Fatal(err)
			}
		}
		return frames
	}
	apply(l.fold.Owed().CloseModelPhase("stop", nil)...)
	apply(l.fold.Owed().CloseStep("c1")...)
	l.step++
	apply(&chunk.StepStarted{StepID: "r.2"})
	if frames := apply(child(&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: `]`})); len(frames) > 0 {
		t.Errorf("behind a step: %s", joined(frames))
	}
	frames := apply(child(&chunk.ToolArgStreamDelta{ToolCallID: "c", Delta: `}`}), child(&chunk.ToolArgStreamEnd{ToolCallID: "c", ToolName: "look"}))
	if len(frames) == 0 || !frames[len(frames)-1].Cut {
		t.Errorf("whole, behind a step: %s", joined(frames))
	}
	if got := events(planOf(t, p)); !strings.Contains(got, `{"type":"tool-input-available","toolCallId":"s.1/c","toolName":"look","input":{"n":[1]},"dynamic":true}`) {
		t.Errorf("plan: %s", got)
	}
}

// TestFlattenedHistory: pages and merging keep what sub-agents said apart: a
// message that was loaded twice, on the way and whole, has each call once.
func TestFlattenedHistory(t *testing.T) {
	t.Parallel()
	o := profiles["flatten"]
	f := fold.New(wiretest.Session)
	var early []aisdk.UIMessage // of when a child waits for its answer
	messages := func() (list []chunk.Message) {
		for _, m := range f.Messages {
			list = append(list, m.Clone())
		}
		return list
	}
	for _, r := range wiretest.Agents() {
		if err := f.Apply(r); err != nil {
			t.Fatal(err)
		}
		if early == nil && r.Type == chunk.TypeRunSuspended && r.Agent == wiretest.Session {
			early = aisdk.ConvertToUIMessages(messages(), converting(&logOf{fold: f}, &o))
		}
	}
	whole := aisdk.ConvertToUIMessages(messages(), converting(&logOf{fold: f}, &o))
	for i := range whole {
		page := aisdk.LoadUIMessages(messages(), i, 1, converting(&logOf{fold: f}, &o))
		a, _ := json.Marshal(page.Messages)
		b, _ := json.Marshal(whole[i : i+1])
		if string(a) != string(b) || page.HasMore != (i+1 < len(whole)) {
			t.Errorf("message %d by itself: %s\namong all: %s", i, a, b)
		}
	}

	at := len(early) - 1
	first, last := early[at], whole[at]
	if first.ID != last.ID || first.Role != "assistant" {
		t.Fatalf("%s %s, and then %s", first.Role, first.ID, last.ID)
	}
	merged := aisdk.MergeAssistantMessages([]aisdk.UIMessage{first, last}, nil)
	if len(merged) != 1 {
		t.Fatalf("%d messages", len(merged))
	}
	states := func(m aisdk.UIMessage) map[string]string {
		states := map[string]string{}
		for _, p := range m.Parts {
			if p.IsTool() {
				if _, twice := states[p.ToolCallID]; twice {
					t.Errorf("call %s is there twice", p.ToolCallID)
				}
				states[p.ToolCallID] = p.State
			}
		}
		return states
	}
	got, want := states(merged[0]), states(last)
	children := 0
	for id, state := range want {
		if got[id] != state {
			t.Errorf("call %s is %q after merging, %q before", id, got[id], state)
		}
		if strings.HasPrefix(id, wiretest.Session+".") {
			children++
		}
	}
	if len(got) != len(want) || children == 0 || fmt.Sprint(states(first)) == fmt.Sprint(want) {
		t.Errorf("%d calls merged of %d, %d of them of sub-agents", len(got), len(want), children)
	}
	if once := aisdk.MergeAssistantMessages(whole, nil); len(once) != len(whole) {
		t.Errorf("%d messages of %d are left of a history that has one a turn", len(once), len(whole))
	}
}
