package aisdk_test

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

func BenchmarkDeltas(b *testing.B) {
	l := newLog(b).user("t").start("r", "t", "t").begin()
	for range 20000 {
		l.text("token ")
	}
	var frames []spool.Frame
	b.ReportAllocs()
	for b.Loop() {
		p := aisdk.NewProjector(wire.Subject{Turn: "t"}, nil)
		for _, r := range l.records {
			var err error
			if frames, err = p.Apply(frames[:0], r); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(l.records)), "ns/record")
}

func BenchmarkPlan(b *testing.B) {
	l := newLog(b).user("t").start("r", "t", "t").begin()
	for range 20000 {
		l.text("token ")
	}
	_, p := project(b, l, "t", nil)
	b.ReportAllocs()
	for b.Loop() {
		planOf(b, p)
	}
}
