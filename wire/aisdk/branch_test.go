package aisdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/branch"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// Whatever a log holds, whole or trimmed, its branch at a checkpoint shows what
// the log showed there: the same messages on the wire, the same state.
func TestBranchesOfRandomLogs(t *testing.T) {
	made := 0
	for seed := range uint64(60) {
		l := randomLog(t, seed)
		whole := l.records
		store := memstore.New(nil)
		lease, err := store.Claim(t.Context(), spool.Claim{Owner: "o", Session: "s", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		for part := range slices.Chunk(whole, 500) {
			if _, err := store.Append(t.Context(), spool.Append{Session: "s", Epoch: lease.Epoch, Records: part}); err != nil {
				t.Fatal(err)
			}
		}
		if seed%2 == 1 {
			if err := store.Trim(t.Context(), "s", uint64(len(whole)), 0); err != nil {
				t.Fatal(err)
			}
		}
		logs := spool.NewLogs(store, nil)
		for i, cp := range l.fold.Checkpoints {
			to := fmt.Sprintf("b%d-%d", seed, i)
			if _, err := branch.Make(t.Context(), logs, "s", branch.Options{CheckpointID: cp.ID, Session: to}); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, cp.ID, err)
			}
			made++
			want := fold.New("s")
			for _, r := range whole[:cp.Seq] {
				if err := want.Apply(r); err != nil {
					t.Fatal(err)
				}
			}
			b, err := logs.Log(to)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.View(t.Context(), func(f *fold.Fold) error {
				checkShown(t, fmt.Sprintf("seed %d, %s", seed, cp.ID), want, f)
				kept, _, err := store.ReadKept(t.Context(), to, spool.KeptQuery{Max: 1 << 20})
				checkBranchOnTheWire(t, f, kept)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := store.Read(t.Context(), to, 0, 1); !errors.Is(err, spool.ErrTrimmed) {
				t.Fatalf("the branch says that it has its trace: %v", err)
			}
		}
		if err := logs.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if made < 50 {
		t.Fatalf("only %d branches were made", made)
	}
}

// checkShown compares the messages, part by part. What settled the branch may
// have added to the end of the last one.
func checkShown(t *testing.T, name string, want, got *fold.Fold) {
	t.Helper()
	if len(want.Messages) != len(got.Messages) || string(want.State) != string(got.State) || want.Usage != got.Usage {
		t.Fatalf("%s: %d messages, state %s, usage %+v; the branch: %d, %s, %+v", name,
			len(want.Messages), want.State, want.Usage, len(got.Messages), got.State, got.Usage)
	}
	for i := range want.Messages {
		a, b := want.Messages[i].Clone(), got.Messages[i].Clone()
		if n := len(a.Parts); i == len(want.Messages)-1 && len(b.Parts) > n {
			b.Parts = b.Parts[:n]
		}
		a.Metadata, b.Metadata = nil, nil // the end of a run may add to it
		for _, m := range []*chunk.Message{&a, &b} {
			for i := range m.Parts {
				m.Parts[i].First = 0
			}
		}
		x, errX := json.Marshal(a)
		y, errY := json.Marshal(b)
		if errX != nil || errY != nil || string(x) != string(y) {
			t.Fatalf("%s: message %d is\n%s\nand in the branch\n%s", name, i, x, y)
		}
	}
}

// checkBranchOnTheWire says that a reader that attaches is shown the branch's messages.
func checkBranchOnTheWire(t *testing.T, f *fold.Fold, records []chunk.Record) {
	t.Helper()
	o := aisdk.Options{}
	for _, turn := range f.Turns {
		m := f.Message(turn.MessageID)
		if m == nil {
			continue
		}
		p := aisdk.NewProjector(wire.Subject{Turn: turn.ID}, &o)
		for _, r := range records {
			if _, err := p.Apply(nil, r); err != nil {
				t.Fatal(err)
			}
		}
		rd, err := read(&o, planOf(t, p), true)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(canonical(t, rd.client.Message, &o), canonical(t, aisdk.ConvertToUIMessage(m, converting(&logOf{fold: f}, &o)), &o)); d != "" {
			t.Fatalf("%s: turn %s: %s", f.Session, turn.ID, d)
		}
	}
}
