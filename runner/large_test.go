package runner_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
)

// answerer is a model that keeps what it was asked.
type answerer struct{ asked *model.Request }

func (a *answerer) Stream(_ context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	a.asked = r
	return func(yield func(model.Part, error) bool) {
		_ = yield(model.TextDelta{Delta: "ok"}, nil) && yield(model.Finish{Reason: "stop"}, nil)
	}
}

func TestModelIsGivenLargeMessagesWhole(t *testing.T) {
	inWorld(t, func(w *world) {
		m := &answerer{}
		w.start(&agent.Agent{Name: "a", Model: m}, nil)
		text, url := strings.Repeat("long ", 100<<10), "data:,"+strings.Repeat("x", 300<<10)
		said := say("u1", text)
		said.Message.Parts = append(said.Message.Parts, chunk.Part{Type: chunk.PartFile, URL: url, MediaType: "text/plain"})
		w.command("s", said)
		w.settled("s")
		if parts := m.asked.Messages[0].Parts; parts[0].Text != text || parts[1].URL != url {
			t.Errorf("the model got %d bytes of text and %d of the file", len(parts[0].Text), len(parts[1].URL))
		}
	})
}
