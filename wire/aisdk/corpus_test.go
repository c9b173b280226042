package aisdk_test

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

// wire is a profile as the suite for all wires sees it.
func wire(t *testing.T, o aisdk.Options, log []spool.Record) wiretest.Wire {
	state := func(m aisdk.UIMessage) (json.RawMessage, error) { return json.Marshal(canonical(t, m, &o)) }
	return wiretest.Wire{
		Log:     log,
		PerTurn: true,
		New:     func(turn *spool.Turn) spool.Projector { return aisdk.NewProjector(turn.ID, &o) },
		Fold: func(stream []byte) (json.RawMessage, error) {
			client := aisdk.Client{UI7: o.UI7}
			if err := client.Write(stream); err != nil {
				return nil, err
			}
			return state(client.Message)
		},
	}
}

func TestWire(t *testing.T) {
	for _, name := range []string{"default", "ui7"} {
		o := profiles[name]
		t.Run(name, func(t *testing.T) { wiretest.Run(t, wire(t, o, nil)) })
	}
}

func TestEveryCutOfTheCorpus(t *testing.T) {
	l := &logOf{t: t, fold: spool.NewFold(wiretest.Session), records: wiretest.Corpus()}
	for _, r := range l.records {
		if err := l.fold.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.fold.Turns) < 5 {
		t.Fatalf("only %d turns", len(l.fold.Turns))
	}
	for name, o := range profiles {
		t.Run(name, func(t *testing.T) { checkLog(t, l, o) })
	}
}
