package aisdk_test

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire/wiretest"
)

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
