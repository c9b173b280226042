package agent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
)

func TestModelIsAskedAgain(t *testing.T) {
	busy := &model.Error{Code: model.CodeOverloaded, Message: "busy", Retryable: true}
	unknown := &model.Error{Code: model.CodeUnknown, Message: "what?", Retryable: true}
	refused := &model.Error{Code: model.CodeAuthentication, Message: "no"}
	patient := &model.Error{Code: model.CodeRateLimited, Message: "tomorrow", Retryable: true, RetryAfter: time.Hour}
	word := []model.Part{model.TextDelta{Delta: "h"}}
	for name, tt := range map[string]struct {
		answers  []scripted.Step
		keep     bool
		requests int
		want     error
		records  string
	}{
		"passes": {[]scripted.Step{{Err: busy}, {Err: busy}, text("hi")}, false, 3, nil,
			"step_started custom custom text_delta assistant_message step_committed checkpoint_created"},
		"stays":         {[]scripted.Step{{Err: busy}}, false, 3, busy, "step_started custom custom"},
		"not retryable": {[]scripted.Step{{Err: refused}}, false, 1, refused, "step_started"},
		"too long":      {[]scripted.Step{{Err: patient}}, false, 1, patient, "step_started"},
		"cut at once": {[]scripted.Step{{}, text("hi")}, false, 2, nil,
			"step_started custom text_delta assistant_message step_committed checkpoint_created"},
		"after a word": {[]scripted.Step{{Parts: word, Err: busy}, text("hi")}, false, 2, nil,
			"step_started text_delta step_discarded stream_resync custom step_started text_delta assistant_message step_committed checkpoint_created"},
		"after a word, not wanted": {[]scripted.Step{{Parts: word, Err: busy}}, true, 1, busy, "step_started text_delta"},
		"after a word, unknown":    {[]scripted.Step{{Parts: word, Err: unknown}}, false, 1, unknown, "step_started text_delta"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &answers{steps: tt.answers}
			r, l := begin(t, "hi")
			_, err := run(t.Context(), &agent.Agent{Name: "a", Model: m, FailPartial: tt.keep}, r)
			if !errors.Is(err, tt.want) || len(m.requests) != tt.requests {
				t.Errorf("%v after %d requests", err, len(m.requests))
			}
			if got := l.kinds(); got != tt.records {
				t.Errorf("got %s", got)
			}
			if err == nil && l.fold.Messages[1].Text() != "hi" {
				t.Errorf("the message says %q", l.fold.Messages[1].Text())
			}
		})
	}
}

// A call of the retracted words leaves no trace: its id is free again, and its
// usage is counted.
func TestModelIsAskedAgainAfterACall(t *testing.T) {
	broken := &model.Error{Code: model.CodeTruncated, Message: "cut", Retryable: true}
	first := scripted.Step{Err: broken, Parts: []model.Part{model.UsageUpdate{Usage: chunk.Usage{InputTokens: 10}},
		model.ToolCallStart{ID: "c", Name: "noop"}, model.ToolCallDelta{ID: "c", Delta: "{"}}}
	second := toolCall("c", "noop", "{}")
	second.Parts = slices.Insert(second.Parts, 0, model.Part(model.UsageUpdate{Usage: chunk.Usage{InputTokens: 7}}))
	m := &answers{steps: []scripted.Step{first, second, text("done")}}
	r, l := begin(t, "hi")
	if _, err := run(t.Context(), &agent.Agent{Name: "a", Model: m}, r); err != nil {
		t.Fatal(err)
	}
	if r.Info.Usage.InputTokens != 17 {
		t.Errorf("%+v", r.Info.Usage)
	}
	var ids []string
	for _, p := range l.fold.Messages[1].Parts {
		if p.Tool != nil {
			ids = append(ids, p.Tool.CallID)
		}
	}
	if !slices.Equal(ids, []string{"c"}) {
		t.Errorf("calls %v", ids)
	}
}

func TestRetryWaits(t *testing.T) {
	waits := func(runID string, e *model.Error) (waits []time.Duration) {
		r, _ := begin(t, "hi")
		r.Info.RunID = runID
		r.Seams.Sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
		_, _ = run(t.Context(), &agent.Agent{Name: "a", Model: &answers{steps: []scripted.Step{{Err: e}}}, MaxRetries: 8}, r)
		return waits
	}
	busy := &model.Error{Code: model.CodeOverloaded, Retryable: true}
	got := waits("r1", busy)
	for i, d := range got {
		full := min(time.Second<<i, 30*time.Second)
		if d < full/2 || d >= full {
			t.Errorf("wait %d: %v of %v", i, d, full)
		}
	}
	if len(got) != 8 || !slices.Equal(got, waits("r1", busy)) {
		t.Error("the same run does not wait the same:", got)
	}
	if slices.Equal(got, waits("r2", busy)) {
		t.Error("another run waits the same:", got)
	}
	after := waits("r1", &model.Error{Code: model.CodeRateLimited, Retryable: true, RetryAfter: time.Minute})
	for _, d := range after {
		if d < time.Minute || d > 75*time.Second {
			t.Errorf("asked for a minute, got %v", d)
		}
	}
}

// What is shown of a repeat says why, and is no part of the message.
func TestRetryIsShown(t *testing.T) {
	busy := &model.Error{Code: model.CodeOverloaded, Message: "busy", Retryable: true}
	r, l := begin(t, "hi")
	if _, err := run(t.Context(), &agent.Agent{Name: "a", Model: &answers{steps: []scripted.Step{{Err: busy}, text("hi")}}}, r); err != nil {
		t.Fatal(err)
	}
	shown := find[*chunk.Custom](l)[0]
	if shown.EventName != "model-retry" || !shown.Transient || !strings.HasPrefix(string(shown.Data), `{"attempt":1,"code":"provider_overloaded","delayMs":`) {
		t.Errorf("%+v %s", shown, shown.Data)
	}
	for _, p := range l.fold.Messages[1].Parts {
		if p.Type == chunk.PartData {
			t.Errorf("it is in the message: %+v", p)
		}
	}
}
