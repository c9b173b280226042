package fold

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
)

// longAnswer is an open model phase with an answer of so many bytes.
func longAnswer(t testing.TB, size int) *Fold {
	t.Helper()
	f := New("s")
	seq := uint64(0)
	apply := func(c chunk.Chunk) {
		seq++
		c.ChunkBase().AgentID, c.ChunkBase().RunID = "s", "r"
		f.ApplyChunk(chunk.Record{Seq: seq, Type: c.ChunkType(), Agent: "s", Class: chunk.ClassOf(c)}, c)
	}
	apply(user("u", "x"))
	apply(started("r", "u", "u"))
	apply(step(1))
	delta := strings.Repeat("words and <tags> and \"quotes\"\n", 1<<20/31)
	for said := 0; said < size; said += len(delta) {
		apply(&chunk.TextDelta{Delta: delta})
	}
	return f
}

// settleLong settles a run in mid-answer, and folds what that appends. It returns the
// bytes that were allocated for both.
func settleLong(t testing.TB, f *Fold) (allocated uint64) {
	t.Helper()
	shown := f.Messages[1].Text()
	end := &chunk.RunFinished{Outcome: chunk.OutcomeStopped, FinishReason: "other"}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	seq := f.Seq
	for _, c := range Split(f.Owed().Settle(end)) {
		seq++
		f.ApplyChunk(chunk.Record{Seq: seq, Type: c.ChunkType(), Agent: "s"}, c)
	}
	runtime.ReadMemStats(&after)
	if f.OpenRun() != nil || f.Messages[1].Text() != shown {
		t.Fatalf("%d bytes were shown, %d are settled", len(shown), len(f.Messages[1].Text()))
	}
	return after.TotalAlloc - before.TotalAlloc
}

// What it takes to settle a long answer grows with the answer, not with its square. The
// records are made outside the view: what is computed inside copies no text.
func TestSettlingIsLinear(t *testing.T) {
	for _, mib := range []uint64{2, 8, 24} {
		f := longAnswer(t, int(mib)<<20)
		inside := testing.AllocsPerRun(1, func() { f.Owed().CloseModelPhase("stop", nil) })
		if inside > 20 {
			t.Errorf("an answer of %d MiB: %v allocations inside the view", mib, inside)
		}
		if allocated := settleLong(t, f); allocated > 10*mib<<20 {
			t.Errorf("settling an answer of %d MiB allocates %d MiB", mib, allocated>>20)
		}
	}
}

// A history that is brought back is joined as an answer is.
func TestContentIsLinear(t *testing.T) {
	const size = 16 << 20
	f := longAnswer(t, size)
	settleLong(t, f)
	want := f.Messages[1].Text()
	series := f.Owed().Content("c", "cp")
	back := New("s")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, c := range series {
		back.ApplyChunk(chunk.Record{Seq: uint64(i + 1), Type: c.ChunkType(), Agent: "s"}, withoutCheckpoint(c))
	}
	runtime.ReadMemStats(&after)
	if n := len(back.Messages); n != 2 || back.Messages[1].Text() != want {
		t.Fatalf("%d messages of %d records", n, len(series))
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 10*size {
		t.Errorf("joining %d MiB allocates %d MiB", size>>20, allocated>>20)
	}
}

func withoutCheckpoint(c *chunk.HistoryReplaced) *chunk.HistoryReplaced {
	c.CheckpointID = ""
	return c
}

func BenchmarkSettleLongAnswer(b *testing.B) {
	for _, mib := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			b.SetBytes(int64(mib) << 20)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				f := longAnswer(b, mib<<20)
				b.StartTimer()
				settleLong(b, f)
			}
		})
	}
}
