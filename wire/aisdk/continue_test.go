package aisdk_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

// TestContinueASnapshotAtEveryCut: a client that has the half-written message from a
// snapshot ends, with what the stream adds, with the whole message. A text that was open
// is in two parts. The message never begins again.
func TestContinueASnapshotAtEveryCut(t *testing.T) {
	logs := map[string]*logOf{"typical": toolsTurn(t)}
	for seed := range uint64(20) {
		logs[fmt.Sprint("random ", seed)] = randomLog(t, seed)
	}
	for name, records := range map[string][]chunk.Record{"corpus": wiretest.Corpus(), "agents": wiretest.Agents()} {
		l := &logOf{t: t, fold: fold.New(wiretest.Session), records: records}
		for _, r := range records {
			if err := l.fold.Apply(r); err != nil {
				t.Fatal(err)
			}
		}
		logs[name] = l
	}
	for name, l := range logs {
		for _, profile := range []string{"default", "ui7", "static", "nosteps", "flatten", "flatten7"} {
			t.Run(name+"/"+profile, func(t *testing.T) {
				t.Parallel()
				o := profiles[profile]
				n := 0
				for _, turn := range l.fold.Turns {
					n += checkContinued(t, l, turn, &o)
				}
				if n == 0 {
					t.Error("nothing was continued")
				}
			})
		}
	}
}

// checkContinued checks a turn at every cut, and returns how many of them it continued.
func checkContinued(t *testing.T, l *logOf, turn *fold.Turn, o *aisdk.Options) (continued int) {
	t.Helper()
	projector := func() spool.Projector {
		return o.Profile().Continuing().Projector(wire.Subject{Turn: turn.ID, Agent: l.fold.Session, Resolve: l.resolve})
	}
	var frames [][]spool.Frame
	p := projector()
	for _, r := range l.records {
		out, err := p.Apply(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range out {
			if bytes.HasPrefix(f.Data, []byte(`data: {"type":"start",`)) {
				t.Fatalf("record %d begins the message: %s", r.Seq, f.Data)
			}
		}
		frames = append(frames, out)
	}
	then, at := projector(), fold.New(l.fold.Session)
	stride := 1
	if len(l.records) > 60 {
		stride = matrix.Stride(t, 7)
	}
	for i, r := range l.records {
		if _, err := then.Apply(nil, r); err != nil {
			t.Fatal(err)
		}
		if err := at.Apply(r); err != nil {
			t.Fatal(err)
		}
		m := at.Message(turn.MessageID)
		if i%stride == 0 && m != nil && len(m.Parts) > 0 && hasLater(frames[i+1:]) {
			if err := continueAt(t, l, at, m, then, frames[i+1:], o); err != nil {
				t.Fatalf("turn %s, snapshot at %d (%s): %v", turn.ID, r.Seq, r.Type, err)
			}
			continued++
		}
	}
	return continued
}

// continueAt gives a client the snapshot's message and the frames that continue it.
func continueAt(t *testing.T, l *logOf, at *fold.Fold, m *chunk.Message, then spool.Projector, frames [][]spool.Frame, o *aisdk.Options) error {
	as := converting(&logOf{fold: at, resolve: l.resolve}, o)
	as.Live = at.OpenRun() != nil || strings.HasPrefix(at.LastTurn().LastRun().Suspended, "awaiting_")
	half := aisdk.ConvertToUIMessage(m, as)
	lead, begun, err := then.(wire.Reopener).Reopen()
	if err != nil || !begun {
		return fmt.Errorf("reopened: %v, %w", begun, err)
	}
	// A client of ai 6.0.0 continues in the message; those of the newest 6 and 7 put what
	// follows into one of its own.
	same := &reader{client: aisdk.Client{UI7: o.UI7, Message: half, Started: true}}
	same.client.Message.Parts = slices.Clone(half.Parts)
	beside := &reader{client: aisdk.Client{UI7: o.UI7, Started: true}}
	for _, r := range []*reader{same, beside} {
		if err := r.more(lead, false); err != nil {
			return err
		}
		for i := range frames {
			if err := r.more(frames[i], !hasLater(frames[i+1:])); err != nil {
				return err
			}
		}
	}
	whole := l.fold.Message(m.ID)
	if same.cut || whole == nil {
		return nil
	}
	if !same.client.Done || !beside.client.Done {
		return fmt.Errorf("no end")
	}
	got := same.client.Message
	got.Parts = joinHalves(half.Parts, got.Parts)
	want := canonical(t, aisdk.ConvertToUIMessage(whole, converting(l, o)), o)
	if d := diff(canonical(t, got, o), want); d != "" {
		return fmt.Errorf("%s", d)
	}
	return nil
}

// joinHalves appends to the texts that a snapshot has left open what the first parts after
// it have brought, in their order.
func joinHalves(half, parts []aisdk.UIPart) []aisdk.UIPart {
	words := func(p *aisdk.UIPart) bool { return p.Type == "text" || p.Type == "reasoning" }
	next := len(half)
	for i := range half {
		p := &parts[i]
		if !words(p) || p.State != "streaming" || next == len(parts) {
			continue
		}
		rest := parts[next]
		p.Text += rest.Text
		p.State, p.ProviderMetadata = rest.State, rest.ProviderMetadata
		next++
	}
	return slices.Delete(parts, len(half), next)
}
