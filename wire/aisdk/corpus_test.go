package aisdk_test

import (
	"testing"

	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire/wiretest"
)

func TestEveryCutOfTheCorpus(t *testing.T) {
	l := &logOf{t: t, fold: fold.New(wiretest.Session), records: wiretest.Corpus()}
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

// Each agent of a log has turns of its own, which can be attached to like the
// root's.
func TestEveryCutOfChildren(t *testing.T) {
	l := &logOf{t: t, fold: fold.New(wiretest.Session), records: wiretest.Agents()}
	for _, r := range l.records {
		if err := l.fold.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	agents := 0
	var check func(f *fold.Fold)
	check = func(f *fold.Fold) {
		agents++
		for _, name := range []string{"default", "ui7", "summary", "flatten", "flatten7"} {
			t.Run(f.Session+"/"+name, func(t *testing.T) { checkCuts(t, &logOf{t: t, fold: f, records: l.records}, profiles[name], 5) })
		}
		for _, c := range f.Children {
			check(c)
		}
	}
	check(l.fold)
	if agents < 11 {
		t.Errorf("only %d agents", agents)
	}
}
