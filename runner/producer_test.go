package runner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/stream"
)

func words(texts ...string) []chunk.Chunk {
	var chunks []chunk.Chunk
	for _, s := range texts {
		chunks = append(chunks, &chunk.TextDelta{Delta: s})
	}
	return chunks
}

func ending(json string) []chunk.Chunk {
	c, err := chunk.Decode([]byte(json))
	if err != nil {
		panic(err)
	}
	return []chunk.Chunk{c}
}

func (w *world) claim(e *stream.External, session string) stream.ExternalRun {
	w.t.Helper()
	x, err := e.Claim(w.t.Context(), session, stream.ExternalClaim{Row: spool.Row{Title: "from outside"}, AgentType: "script"})
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

func (w *world) produce(e *stream.External, x stream.ExternalRun, seq uint64, chunks ...chunk.Chunk) spool.Appended {
	w.t.Helper()
	res, err := e.Append(w.t.Context(), x.Session, x.Epoch, seq, chunks)
	if err != nil {
		w.t.Fatalf("append at %d: %v", seq, err)
	}
	return res
}

// records returns what the log holds now.
func (w *world) records(session string) []chunk.Record {
	w.t.Helper()
	records, _, err := w.store.Read(w.t.Context(), session, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return records
}

func TestProducerClaims(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start(demo(nil), nil)
		e := stream.NewExternal(w.logs, nil)
		w.say("busy", "u1", "slowly")
		w.until("busy", chunk.TypeTextDelta, nil)
		if _, err := e.Claim(w.t.Context(), "busy", stream.ExternalClaim{}); !errors.Is(err, spool.ErrBusy) {
			t.Errorf("while a run is open: %v", err)
		}
		if _, err := e.Claim(w.t.Context(), "s.1", stream.ExternalClaim{}); !errors.Is(err, chunk.ErrInvalidID) {
			t.Errorf("a child's session: %v", err)
		}
		w.settled("busy")
		x := w.claim(e, "busy") // as soon as it is quiet
		if _, err := e.Claim(w.t.Context(), "busy", stream.ExternalClaim{}); !errors.Is(err, spool.ErrBusy) {
			t.Errorf("while a producer has it: %v", err)
		}
		queued := say("u2", "hello")
		queued.WhenBusy = chunk.BusyQueue
		w.command("busy", queued)
		w.produce(e, x, 0, words("hi")...)
		w.produce(e, x, 1, ending(`{"type":"fail","error":"no more paper","code":"paper"}`)...)
		f := w.fold("busy")
		if len(f.Turns) != 3 || f.Turns[1].LastRun().Outcome != "failed" || f.Turns[2].ID != "u2" || f.Reason != "completed" {
			t.Errorf("turns %s", mustJSON(f.Turns))
		}
		if end := w.finished("busy")[1]; end.Error != "no more paper" || end.Code != "paper" {
			t.Errorf("end %s", mustJSON(end))
		}
	})
}

func TestProducerThatIsGoneIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		x := w.claim(e, "s")
		w.produce(e, x, 0, words("one ")...)
		w.start(demo(nil), nil)
		for range 4 {
			time.Sleep(20 * time.Second)
			w.produce(e, x, 1) // it is still there
		}
		w.produce(e, x, 1, words("two")...)
		begun := time.Now()
		f := w.fold("s")
		if took := time.Since(begun); took < 29*time.Second || took > 32*time.Second {
			t.Errorf("lost after %v", took)
		}
		if f.Status != chunk.StatusFailed || f.Error.Code != stream.CodeProducerLost || f.Messages[0].Text() != "one two" {
			t.Errorf("%s %+v %s", f.Status, f.Error, mustJSON(f.Messages))
		}
		if _, err := e.Append(w.t.Context(), "s", x.Epoch, 2, words("three")); !errors.Is(err, stream.ErrProducerFenced) {
			t.Errorf("a late append: %v", err)
		}
	})
}

// What others write to end a run has the type of the run's agent.
func TestEndsHaveTheAgentsType(t *testing.T) {
	inWorld(t, func(w *world) {
		e := stream.NewExternal(w.logs, nil)
		w.produce(e, w.claim(e, "lost"), 0, words("one")...)
		w.produce(e, w.claim(e, "stopped"), 0, words("one")...)
		w.command("stopped", &chunk.StopRequested{CommandID: "x"})
		if err := runner.ForceStop(w.t.Context(), w.logs, "stopped"); err != nil {
			t.Fatal(err)
		}
		w.start(demo(nil), nil)
		for _, session := range []string{"lost", "stopped"} {
			for _, r := range w.settled(session) {
				c, err := chunk.Decode(r.Data)
				if b := c.ChunkBase(); err != nil || !chunk.IsCommand(r.Type) && b.AgentType != "script" {
					t.Errorf("%s: %s of type %q, %v", session, r.Type, b.AgentType, err)
				}
			}
		}
	})
}
