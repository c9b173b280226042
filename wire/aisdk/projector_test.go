package aisdk_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// profiles are the profiles that the properties are checked for.
var profiles = map[string]aisdk.Options{
	"default":  {},
	"ui7":      {UI7: true},
	"static":   {StaticTools: true},
	"static7":  {StaticTools: true, UI7: true},
	"nosteps":  {NoStepEvents: true},
	"summary":  {SubAgents: aisdk.Summary},
	"flatten":  {SubAgents: aisdk.Flatten},
	"flatten7": {SubAgents: aisdk.Flatten, UI7: true},
}

// reader is a client and the stream it reads.
type reader struct {
	client aisdk.Client
	cut    bool
}

func read(o *aisdk.Options, frames []spool.Frame, last bool) (*reader, error) {
	r := &reader{client: aisdk.Client{UI7: o.UI7}}
	return r, r.more(frames, last)
}

// more gives the reader frames; terminal ones only at the end of the log.
func (r *reader) more(frames []spool.Frame, last bool) error {
	for _, f := range frames {
		if f.Terminal && !last || r.cut {
			continue
		}
		if err := r.client.Write(f.Data); err != nil {
			return err
		}
		r.cut = r.cut || f.Cut
	}
	return nil
}

// canonical is a message without what this profile's stream cannot carry.
func canonical(t testing.TB, m aisdk.UIMessage, o *aisdk.Options) any {
	t.Helper()
	m.Parts = append([]aisdk.UIPart{}, m.Parts...)
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Approval != nil && !o.UI7 {
			p.Approval = &aisdk.UIApproval{ID: p.Approval.ID}
			if p.State == aisdk.StateApprovalResponded {
				p.State = aisdk.StateApprovalRequested
			}
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func diff(got, want any) string {
	if reflect.DeepEqual(got, want) {
		return ""
	}
	a, _ := json.MarshalIndent(got, "", " ")
	b, _ := json.MarshalIndent(want, "", " ")
	return fmt.Sprintf("got %s\nwant %s", a, b)
}

// converting are the options under which a fold's messages equal the stream's.
func converting(l *logOf, o *aisdk.Options) *aisdk.ConvertOptions {
	return &aisdk.ConvertOptions{Options: *o, Resolve: l.resolve,
		Children: func(m *chunk.Message) (string, []*aisdk.SubAgent) {
			return l.fold.Session, aisdk.SubAgentsOf(l.fold, m.ID)[m.ID]
		}}
}

// checkLog checks the law for each turn of a log: attached at any cut, a reader
// ends with the message of a reader that never left, which is the converted message;
// and the kept records alone give the same plan.
func checkLog(t *testing.T, l *logOf, o aisdk.Options) {
	t.Helper()
	checkCuts(t, l, o, 1)
}

// checkCuts is checkLog at each n-th cut, and the last; with the race detector at
// fewer of a long log.
func checkCuts(t *testing.T, l *logOf, o aisdk.Options, n int) {
	t.Helper()
	if len(l.records) > 60 {
		n *= matrix.Stride(t, 7)
	}
	for _, turn := range l.fold.Turns {
		var want any // nil if the turn's message was rewound
		if m := l.fold.Message(turn.MessageID); m != nil {
			want = canonical(t, aisdk.ConvertToUIMessage(m, converting(l, &o)), &o)
		}

		var frames [][]spool.Frame
		var plans [][]spool.Frame
		p := aisdk.NewProjector(wire.Subject{Turn: turn.ID, Resolve: l.resolve}, &o)
		for _, r := range l.records {
			plans = append(plans, planOf(t, p))
			out, err := p.Apply(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			checkFrames(t, out, r)
			frames = append(frames, out)
		}
		plans = append(plans, planOf(t, p))
		frames = append(frames, nil)
		var streamed any
		for cut := range plans {
			if cut%n != 0 && cut != len(plans)-1 {
				continue
			}
			ends := func(i int) bool { return !hasLater(frames[i+1:]) }
			rd, err := read(&o, plans[cut], !hasLater(frames[cut:]))
			if err != nil {
				t.Fatalf("turn %s, plan at %d: %v", turn.ID, cut, err)
			}
			for i := cut; i < len(frames) && !rd.cut; i++ {
				if err := rd.more(frames[i], i+1 < len(frames) && ends(i)); err != nil {
					t.Fatalf("turn %s, attached at %d, record %d: %v", turn.ID, cut, i+1, err)
				}
			}
			if rd.cut {
				continue // it comes back at a later cut
			}
			got := canonical(t, rd.client.Message, &o)
			if want == nil {
				want = got
			}
			if d := diff(got, want); d != "" && (!o.UI7 || diff(withoutSteps(got), withoutSteps(want)) != "") {
				t.Fatalf("turn %s, attached at %d: %s", turn.ID, cut, d)
			}
			// After reset-step the discarded step's step-start stays in the
			// stream's message, but it is the same in all of them.
			if streamed == nil {
				streamed = got
			}
			if d := diff(got, streamed); d != "" {
				t.Fatalf("turn %s, attached at %d and before: %s", turn.ID, cut, d)
			}
			if !rd.client.Done {
				t.Fatalf("turn %s, attached at %d: no end", turn.ID, cut)
			}
		}

		kept := aisdk.NewProjector(wire.Subject{Turn: turn.ID, Resolve: l.resolve}, &o)
		for _, r := range l.records {
			if r.Class == chunk.Kept {
				if _, err := kept.Apply(nil, r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, want := joined(planOf(t, kept)), joined(plans[len(plans)-1]); got != want {
			t.Fatalf("turn %s, from kept records alone:\n%s\nwant\n%s", turn.ID, got, want)
		}
	}
}

func withoutSteps(m any) []any {
	var kept []any
	for _, p := range m.(map[string]any)["parts"].([]any) {
		if p.(map[string]any)["type"] != "step-start" {
			kept = append(kept, p)
		}
	}
	return kept
}

func hasLater(frames [][]spool.Frame) bool {
	for _, f := range frames {
		if len(f) > 0 {
			return true
		}
	}
	return false
}

func checkFrames(t *testing.T, frames []spool.Frame, r chunk.Record) {
	t.Helper()
	terminal := false
	for i, f := range frames {
		last := i == len(frames)-1
		if f.Seq != 0 && (!last || f.Seq != r.Seq) || last && f.Seq == 0 && !f.Cut {
			t.Fatalf("record %d: frame %d of %d has sequence %d", r.Seq, i, len(frames), f.Seq)
		}
		if terminal && !f.Terminal {
			t.Fatalf("record %d: something follows a terminal frame", r.Seq)
		}
		terminal = f.Terminal
		if len(f.Data) > chunk.MaxRecordBytes {
			t.Fatalf("record %d: a frame of %d bytes", r.Seq, len(f.Data))
		}
	}
}

func joined(frames []spool.Frame) string {
	var b strings.Builder
	for _, f := range frames {
		b.Write(f.Data)
	}
	return b.String()
}

func TestEveryCutOfATypicalTurn(t *testing.T) {
	for name, o := range profiles {
		t.Run(name, func(t *testing.T) { checkLog(t, toolsTurn(t), o) })
	}
}

func TestEveryCutOfRandomLogs(t *testing.T) {
	for name, o := range profiles {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				l := randomLog(t, seed)
				t.Run(fmt.Sprint(seed), func(t *testing.T) { checkCuts(t, l, o, 3) })
			}
		})
	}
}

func TestGoldenToolsTurn(t *testing.T) {
	for name, o := range profiles {
		t.Run(name, func(t *testing.T) {
			p := aisdk.NewProjector(wire.Subject{Turn: "t"}, &o)
			var live []spool.Frame
			for _, r := range toolsTurn(t).records {
				var err error
				if live, err = p.Apply(live, r); err != nil {
					t.Fatal(err)
				}
			}
			golden(t, "tools-"+name+".sse", joined(live)+": plan\n\n"+joined(planOf(t, p)))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run with -update if it should):\n%s", path, got)
	}
}
