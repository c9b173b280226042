package runner_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/storetest"
	"github.com/spool-run/spool/stream"
)

// floors returns a session's trace floor, and checks that the fold of what is
// left is the fold of all.
func (w *world) floors(session, want string) spool.Head {
	w.t.Helper()
	synctest.Wait()
	head, err := w.log(session).Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := w.log(session).FoldAt(w.t.Context(), head.Seq)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := mustJSON(f.Messages); got != want {
		w.t.Errorf("messages %s, want %s", got, want)
	}
	return head
}

func TestTraceIsTrimmedByAge(t *testing.T) {
	inWorld(t, func(w *world) {
		_ = w.logs.Close()
		w.logs = spool.NewLogs(storetest.NewRewound(w.store.(storetest.Engine)), nil) // it does not say that it is in memory
		w.start(demo(nil), nil)
		w.say("s", "u1", "tools please")
		want := mustJSON(w.fold("s").Messages)
		time.Sleep(23 * time.Hour)
		if h := w.floors("s", want); h.TraceFloor != 0 {
			t.Errorf("trimmed up to %d before its time", h.TraceFloor)
		}
		time.Sleep(time.Hour + 11*time.Minute)
		if h := w.floors("s", want); h.TraceFloor != h.Seq || h.Floor != 0 {
			t.Errorf("floors %d and %d of %d", h.TraceFloor, h.Floor, h.Seq)
		}
		// The session goes on.
		w.say("s", "u2", "hello")
		time.Sleep(time.Minute)
		err := w.log("s").View(w.t.Context(), func(f *fold.Fold) error {
			if f.Reason != "completed" || len(f.Messages) != 4 {
				t.Errorf("%s after %d messages", f.Reason, len(f.Messages))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// What is in memory keeps its trace for as long as readers may reconnect.
func TestTraceInMemory(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		w.say("s", "u1", "tools please")
		want := mustJSON(w.fold("s").Messages)
		time.Sleep(9 * time.Minute)
		if h := w.floors("s", want); h.TraceFloor != 0 {
			t.Errorf("trimmed up to %d before its time", h.TraceFloor)
		}
		time.Sleep(12 * time.Minute)
		if h := w.floors("s", want); h.TraceFloor != h.Seq || h.Floor != 0 {
			t.Errorf("floors %d and %d of %d", h.TraceFloor, h.Floor, h.Seq)
		}
	})
}

func TestTraceIsTrimmedByLength(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), &runner.Options{Retention: runner.Retention{Age: -1, Records: 150}})
		w.say("s", "u1", "slowly") // 100 deltas
		w.fold("s")
		first := w.log("s")
		head, err := first.Head(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		end := head.Seq
		w.say("s", "u2", "slowly")
		want := mustJSON(w.fold("s").Messages)
		time.Sleep(8 * time.Minute)
		if h := w.floors("s", want); h.TraceFloor != 0 {
			t.Errorf("trimmed up to %d within the grace", h.TraceFloor)
		}
		time.Sleep(13 * time.Minute)
		if h := w.floors("s", want); h.TraceFloor != end {
			t.Errorf("trimmed up to %d, want %d: the end of the first turn", h.TraceFloor, end)
		}
	})
}

func TestTraceOfAnOpenTurnStays(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), &runner.Options{Retention: runner.Retention{Age: time.Minute, Records: 1, Grace: time.Second, Every: time.Minute}})
		e := stream.NewExternal(w.logs, &stream.ExternalOptions{TTL: 48 * time.Hour})
		for _, session := range []string{"open", "paused"} {
			x, err := e.Claim(w.t.Context(), session, stream.ExternalClaim{})
			if err != nil {
				t.Fatal(err)
			}
			chunks := []chunk.Chunk{&chunk.TextDelta{Delta: "a"}, &chunk.TextDelta{Delta: "b"}}
			if session == "paused" {
				chunks = append(chunks, &chunk.Unknown{Type: stream.TypePause, Raw: []byte(`{"type":"pause"}`)})
			}
			if _, err := e.Append(w.t.Context(), session, x.Epoch, 0, chunks); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		for _, session := range []string{"open", "paused"} {
			if h, err := w.log(session).Head(w.t.Context()); err != nil || h.TraceFloor != 0 {
				t.Errorf("%s: trimmed up to %d, %v", session, h.TraceFloor, err)
			}
		}
	})
}
