package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool/server/frontend"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

func TestSegment(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	e := k.say("s", "u1", "hi")
	if got := e.res.Header.Get("X-Session-Id"); got != "s" {
		t.Errorf("X-Session-Id = %q", got)
	}
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Vercel-Ai-Ui-Message-Stream": "v1", "X-Accel-Buffering": "no"} {
		if got := e.res.Header.Get(name); got != want {
			t.Errorf("%s = %q", name, got)
		}
	}
	o := k.own("s")
	o.start("u1")
	o.text("Hel", "lo ", "world")
	o.finish()
	list := e.all()
	if textOf(list) != "Hello world" {
		t.Errorf("text = %q", textOf(list))
	}
	if list[0].Data != `{"type":"start","messageId":"answer-u1"}` || list[len(list)-1].Data != "[DONE]" {
		t.Errorf("frames = %s", datas(list))
	}

	// A repeat is the same segment, and nothing is executed.
	again := k.say("s", "u1", "hi").all()
	if datas(again) != datas(list) {
		t.Errorf("repeated POST:\n%s\nwant:\n%s", datas(again), datas(list))
	}
}

// TestRepeatedPostRunning: the second of two equal POSTs attaches to the first
// one's run.
func TestRepeatedPostRunning(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	first := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("a")
	second := k.say("s", "u1", "hi")
	o.text("b")
	o.finish()
	a, b := first.all(), second.all()
	if datas(a) != datas(b) || textOf(a) != "ab" {
		t.Errorf("first:\n%s\nsecond:\n%s", datas(a), datas(b))
	}
}

// TestCursor: a reader that comes back after any event gets exactly the rest.
func TestCursor(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	list := k.turn("s", "u1", "one ", "two ", "three")
	seen := 0
	for i, e := range list {
		// An id holds until the next one; only the event that brings it counts.
		if e.ID == "" || i > 0 && list[i-1].ID == e.ID {
			continue
		}
		seen++
		if i == len(list)-1 {
			k.status(http.StatusNoContent, "GET", "/api/chat/s/stream", "", "Last-Event-ID", e.ID)
			continue
		}
		rest := k.stream("GET", "/api/chat/s/stream", "", "Last-Event-ID", e.ID).all()
		if want := datas(list[i+1:]); datas(rest) != want {
			t.Errorf("after %s:\n%s\nwant:\n%s", e.ID, datas(rest), want)
		}
		byParam := k.stream("GET", "/api/chat/s?after="+e.ID, "").all()
		if datas(byParam) != datas(rest) {
			t.Errorf("?after=%s differs from the header", e.ID)
		}
	}
	if seen < 5 {
		t.Fatalf("only %d ids in %v", seen, list)
	}
}

// TestReplay: a reader without a position, attached at any moment, ends with the
// whole text; cut anywhere, it goes on with its cursor.
func TestReplay(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	post := k.say("s", "u1", "hi")
	o := k.own("s")
	waiting := k.stream("GET", "/api/chat/s/stream", "")
	o.start("u1")
	o.text("one ", "two ")
	middle := k.stream("GET", "/api/chat/s", "")
	head := middle.until("text-delta")
	o.text("three")
	o.finish()
	whole := post.all()
	if got := textOf(waiting.all()); got != "one two three" {
		t.Errorf("early reader: %q", got)
	}
	tail := middle.all()
	all := append(head, tail...)
	if got := textOf(all); got != "one two three" {
		t.Errorf("reader of the middle: %q in %s", got, datas(all))
	}
	for i, e := range all[:len(all)-1] {
		if e.ID == "" {
			t.Fatalf("event %d of the replay has no id: %v", i, all)
		}
		rest := k.stream("GET", "/api/chat/s/stream", "", "Last-Event-ID", e.ID).all()
		if !strings.HasPrefix(e.ID, "p") && textOf(rest) == "" && !strings.Contains(datas(rest), "finish") {
			t.Errorf("after %s: %s", e.ID, datas(rest))
		}
		if got := textOf(all[:i+1]) + textOf(rest); got != "one two three" {
			t.Errorf("cut after %s: %q", e.ID, got)
		}
	}
	// Settled, within the grace: the whole message, compacted.
	settled := k.stream("GET", "/api/chat/s/stream", "").all()
	if textOf(settled) != "one two three" || len(settled) >= len(whole) {
		t.Errorf("settled replay: %s", datas(settled))
	}
}

func TestReplayGrace(t *testing.T) {
	t.Parallel()
	o := noGrace()
	k := newKit(t, &o)
	k.turn("s", "u1", "done")
	k.status(http.StatusNoContent, "GET", "/api/chat/s/stream", "")
	k.status(http.StatusNoContent, "GET", "/api/chat/unknown/stream", "")
	k.status(http.StatusNoContent, "GET", "/api/chat/s/any-chat-id/stream", "")
	if res := k.do("HEAD", "/api/chat/s", ""); res.StatusCode != http.StatusNoContent {
		t.Errorf("HEAD: %s", res.Status)
	}
}

// TestPageLoad: the table of what a page built from a snapshot gets.
func TestPageLoad(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	at := func() string { // position of a snapshot taken now
		return fmt.Sprint(k.snapshot("s").StreamSequence)
	}
	first := k.say("s", "u1", "hi")
	o := k.own("s")
	waiting := at()
	o.start("u1")
	o.text("one ")
	live := at()
	o.text("two")
	o.finish()
	first.all()
	quiet := at()

	for name, n := range map[string]string{"waiting": waiting, "live": live} {
		for _, header := range []string{"X-Resume-From-Sequence", "X-Resume-At"} {
			if got := textOf(k.stream("GET", "/api/chat/s", "", header, n).all()); got != "one two" {
				t.Errorf("%s at %s: %q", name, n, got)
			}
		}
	}
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", quiet)

	second := k.say("s", "u2", "more")
	o = k.own("s")
	o.start("u2")
	o.text("later")
	// A page that has been open since the first turn comes back to the second one, which
	// is shown to it from its start, live and for the grace period after.
	later := map[string]*events{}
	for name, n := range map[string]string{"waiting": waiting, "live": live, "quiet": quiet} {
		later[name] = k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", n)
	}
	o.finish()
	second.all()
	for name, n := range map[string]string{"waiting": waiting, "live": live, "quiet": quiet} {
		for when, s := range map[string]*events{"live": later[name], "over": k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", n)} {
			if list := s.all(); textOf(list) != "later" || list[0].Data != `{"type":"start","messageId":"answer-u2"}` {
				t.Errorf("%s at %s, a later turn that is %s: %s", name, n, when, datas(list))
			}
		}
	}
	// In between, the message of the third turn waits.
	third := k.say("s", "u3", "more yet")
	next := k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", quiet)
	o = k.own("s")
	o.start("u3")
	o.text("at last")
	o.finish()
	third.all()
	if got := textOf(next.all()); got != "at last" {
		t.Errorf("a later turn that is yet to begin: %q", got)
	}
	k.problem(http.StatusConflict, "cursor_ahead", "GET", "/api/chat/s", "", "X-Resume-From-Sequence", "9999")
	// Malformed headers are ignored: a replay.
	if got := textOf(k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", "NaN").all()); got != "at last" {
		t.Errorf("malformed header: %q", got)
	}
}

// TestPageLoadBeyondTheGrace: a later turn that is long over is nothing to show. The turn
// that the page lacks is shown to it, whenever it comes.
func TestPageLoadBeyondTheGrace(t *testing.T) {
	t.Parallel()
	options := noGrace()
	k := newKit(t, &options)
	first := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("one ")
	live := fmt.Sprint(k.snapshot("s").StreamSequence)
	o.text("two")
	o.finish()
	first.all()
	quiet := fmt.Sprint(k.snapshot("s").StreamSequence)
	k.turn("s", "u2", "later")
	k.status(http.StatusNoContent, "GET", "/api/chat/s", "", "X-Resume-From-Sequence", quiet)
	if got := textOf(k.stream("GET", "/api/chat/s", "", "X-Resume-From-Sequence", live).all()); got != "one two" {
		t.Errorf("live at the position: %q", got)
	}
}

// TestTurnIsolation: nothing of an earlier turn is in a later one's stream.
func TestTurnIsolation(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "first answer")
	post := k.say("s", "u2", "again")
	o := k.own("s")
	o.start("u2")
	o.text("second ")
	replay := k.stream("GET", "/api/chat/s/stream", "")
	o.text("answer")
	o.finish()
	for name, list := range map[string][]event{
		"segment": post.all(),
		"replay":  replay.all(),
		"settled": k.stream("GET", "/api/chat/s/stream", "").all(),
	} {
		if textOf(list) != "second answer" || strings.Contains(datas(list), "answer-u1") {
			t.Errorf("%s: %s", name, datas(list))
		}
	}
	if snap := k.snapshot("s"); len(snap.Messages) != 4 || snap.Messages[3].ID != "answer-u2" {
		t.Errorf("messages: %+v", snap.Messages)
	}
}

// TestCounted: a client that counts frames gets the rest of its run, and the
// newest frames by a negative start.
func TestCounted(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u0", "before")
	e := k.say("s", "u1", "hi")
	run := e.res.Header.Get("X-Workflow-Run-Id")
	if run == "" {
		t.Fatal("no x-workflow-run-id")
	}
	o := k.own("s")
	o.start("u1")
	o.text("a", "b", "c")
	o.finish()
	list := e.all()
	frames := list[:len(list)-1] // [DONE] is not counted
	for n := range len(frames) {
		s := k.stream("GET", fmt.Sprintf("/api/chat/%s/stream?startIndex=%d", run, n), "")
		if got, want := datas(s.all()), datas(list[n:]); got != want {
			t.Errorf("from %d:\n%s\nwant:\n%s", n, got, want)
		}
		if tail := s.res.Header.Get("X-Workflow-Stream-Tail-Index"); tail != fmt.Sprint(len(frames)-1) {
			t.Errorf("tail = %s of %d frames", tail, len(frames))
		}
	}
	s := k.stream("GET", "/api/chat/"+run+"/stream?startIndex=-2", "")
	if got, want := datas(s.all()), datas(list[len(list)-3:]); got != want {
		t.Errorf("from -2:\n%s\nwant:\n%s", got, want)
	}
	k.problem(http.StatusBadRequest, "cursor_malformed", "GET", "/api/chat/s/stream?startIndex=x", "")
}

// TestFailed: a failed run is told on the stream, within the grace.
func TestFailed(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	e := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("half")
	o.end("failed", "the model broke")
	list := e.all()
	if !strings.Contains(datas(list), `"errorText"`) || list[len(list)-1].Data != "[DONE]" {
		t.Errorf("segment: %s", datas(list))
	}
	if got := k.stream("GET", "/api/chat/s/stream", "").all(); !strings.Contains(datas(got), "errorText") {
		t.Errorf("replay: %s", datas(got))
	}
	snap := k.snapshot("s")
	if snap.Status != "failed" || snap.Error == nil {
		t.Errorf("snapshot: %+v", snap)
	}
	head := fmt.Sprint(snap.StreamSequence)
	k.problem(http.StatusGone, "stream_failed", "GET", "/stream/s", "", "Last-Event-ID", head)
	if got := k.stream("GET", "/stream/s", "").all(); !strings.HasPrefix(got[len(got)-1].Data, `{"type":"fail"`) {
		t.Errorf("native: %s", datas(got))
	}
}

func TestNative(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/unknown", "")
	k.turn("s", "u1", "a", "b")
	all := k.stream("GET", "/stream/s", "").all()
	last := all[len(all)-1]
	if last.Data != `{"type":"end"}` {
		t.Errorf("end: %v", last)
	}
	for i, e := range all[:len(all)-1] {
		if e.ID != fmt.Sprint(i+1) {
			t.Fatalf("event %d has id %q", i, e.ID)
		}
		rest := k.stream("GET", "/stream/s?after="+e.ID, "").all()
		if datas(rest) != datas(all[i+1:]) {
			t.Errorf("after %s: %s", e.ID, datas(rest))
		}
	}
	for i := range all {
		after := fmt.Sprint("/stream/s?framing=lean&after=", i)
		if lean := k.stream("GET", after, "").all(); fmt.Sprint(lean) != fmt.Sprint(all[min(i, len(all)-1):]) {
			t.Errorf("%s: %v", after, lean)
		}
	}
	framed := k.stream("GET", "/stream/s?framing=event", "").all()
	if !strings.HasPrefix(framed[0].Data, `{"type":"chunk","chunk":{`) {
		t.Errorf("framing=event: %v", framed[0])
	}
	for _, after := range []string{"9999", "3.7"} {
		if got := k.stream("GET", "/stream/s?after="+after, "").all(); len(got) != 1 || !strings.HasPrefix(got[0].Data, `{"type":"resync"`) {
			t.Errorf("after=%s: %v", after, got)
		}
	}
	k.problem(http.StatusBadRequest, "cursor_malformed", "GET", "/stream/s?after=-1", "")
	k.problem(http.StatusBadRequest, "invalid", "GET", "/stream/s?follow=me", "")

	// Following goes on through the next turn.
	follow := k.stream("GET", "/stream/s?follow=session&after="+fmt.Sprint(len(all)-1), "")
	k.turn("s", "u2", "c")
	follow.until(`"run_finished"`)
	_ = follow.res.Body.Close()

	want := fmt.Sprintf(`"latestSequence":%d,"totalChunks":%[1]d`, len(k.log("s")))
	if data := k.status(http.StatusOK, "GET", "/stream/s/info", ""); !strings.Contains(string(data), `"status":"ended"`) || !strings.Contains(string(data), want) {
		t.Errorf("info: %s, want %s", data, want)
	}
	k.problem(http.StatusNotFound, "not_found", "GET", "/stream/unknown/info", "")
}

// TestDrain: readers are cut without a terminal frame and come back to the same
// message; the server takes no new ones.
func TestDrain(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	post := k.say("s", "u1", "hi")
	o := k.own("s")
	o.start("u1")
	o.text("one ")
	got := post.until("text-delta")
	native := k.stream("GET", "/stream/s", "")
	native.until("text_delta")
	if err := k.srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	rest, err := post.rest()
	if err == io.EOF {
		t.Errorf("the chat stream was closed as if it were complete: %s", datas(rest))
	}
	if strings.Contains(datas(rest), "finish") {
		t.Errorf("a terminal frame was sent: %s", datas(rest))
	}
	if _, err := native.rest(); err == io.EOF {
		t.Error("the native stream was closed as if it were complete")
	}
	k.problem(http.StatusServiceUnavailable, "draining", "GET", "/api/chat/s/stream", "")
	k.problem(http.StatusServiceUnavailable, "draining", "GET", "/readyz", "")
	k.status(http.StatusOK, "GET", "/healthz", "")

	// Another server over the same logs: the run never noticed.
	other := k.beside(nil)
	o.text("two")
	o.finish()
	back := other.stream("GET", "/api/chat/s/stream", "", "Last-Event-ID", got[len(got)-1].ID).all()
	if textOf(got)+textOf(back) != "one two" {
		t.Errorf("%q + %q", textOf(got), textOf(back))
	}
}

// TestCountedBehindSilentRecords: a reader that counts is answered at once, also
// where the log's latest record is one that its wire does not show.
func TestCountedBehindSilentRecords(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	post := k.say("s", "u1", "hi")
	run := post.res.Header.Get(frontend.HeaderWorkflowRun)
	o := k.own("s")
	o.start("u1")
	o.text("one ")
	post.until("one ")
	for range 3 { // more than a page
		reports := make([]chunk.Chunk, 400)
		for i := range reports {
			reports[i] = &chunk.UsageReport{}
		}
		o.commit(spool.Row{}, nil, reports...)
	}
	again := k.restarted().stream("GET", "/api/chat/"+run+"/stream?startIndex=0", "")
	again.until("one ")
}

// The events that end a native stream have an id of their own: the position behind the
// last record, at which the same end is read again.
func TestNativeEndsHaveIDs(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("ended", "u1", "a")
	k.say("failed", "u1", "hi")
	o := k.own("failed")
	o.start("u1")
	o.text("half")
	o.end("failed", "the model broke")
	for session, want := range map[string]string{"ended": `{"type":"end"}`, "failed": `{"type":"fail","error":"the model broke"}`} {
		head := fmt.Sprint(k.snapshot(session).StreamSequence)
		body, err := io.ReadAll(k.stream("GET", "/stream/"+session, "").res.Body)
		if err != nil || !strings.HasSuffix(string(body), "\n\nid: "+head+"\ndata: "+want+"\n\n") {
			t.Errorf("%s at %s: %s, %v", session, head, body, err)
		}
	}
	again := k.stream("GET", "/stream/ended", "", "Last-Event-ID", fmt.Sprint(k.snapshot("ended").StreamSequence)).all()
	if datas(again) != `{"type":"end"}`+"\n" {
		t.Errorf("read again: %s", datas(again))
	}
}
