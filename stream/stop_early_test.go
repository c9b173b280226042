package stream_test

import (
	"errors"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
)

// A stop that comes after the message and before its run ends the run at its first write.
func TestStopBeforeTheRun(t *testing.T) {
	inWorld(t, func(w *world) {
		m := stream.NewManager(w.logs, nil)
		w.command(w.logs, "s", say("u1", "hello"))
		next, err := m.AwaitMessage(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.command(w.logs, "s", &chunk.StopRequested{CommandID: "stop-1"})
		out, err := m.CreateWriter(w.t.Context(), next.StreamID, "", "loop")
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Write(w.t.Context(), &chunk.TextDelta{Delta: "x"}); !errors.Is(err, stream.ErrProducerStopped) {
			t.Errorf("the first write: %v", err)
		}
		if f := w.fold("s"); f.Status != chunk.StatusEnded || f.Live() {
			t.Errorf("the session is %s, %s", f.Status, f.Reason)
		}
	})
}
