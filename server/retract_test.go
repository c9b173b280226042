package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// discard takes the open model phase back and begins the next step.
func (o *owner) discard() {
	o.k.Helper()
	o.commit(spool.Row{}, nil, &chunk.StepDiscarded{StepID: o.stepID(), Reason: "crash_recovery"},
		&chunk.StreamResync{Reason: "crash_recovery"})
	o.nextStep()
}

// TestRetraction: what was shown and taken back is in nobody's message: ai 7
// readers are told, others are cut and refused at a cursor inside it.
func TestRetraction(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	six := k.say("s", "u1", "hi")
	seven := k.stream("GET", "/api/chat/s/stream?ui=7", "")
	o := k.own("s")
	o.start("u1")
	o.text("dead ", "words")
	seen := six.until(`"words"`)
	inside := seen[len(seen)-1].ID
	o.discard()
	o.text("living words")

	rest, err := six.rest()
	if err == io.EOF || !strings.Contains(datas(rest), "data-stream-resync") || strings.Contains(datas(rest), "living") {
		t.Errorf("ai 6: %v after %s", err, datas(rest))
	}
	for _, e := range rest {
		if e.ID != inside {
			t.Errorf("the cursor moved out of the discarded phase: %v", e)
		}
	}
	k.problem(http.StatusConflict, "cursor_retracted", "GET", "/api/chat/s/stream", "", "Last-Event-ID", inside)
	again := k.stream("GET", "/api/chat/s/stream", "")
	spliced := k.stream("GET", "/api/chat/s/stream?ui=7", "", "Last-Event-ID", inside)
	o.finish()

	if got := textOf(again.all()); got != "living words" {
		t.Errorf("ai 6, back again: %q", got)
	}
	whole := seven.all()
	_, after, found := strings.Cut(datas(whole), `{"type":"reset-step"}`)
	if !found || !strings.Contains(after, "living words") || strings.Contains(after, "dead") {
		t.Errorf("ai 7: %s", datas(whole))
	}
	if got := datas(spliced.all()); !strings.HasPrefix(got, `{"type":"reset-step"}`) || !strings.Contains(got, "living words") {
		t.Errorf("ai 7, from inside the phase: %s", got)
	}
	// The native wire shows everything.
	if got := datas(k.stream("GET", "/stream/s", "").all()); !strings.Contains(got, `"dead "`) || !strings.Contains(got, `"step_discarded"`) {
		t.Errorf("native: %s", got)
	}
}

// TestTrimmed: a cursor below the trace floor is told so; a replay is built from
// what is kept.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	list := k.turn("s", "u1", "one ", "two")
	var middle string
	for _, e := range list {
		if strings.Contains(e.Data, `"one "`) {
			middle = e.ID
		}
	}
	g, err := k.logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Command(t.Context(), spool.Row{}, &chunk.StopRequested{CommandID: "late"}); err != nil {
		t.Fatal(err)
	}
	head := k.snapshot("s").StreamSequence
	if err := k.store.Trim(t.Context(), "s", head, 0); err != nil {
		t.Fatal(err)
	}
	k.problem(http.StatusConflict, "cursor_trimmed", "GET", "/api/chat/s/stream", "", "Last-Event-ID", middle)
	// A reader that has seen the end lacks nothing.
	k.status(http.StatusNoContent, "GET", "/api/chat/s/stream", "", "Last-Event-ID", list[len(list)-1].ID)
	if got := k.stream("GET", "/stream/s?after="+middle, "").all(); len(got) != 1 || got[0].Data != `{"type":"resync","reason":"trimmed"}` {
		t.Errorf("native: %v", got)
	}
	fresh := k.restarted()
	if got := textOf(fresh.stream("GET", "/api/chat/s/stream", "").all()); got != "one two" {
		t.Errorf("replay: %q", got)
	}
	// A repeated POST gets the whole message, since the segment is gone.
	if got := textOf(fresh.say("s", "u1", "question u1").all()); got != "one two" {
		t.Errorf("repeated POST: %q", got)
	}
}

// TestProducer: a process in another language writes a run over HTTP.
func TestProducer(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	var run struct {
		Session, RunID string
		Epoch, TTL     json.Number
	}
	if err := json.Unmarshal(k.status(http.StatusOK, "POST", "/stream/x?claim&agent=python", ""), &run); err != nil {
		t.Fatal(err)
	}
	if run.Session != "x" || run.RunID == "" || run.TTL == "" {
		t.Fatalf("claim: %+v", run)
	}
	k.problem(http.StatusConflict, "busy", "POST", "/stream/x?claim", "")
	epoch := run.Epoch.String()
	write := func(status int, code, seq, body string) []byte {
		t.Helper()
		data := k.status(status, "POST", "/stream/x", body, "Producer-Epoch", epoch, "Producer-Seq", seq)
		if code != "" && !strings.Contains(string(data), `"code":"`+code+`"`) {
			t.Errorf("seq %s: %s, want %s", seq, data, code)
		}
		return data
	}
	reader := k.stream("GET", "/api/chat/x/stream", "")
	write(200, "", "0", `{"type":"text_delta","delta":"one "}`)
	first := write(200, "", "1", `[{"type":"text_delta","delta":"two "},{"type":"text_delta","delta":"three "}]`)
	again := write(200, "", "1", `[{"type":"text_delta","delta":"two "},{"type":"text_delta","delta":"three "}]`)
	var a, b struct{ First, Last uint64 }
	if json.Unmarshal(first, &a) != nil || json.Unmarshal(again, &b) != nil || a.Last == 0 || a.Last != b.Last {
		t.Errorf("a repeat was answered %s, first %s", again, first)
	}
	write(409, "producer_gap", "9", `{"type":"text_delta","delta":"x"}`)
	write(422, "chunk_not_allowed", "3", `{"type":"run_finished","outcome":"completed"}`)
	write(422, "chunk_not_allowed", "3", `{"type":"user_message"}`)
	write(400, "malformed_json", "3", `{"type":`)
	for _, bad := range []string{`{"type":"text_delta"}`, `{"type":"text_delta","delta":7}`, `{"type":"custom","data":1}`,
		`{"type":"file","mediaType":"image/png"}`, `{"type":"tool_start","toolName":"x"}`, `{}`, `7`} {
		write(400, "invalid_chunk", "3", bad)
	}
	write(422, "chunk_not_allowed", "3", `{"type":"no_such_kind"}`)
	k.problem(http.StatusBadRequest, "invalid", "POST", "/stream/x", `{"type":"text_delta","delta":"x"}`)
	write(200, "", "3", "{\"type\":\"text_delta\",\"delta\":\"four\"}\n{\"type\":\"end\"}\n")
	if got := reader.all(); textOf(got) != "one two three four" || got[len(got)-1].Data != "[DONE]" {
		t.Errorf("reader: %s", datas(got))
	}
	write(403, "producer_fenced", "5", `{"type":"text_delta","delta":"late"}`)
}
