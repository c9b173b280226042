package wiretest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// toy is a small wire of one turn: text, the outcomes of calls, and the end.
type toy struct {
	turn  string
	fold  *fold.MessageFold
	runs  map[string]bool
	calls []string // "id=outcome", in order
	end   string
	flaw  string
	n     *int // records that became frames
	held  []spool.Frame
	last  []byte
	seen  uint64 // the latest sequence on a frame
}

type toyFrame struct {
	Text  string `json:"text,omitempty"`
	Call  string `json:"call,omitempty"`
	End   string `json:"end,omitempty"`
	Again bool   `json:"again,omitempty"`
	Lost  bool   `json:"lost,omitempty"`
}

var flips int // shared by all projectors of the random flaw

func newToy(flaw string) func(wire.Subject) spool.Projector {
	shared := new(int)
	return func(s wire.Subject) spool.Projector {
		p := &toy{turn: s.Turn, fold: fold.NewMessageFold(Session), runs: map[string]bool{}, flaw: flaw, n: new(int)}
		if flaw == "shares a count" {
			*shared, p.n = 0, shared
		}
		return p
	}
}

func (p *toy) frame(f toyFrame) spool.Frame {
	data, _ := json.Marshal(f)
	return spool.Frame{Data: fmt.Appendf(nil, "data: %s\n\n", data)}
}

func (p *toy) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	c, err := chunk.Decode(r.Data)
	if err != nil {
		return dst, err
	}
	if started, ok := chunk.As[*chunk.RunStarted](c); ok && r.Agent == Session && started.TurnID == p.turn {
		p.runs[c.ChunkBase().RunID] = true
	}
	if !p.runs[c.ChunkBase().RunID] || r.Agent != Session {
		return dst, nil
	}
	if p.flaw == "plans from trace alone" && chunk.Is(c, chunk.TypeAssistantMessage) {
		return dst, nil
	}
	p.fold.Apply(r, c)
	var frames []spool.Frame
	switch c := c.(type) {
	case *chunk.RunStarted:
		p.end = ""
		frames = append(frames, p.frame(toyFrame{Again: true}))
		frames[0].Echo = true
	case *chunk.TextDelta:
		half := len(c.Delta) / 2
		for half > 0 && !utf8.RuneStart(c.Delta[half]) {
			half--
		}
		frames = append(frames, p.frame(toyFrame{Text: c.Delta[:half]}), p.frame(toyFrame{Text: c.Delta[half:]}))
	case *chunk.ToolEnd:
		if !c.Preliminary {
			p.calls = append(p.calls, fmt.Sprintf("%s=%v", c.ToolCallID, c.Success))
			frames = append(frames, p.frame(toyFrame{Call: p.calls[len(p.calls)-1]}))
		}
	case *chunk.StepDiscarded:
		f := p.frame(toyFrame{Lost: true})
		f.Cut, f.Since = true, p.seen
		switch p.flaw {
		case "takes back what is to come":
			f.Since = r.Seq + 1
		case "takes back less than it cut":
			f.Since = r.Seq
		}
		return append(dst, f), nil
	case *chunk.RunSuspended:
		p.end = c.Kind
	case *chunk.RunFinished:
		p.end = string(c.Outcome)
	}
	if p.end != "" && len(frames) == 0 && (r.Type == chunk.TypeRunFinished || r.Type == chunk.TypeRunSuspended) {
		f := p.frame(toyFrame{End: p.end})
		f.Terminal = true
		frames = append(frames, f, spool.Frame{Data: []byte("data: {}\n\n"), Terminal: true, Uncounted: true})
	}
	if len(frames) > 0 {
		frames[len(frames)-1].Seq = r.Seq
		if !frames[0].Terminal {
			p.seen = r.Seq
		}
	}
	frames = p.spoil(frames, r)
	return append(dst, frames...), nil
}

// spoil makes the flaws that the suite must find.
func (p *toy) spoil(frames []spool.Frame, r chunk.Record) []spool.Frame {
	if len(frames) == 0 {
		return frames
	}
	*p.n++
	switch p.flaw {
	case "drops a frame", "shares a count":
		if *p.n == 4 {
			return nil
		}
	case "drops the first of two frames":
		if len(frames) == 2 && *p.n == 4 {
			return frames[1:]
		}
	case "doubles a frame":
		if *p.n == 3 {
			return append([]spool.Frame{{Data: frames[0].Data}}, frames...)
		}
	case "swaps frames of a record":
		if len(frames) == 2 {
			frames[0].Data, frames[1].Data = frames[1].Data, frames[0].Data
		}
	case "swaps frames of two records":
		if r.Type == chunk.TypeTextDelta && p.held == nil {
			p.held = []spool.Frame{{Data: frames[0].Data}, {Data: frames[1].Data}}
			return nil
		}
		if len(p.held) > 0 {
			frames[len(frames)-1].Seq = 0
			frames = append(frames, p.held...)
			frames[len(frames)-1].Seq, p.held = r.Seq, []spool.Frame{}
		}
	case "carries the sequence early":
		if len(frames) == 2 {
			frames[0].Seq, frames[1].Seq = r.Seq, 0
		}
	case "carries no sequence":
		frames[len(frames)-1].Seq = 0
	case "writes ids":
		frames[0].Data = append([]byte("id: 1\n"), frames[0].Data...)
	case "is random":
		if flips++; flips%2 == 0 {
			frames[0].Data = bytes.Replace(frames[0].Data, []byte("{"), []byte("{ "), 1)
		}
	case "uses a buffer again":
		p.last = append(p.last[:0], frames[0].Data...)
		frames[0].Data = p.last
	case "echoes words":
		frames[0].Echo = r.Type == chunk.TypeTextDelta
	case "takes back without a cut":
		frames[0].Since = 1
	case "does not count words":
		frames[0].Uncounted = r.Type == chunk.TypeTextDelta
	case "forgets the end":
		if frames[0].Terminal {
			return nil
		}
	}
	return frames
}

func (p *toy) Plan() ([]spool.Frame, error) {
	if len(p.runs) == 0 {
		return nil, nil
	}
	text := p.fold.Message().Text()
	size := 32 << 10 // escapes take room
	if p.flaw == "plans a frame a character" {
		size = 4
	}
	var frames []spool.Frame
	for text != "" {
		n := min(size, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		frames = append(frames, p.frame(toyFrame{Text: text[:n]}))
		text = text[n:]
	}
	for _, c := range p.calls {
		frames = append(frames, p.frame(toyFrame{Call: c}))
	}
	if p.end != "" {
		f := p.frame(toyFrame{End: p.end})
		f.Terminal = true
		frames = append(frames, f)
	}
	switch p.flaw {
	case "cannot plan its calls":
		if len(p.calls) > 0 {
			return nil, errors.New("calls cannot be planned")
		}
	case "plans echoes":
		if len(frames) > 0 {
			frames[0].Echo = true
		}
	case "plans without the first frame":
		return frames[min(1, len(frames)):], nil
	case "plans once":
		defer func() { p.calls = nil }()
	case "plans with sequences":
		if len(frames) > 0 {
			frames[0].Seq = 1
		}
	}
	return frames, nil
}

// ledger is a small wire of a log: the types of its records.
type ledger struct {
	flaw string
	n    int
}

func (l *ledger) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	n := r.Seq
	if l.flaw == "counts records itself" {
		l.n++
		n = uint64(l.n)
	}
	return append(dst, spool.Frame{Data: fmt.Appendf(nil, "data: {\"call\":\"%d %s\"}\n\n", n, r.Type), Seq: r.Seq}), nil
}

func (l *ledger) Plan() ([]spool.Frame, error) { return nil, nil }

func ledgerWire(flaw string) Wire {
	return Wire{Fold: foldToy, Log: Corpus(), Profile: wire.Profile{Key: "ledger", Log: &wire.LogView{},
		Projector: func(wire.Subject) spool.Projector { return &ledger{flaw: flaw} }}}
}

func foldToy(stream []byte) (json.RawMessage, error) {
	var text strings.Builder
	state := struct {
		Text  string
		Calls []string
		End   string
	}{}
	for event := range strings.SplitSeq(string(stream), "\n\n") {
		if event == "" {
			continue
		}
		for line := range strings.SplitSeq(event, "\n") {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var f toyFrame
			if err := json.Unmarshal([]byte(data), &f); err != nil {
				return nil, err
			}
			text.WriteString(f.Text)
			if f.Call != "" {
				state.Calls = append(state.Calls, f.Call)
			}
			if f.End != "" || f.Again {
				state.End = f.End
			}
		}
	}
	state.Text = text.String()
	return json.Marshal(state)
}

// toyTruth is what the toy's client should know of a turn, by the fold.
func toyTruth(log []chunk.Record, turn *fold.Turn) (json.RawMessage, error) {
	mf, runs := fold.NewMessageFold(Session), map[string]bool{}
	state := struct {
		Text  string
		Calls []string
		End   string
	}{}
	for _, r := range log {
		c, err := chunk.Decode(r.Data)
		if err != nil {
			return nil, err
		}
		if started, ok := chunk.As[*chunk.RunStarted](c); ok && r.Agent == Session && started.TurnID == turn.ID {
			runs[started.RunID] = true
		}
		if !runs[c.ChunkBase().RunID] || r.Agent != Session {
			continue
		}
		mf.Apply(r, c)
		switch c := c.(type) {
		case *chunk.ToolEnd:
			if !c.Preliminary {
				state.Calls = append(state.Calls, fmt.Sprintf("%s=%v", c.ToolCallID, c.Success))
			}
		case *chunk.RunFinished:
			state.End = string(c.Outcome)
		}
	}
	state.Text = mf.Message().Text()
	return json.Marshal(state)
}

func toyWire(flaw string) Wire {
	w := Wire{Profile: wire.Profile{Key: "toy", Projector: newToy(flaw)}, Fold: foldToy, Truth: toyTruth, Log: Corpus()}
	if flaw == "has no key" {
		w.Profile.Key = ""
	}
	return w
}

func TestSuitePassesAGoodWire(t *testing.T) {
	t.Parallel()
	Run(t, toyWire(""))
	Run(t, ledgerWire(""))
}

func TestSuiteFindsFlaws(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ flaw, found string }{
		{"drops a frame", "a reader that never left sees what the plan says"},
		{"drops the first of two frames", "a reader that never left sees what the plan says"},
		{"doubles a frame", "a reader that never left sees what the plan says"},
		{"swaps frames of a record", "a reader that never left sees what the plan says"},
		{"swaps frames of two records", "a reader that never left sees what the plan says"},
		{"drops a frame", "the client ends with what the log says"},
		{"doubles a frame", "a reader that attaches at any cut ends as one that never left"},
		{"swaps frames of a record", "a reader that attaches at any cut ends as one that never left"},
		{"carries the sequence early", "frames have the right shape"},
		{"carries no sequence", "frames have the right shape"},
		{"writes ids", "frames have the right shape"},
		{"plans with sequences", "frames have the right shape"},
		{"is random", "the same records become the same frames"},
		{"uses a buffer again", "frames never change after they were made"},
		{"forgets the end", "a reader that never left sees what the plan says"},
		{"plans without the first frame", "a reader that attaches at any cut ends as one that never left"},
		{"plans once", "a rebuilt projector is the live one"},
		{"plans once", "a reader that was cut inside a plan goes on"},
		{"plans from trace alone", "kept records alone give the same"},
		{"plans a frame a character", "a long answer is planned in few frames"},
		{"has no key", "frames are marked as what they are"},
		{"echoes words", "frames are marked as what they are"},
		{"plans echoes", "frames are marked as what they are"},
		{"takes back without a cut", "frames are marked as what they are"},
		{"takes back what is to come", "frames are marked as what they are"},
		{"takes back less than it cut", "who was cut does not come back to the same cut"},
		{"does not count words", "frames that are not counted say nothing"},
		{"shares a count", "the projectors of a profile share nothing"},
		{"cannot plan its calls", "the same records become the same frames"},
		{"cannot plan its calls", "frames never change after they were made"},
		{"cannot plan its calls", "a rebuilt projector is the live one"},
	} {
		if !finds(t, toyWire(tt.flaw), tt.found) {
			t.Errorf("a wire that %s passes %q", tt.flaw, tt.found)
		}
	}
	if !finds(t, ledgerWire("counts records itself"), "frames of a log depend on their record alone") {
		t.Error("a log whose frames depend on earlier records passes")
	}
}

// Each check but those of the content is there because a flaw needs it: what one
// of these flaws breaks, the checks of the content do not see.
func TestMarksAreNotContent(t *testing.T) {
	t.Parallel()
	for _, flaw := range []string{"has no key", "echoes words", "plans echoes", "takes back without a cut", "does not count words", "takes back less than it cut"} {
		for _, c := range checks {
			if c.content && finds(t, toyWire(flaw), c.name) {
				t.Errorf("a wire that %s fails %q, which is not about marks", flaw, c.name)
			}
		}
	}
}

func TestStrideKeepsTheEnds(t *testing.T) {
	s := &subject{Wire: Wire{Stride: 4}}
	for _, tt := range []struct {
		from, to int
		want     []int
	}{{0, 9, []int{0, 4, 8, 9}}, {3, 7, []int{3, 7}}, {5, 5, []int{5}}, {6, 8, []int{6, 8}}} {
		if got := slices.Collect(s.cuts(tt.from, tt.to)); !slices.Equal(got, tt.want) {
			t.Errorf("%d…%d: %v", tt.from, tt.to, got)
		}
	}
	s.Stride = 0
	if got := slices.Collect(s.cuts(2, 5)); !slices.Equal(got, []int{2, 3, 4, 5}) {
		t.Errorf("every cut: %v", got)
	}
	w := toyWire("plans without the first frame")
	w.Stride = 20
	if !finds(t, w, "a reader that attaches at any cut ends as one that never left") {
		t.Error("with a stride it sees nothing")
	}
}

// finds reports whether a check fails for any stream of the wire.
func finds(t *testing.T, w Wire, name string) bool {
	t.Helper()
	subjects, err := w.subjects()
	if err != nil {
		t.Fatal(err)
	}
	known := false
	for _, c := range checks {
		if c.name != name {
			continue
		}
		known = true
		for _, s := range subjects {
			if c.check(s) != nil {
				return true
			}
		}
	}
	if !known {
		t.Fatalf("there is no check %q", name)
	}
	return false
}
