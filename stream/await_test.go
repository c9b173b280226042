package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
)

// answer answers what a loop is given, as docs/library.md has it.
func (w *world) answer(ctx context.Context, m *stream.Manager, on func(*stream.Waiting)) {
	for {
		next, err := m.AwaitMessage(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.t.Error(err)
			}
			return
		}
		if on != nil {
			on(next)
		}
		out, err := m.CreateWriter(ctx, next.StreamID, "", "loop")
		if err == nil && next.Message != nil {
			err = out.Write(ctx, &chunk.TextDelta{Delta: "You said " + next.Message.Text()})
		}
		if err = errors.Join(err, m.EndStream(ctx, next.StreamID, nil)); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	}
}

// Loops in several processes answer each message once.
func TestLoopsShareMessages(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.t.Context())
		var loops sync.WaitGroup
		for range 3 {
			m := stream.NewManager(w.process(), nil)
			loops.Go(func() { w.answer(ctx, m, nil) })
		}
		for turn := range 4 {
			for s := range 10 {
				w.command(w.logs, fmt.Sprint("s", s), say(fmt.Sprint("u", turn), fmt.Sprint(turn)))
			}
			synctest.Wait()
		}
		cancel()
		loops.Wait()
		for s := range 10 {
			f := w.fold(fmt.Sprint("s", s))
			if len(f.Turns) != 4 || f.Live() || len(f.Messages) != 8 {
				t.Errorf("s%d: %s", s, mustJSON(f.Messages))
				continue
			}
			for turn := range 4 {
				if got := f.Messages[2*turn+1].Text(); got != fmt.Sprint("You said ", turn) {
					t.Errorf("s%d, turn %d: %q", s, turn, got)
				}
			}
		}
	})
}

// What needs no answer is settled, and the loop comes to rest.
func TestAwaitMessageSettles(t *testing.T) {
	inWorld(t, func(w *world) {
		m, e := stream.NewManager(w.logs, nil), stream.NewExternal(w.process(), nil)
		pause := func(session string) {
			out, err := m.CreateWriter(w.t.Context(), session, "", "loop")
			if err == nil {
				err = errors.Join(out.Write(w.t.Context(), &chunk.TextDelta{Delta: "half"}), m.PauseStream(w.t.Context(), session))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w.command(w.logs, "quiet", say("u1", "first"))
		pause("stopped")
		pause("superseded")
		x := w.claim(e, "lost")
		w.produce(e, x, 0, words("half")...)
		defer w.agentRun("agents").Close()

		ctx, cancel := context.WithCancel(w.t.Context())
		done := make(chan struct{})
		var given []string
		go func() {
			defer close(done)
			w.answer(ctx, m, func(next *stream.Waiting) { given = append(given, next.StreamID) })
		}()
		synctest.Wait()
		w.command(w.logs, "quiet", &chunk.StopRequested{CommandID: "x"})
		w.command(w.logs, "stopped", &chunk.StopRequested{CommandID: "x"})
		instead := say("u1", "instead")
		instead.WhenBusy = chunk.BusyInterrupt
		w.command(w.logs, "superseded", instead)
		time.Sleep(time.Minute) // the producer of lost is gone
		synctest.Wait()
		for session, want := range map[string]string{"quiet": "completed", "stopped": "stopped", "superseded": "completed", "lost": "failed"} {
			f := w.fold(session)
			h, err := w.log(session).Head(w.t.Context())
			if f.Live() || f.Reason != want || err != nil || h.Due != 0 {
				t.Errorf("%s: %s, live %v, due %d, %v", session, f.Reason, f.Live(), h.Due, err)
			}
		}
		if want := []string{"quiet", "superseded"}; !slices.Equal(given, want) {
			t.Errorf("given %v, want %v", given, want)
		}
		w.store.took()
		time.Sleep(10 * time.Minute)
		// The agent's run, which no runner recovers, is looked at once a second.
		if calls := w.store.took(); calls["claim"] > 2*600 {
			t.Errorf("the loop does not rest: %v", calls)
		}
		cancel()
		<-done
	})
}

// A turn that is answered again has the message of its first answer, and answers to a
// pause come without a message.
func TestAwaitMessageOfCommandsWithoutText(t *testing.T) {
	inWorld(t, func(w *world) {
		m := stream.NewManager(w.logs, nil)
		next := func() *stream.Waiting {
			t.Helper()
			waiting, err := m.AwaitMessage(w.t.Context(), "loop")
			if err != nil || waiting.StreamID != "s" {
				t.Fatalf("%+v, %v", waiting, err)
			}
			return waiting
		}
		if _, err := w.log("s").Command(w.t.Context(), spool.Row{Agent: "loop"}, say("u1", "hello")); err != nil {
			t.Fatal(err)
		}
		given := next()
		if given.Message.Text() != "hello" {
			t.Errorf("%+v", given.Message)
		}
		if err := given.Release(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		if again := next(); again.Message.Text() != "hello" {
			t.Errorf("after a release: %+v", again.Message)
		}
		out, err := m.CreateWriter(w.t.Context(), "s", "", "")
		if err == nil {
			err = errors.Join(out.Write(w.t.Context(), &chunk.ToolStart{ToolCallID: "c", ToolName: "ask", Arguments: json.RawMessage(`{}`), Client: true}), m.PauseStream(w.t.Context(), "s"))
		}
		if err != nil {
			t.Fatal(err)
		}
		w.command(w.logs, "s", &chunk.ToolResultSubmitted{CommandID: "r", ToolCallID: "c", Result: json.RawMessage(`1`)})
		if goes := next(); goes.Message != nil {
			t.Errorf("an answer came with %+v", goes.Message)
		}
		if out, err = m.CreateWriter(w.t.Context(), "s", "", ""); err == nil {
			err = errors.Join(out.Write(w.t.Context(), &chunk.TextDelta{Delta: "one"}), m.EndStream(w.t.Context(), "s", nil))
		}
		if err != nil {
			t.Fatal(err)
		}
		f := w.fold("s")
		if len(f.Turns) != 1 || f.Messages[1].Text() != "one" || f.Call("c").State != chunk.ToolCompleted {
			t.Errorf("%s", mustJSON(f.Messages))
		}
		w.command(w.logs, "s", &chunk.HistoryRewound{CommandID: "again", AfterMessageID: "u1", Trigger: "regenerate"})
		if again := next(); again.Message == nil || again.Message.Text() != "hello" {
			t.Errorf("regenerated: %+v", again.Message)
		}
	})
}
