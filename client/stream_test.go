package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/native"
)

// cutter breaks each connection of a stream after so many events, torn in the middle of
// the next one if torn is set.
type cutter struct {
	http.ResponseWriter
	left int
	torn bool
}

func cutting(after int, torn bool) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "/snapshot") {
				w = &cutter{w, after + 1, torn} // the first is the comment with which a stream begins
			}
			h.ServeHTTP(w, r)
		})
	}
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		end := bytes.Index(rest, []byte("\n\n"))
		if end < 0 {
			_, _ = c.ResponseWriter.Write(rest)
			break
		}
		if c.left == 0 {
			if c.torn {
				_, _ = c.ResponseWriter.Write(rest[:end/2])
			}
			_ = http.NewResponseController(c.ResponseWriter).Flush()
			panic(http.ErrAbortHandler)
		}
		c.left--
		_, _ = c.ResponseWriter.Write(rest[:end+2])
		rest = rest[end+2:]
	}
	return len(p), nil
}

func events(t *testing.T, st *client.Stream) (list []string) {
	t.Helper()
	var lean native.Decoder
	for {
		e, err := st.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%v after %d events", err, len(list))
		}
		if e.Snapshot != nil {
			t.Fatal("a snapshot, though nothing was lost")
		}
		if bytes.HasPrefix(e.Data, []byte(`{"type":"chunk","chunk":`)) || bytes.HasPrefix(e.Data, []byte("[")) && e.Name == "" && string(e.Data) != "[DONE]" {
			m, err := lean.Decode(e.Data)
			if err != nil {
				t.Fatalf("%s: %v", e.Data, err)
			}
			e.Data = fmt.Appendf(nil, "%d %s", m.Seq, m.Chunk)
		}
		list = append(list, e.ID+" "+e.Name+" "+string(e.Data))
	}
}

// profiles are the wires, with the parameters that change what they send.
func profiles() map[string]client.AttachOptions {
	list := map[string]client.AttachOptions{"aisdk 7": {Wire: aisdk.Wire(aisdk.Options{}), Query: url.Values{"ui": {"7"}}},
		"native event": {Wire: native.Wire(), Query: url.Values{"framing": {"event"}}},
		"native lean":  {Wire: native.Wire(), Query: url.Values{"framing": {"lean"}}}}
	for _, w := range wires.List(wires.Options{}) {
		list[w.Name] = client.AttachOptions{Wire: w}
	}
	return list
}

// A stream whose connection is cut after every so many events gives what one gives that
// was never cut, on every wire, byte for byte.
func TestEveryCutOnEveryWire(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil, true)
	s := k.client(nil).Session("s 1")
	k.send(s, "talk")
	if end, _ := k.ended(s); end.Status != chunk.StatusEnded {
		t.Fatalf("%+v", end)
	}
	for name, o := range profiles() {
		want := events(t, s.Attach(t.Context(), o))
		if len(want) < 4 {
			t.Fatalf("%s: only %d events", name, len(want))
		}
		for after := 1; after <= len(want); after++ {
			for _, torn := range []bool{false, true} {
				if after == 1 && !strings.HasPrefix(name, "native") {
					continue // one record may be two frames, of which the first alone is no progress
				}
				k.through(cutting(after, torn))
				got := events(t, s.Attach(t.Context(), o))
				k.through(nil)
				// The terminal event of a turn that has ended is not sent again to a client that has all but it.
				if len(got) < len(want)-1 || strings.Join(got, "\n") != strings.Join(want[:len(got)], "\n") {
					t.Fatalf("%s, cut after %d, torn %t: %d events\n%s\nwant %d\n%s", name, after, torn, len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
				}
			}
		}
	}
}

// The same while the answer is being written, cut at each record as it comes.
func TestEveryCutOfALiveLog(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil, true)
	for after := 1; after <= 12; after++ {
		s := k.client(nil).Session(fmt.Sprintf("live-%d", after))
		k.through(cutting(after, after%2 == 0))
		l := s.Log(t.Context(), client.LogOptions{Wait: true})
		k.send(s, "talk")
		got := k.rest(l)
		k.through(nil)
		end, want := k.ended(s)
		if l.Ending() != end || len(got) != len(want) {
			t.Fatalf("cut after %d: %d entries, %+v; want %d, %+v", after, len(got), l.Ending(), len(want), end)
		}
		for i := range want {
			if got[i].Seq != uint64(i+1) || string(got[i].Data) != string(want[i].Data) || got[i].Type != want[i].Type {
				t.Fatalf("cut after %d: entry %d is %d %s, want %s", after, i, got[i].Seq, got[i].Data, want[i].Data)
			}
		}
		if c := l.Cursor(); c.Seq != want[len(want)-1].Seq {
			t.Errorf("the cursor is %v", c)
		}
		again := s.Log(t.Context(), client.LogOptions{After: spool.Cursor{Seq: 3}})
		if rest := k.rest(again); len(rest) != len(want)-3 || rest[0].Seq != 4 {
			t.Errorf("after 3: %d entries", len(rest))
		}
	}
}

// A server of an earlier version refuses the framing that a log is read in. The log is read
// all the same, also if the server is replaced by an earlier one in the middle.
func TestLogOfAnEarlierServer(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil, true)
	s := k.client(nil).Session("earlier")
	k.send(s, "talk")
	end, want := k.ended(s)
	for _, replaced := range []bool{false, true} {
		var refused, given atomic.Int64
		k.through(func(next http.Handler) http.Handler {
			cut := cutting(3, false)(next)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case replaced && given.Add(1) == 1:
					cut.ServeHTTP(w, r)
				case r.URL.Query().Get("framing") == "lean":
					refused.Add(1)
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, `{"error":{"code":"invalid","message":"framing must be bare or event"}}`)
				default:
					next.ServeHTTP(w, r)
				}
			})
		})
		l := s.Log(t.Context(), client.LogOptions{})
		got := k.rest(l)
		if l.Ending() != end || refused.Load() != 1 || !slices.EqualFunc(got, want, func(a, b client.Entry) bool { return a.Seq == b.Seq && string(a.Data) == string(b.Data) }) {
			t.Errorf("replaced %v: %d entries, %+v; want %d, %+v; %d requests were refused", replaced, len(got), l.Ending(), len(want), end, refused.Load())
		}
	}
}

// What a position that cannot be served becomes: a typed error, or a snapshot and what
// follows it.
func TestResync(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := newKit(t, nil, true)
	s := k.client(nil).Session("s")
	k.send(s, "talk")
	_, whole := k.ended(s)
	said, head := textOf(whole), whole[len(whole)-1].Seq

	ahead := s.Log(ctx, client.LogOptions{After: spool.Cursor{Seq: 9999}})
	if _, err := ahead.Next(); !errors.Is(err, spool.ErrCursorAhead) {
		t.Errorf("ahead: %v", err)
	}
	if _, err := s.Attach(ctx, client.AttachOptions{Wire: aisdk.Wire(aisdk.Options{}), After: "9999"}).Next(); !errors.Is(err, spool.ErrCursorAhead) {
		t.Errorf("ahead on the AI SDK wire: %v", err)
	}
	var e *client.Error
	if _, err := s.Attach(ctx, client.AttachOptions{After: "x"}).Next(); !errors.Is(err, spool.ErrCursorMalformed) || !errors.As(err, &e) || e.Status != http.StatusBadRequest || e.Hint == "" {
		t.Errorf("malformed: %v", err)
	}
	if err := k.store.Trim(ctx, "s", head, 0); err != nil {
		t.Fatal(err)
	}
	trimmed := s.Log(ctx, client.LogOptions{After: spool.Cursor{Seq: 3}})
	if _, err := trimmed.Next(); !errors.Is(err, spool.ErrTrimmed) {
		t.Errorf("trimmed: %v", err)
	}

	// From the start: what remains, whatever is cut, with its sequences.
	kept := k.rest(s.Log(ctx, client.LogOptions{}))
	if len(kept) == 0 || len(kept) >= len(whole) {
		t.Errorf("%d of %d records remain", len(kept), len(whole))
	}
	k.through(cutting(2, false))
	for i, e := range k.rest(s.Log(ctx, client.LogOptions{})) {
		if e.Seq == 0 {
			if e.Type != chunk.TypeTraceOmitted {
				t.Errorf("%s has no sequence", e.Data)
			}
			continue
		}
		if want := whole[e.Seq-1]; e.Seq != kept[i].Seq || string(e.Data) != string(want.Data) || e.Class != chunk.Kept {
			t.Errorf("record %d is %s, want %s", e.Seq, e.Data, want.Data)
		}
	}
	k.through(nil)

	// With Resync: the snapshot has everything, and then the next turn comes.
	for name, o := range profiles() {
		o.Resync, o.After = true, "3"
		if strings.HasPrefix(name, "native") {
			o.Follow = true
		} else {
			o.After = "9999"
		}
		st := s.Attach(ctx, o)
		first, err := st.Next()
		if err != nil || first.Snapshot == nil || len(first.Snapshot.Messages)%2 != 0 {
			t.Fatalf("%s: %+v, %v", name, first, err)
		}
		answer := first.Snapshot.Messages[1] // of the first turn
		text := ""
		for _, p := range answer.Parts {
			if p.Type == "text" {
				text += p.Text
			}
		}
		if text != said || first.Snapshot.StreamSequence < head {
			t.Errorf("%s: the snapshot says %q at %d, want %q", name, text, first.Snapshot.StreamSequence, said)
		}
		if o.Follow {
			k.send(s, "talk")
		}
		next, err := st.Next()
		_ = st.Close()
		if o.Follow {
			if err != nil || !strings.Contains(string(next.Data), "user_message") {
				t.Errorf("%s: after the snapshot: %s, %v", name, next.Data, err)
			}
			k.rest(s.Log(ctx, client.LogOptions{Snapshot: first.Snapshot}))
			continue
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: a quiet turn that the snapshot has is followed by %s, %v", name, next.Data, err)
		}
	}
}

// A reader that has seen words which are then taken back gets what replaces them.
func TestResyncAfterARetraction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := newKit(t, nil, false)
	s := k.client(nil).Session("s")
	if _, err := s.Send(ctx, client.Message{ID: "u1", Text: "hi"}); err != nil {
		t.Fatal(err)
	}
	o := k.own("s")
	o.start("u1")
	o.say("dead ", "words")
	st := s.Attach(ctx, client.AttachOptions{Wire: aisdk.Wire(aisdk.Options{}), Resync: true})
	log := s.Log(ctx, client.LogOptions{})
	text := ""
	read := func(until string) {
		t.Helper()
		for !strings.HasSuffix(text, until) {
			e, err := st.Next()
			if err != nil {
				t.Fatalf("%v at %q", err, text)
			}
			if e.Snapshot != nil {
				text = ""
				if len(e.Snapshot.Messages) != 1 {
					t.Errorf("the snapshot has %d messages; the running turn's is replayed", len(e.Snapshot.Messages))
				}
			}
			if delta, ok := strings.CutPrefix(string(e.Data), `{"type":"text-delta","id":`); ok {
				_, delta, _ = strings.Cut(delta, `"delta":"`)
				text += strings.TrimSuffix(delta, `"}`)
			}
		}
	}
	read("dead words")
	o.write(&chunk.StepDiscarded{StepID: "step-1", Reason: "crash_recovery"}, &chunk.StreamResync{Reason: "crash_recovery"})
	o.w.SetStep(2)
	o.write(&chunk.StepStarted{StepID: "step-2"})
	o.say("living ", "words")
	read("living words")
	if text != "living words" {
		t.Errorf("the client shows %q", text)
	}
	if seen := textOf(first(t, log, 10)); seen != "living words" {
		t.Errorf("the log says %q", seen)
	}
	// A log's reader that resyncs while the turn runs gets all of the turn.
	back := s.Log(ctx, client.LogOptions{After: spool.Cursor{Seq: 9999}, Resync: true})
	list := first(t, back, 11)
	if list[0].Snapshot == nil || list[1].Type != chunk.TypeUserMessage || textOf(list) != "living words" {
		t.Errorf("%+v", list)
	}
}

func first(t *testing.T, l *client.LogStream, n int) (list []client.Entry) {
	t.Helper()
	for range n {
		e, err := l.Next()
		if err != nil {
			t.Fatalf("%v after %d entries", err, len(list))
		}
		list = append(list, e)
	}
	_ = l.Close()
	return list
}

// A page that is built from a snapshot and attaches has each turn once.
func TestSnapshotAndStream(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, partial := range []bool{false, true} {
		k := newKit(t, partialServer(partial), false)
		s := k.client(nil).Session("s")
		if _, err := s.Send(ctx, client.Message{ID: "u1", Text: "hi"}); err != nil {
			t.Fatal(err)
		}
		o := k.own("s")
		o.start("u1")
		o.say("one ", "two ")
		snap, err := s.Snapshot(ctx, client.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shown := ""
		for _, m := range snap.Messages {
			for _, p := range m.Parts {
				if m.Role == "assistant" {
					shown += p.Text
				}
			}
		}
		o.say("three")
		l := s.Log(ctx, client.LogOptions{Snapshot: snap})
		for !strings.HasSuffix(shown, "three") {
			e, err := l.Next()
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := e.Chunk.(*chunk.TextDelta); ok {
				shown += d.Delta
			}
		}
		if shown != "one two three" {
			t.Errorf("partial %t: %q", partial, shown)
		}
	}
}

func TestStreamRefusals(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := newKit(t, nil, true)
	s := k.client(nil).Session("nobody")
	if _, err := s.Log(ctx, client.LogOptions{}).Next(); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("a log that does not exist: %v", err)
	}
	if _, err := s.Attach(ctx, client.AttachOptions{Wire: aisdk.Wire(aisdk.Options{})}).Next(); !errors.Is(err, io.EOF) {
		t.Errorf("nothing to show: %v", err)
	}
	for _, w := range []wire.Wire{aisdk.Wire(aisdk.Options{})} {
		if _, err := s.Attach(ctx, client.AttachOptions{Wire: w, Follow: true}).Next(); !errors.Is(err, client.ErrNoFollow) {
			t.Errorf("%s cannot follow: %v", w.Name, err)
		}
	}
	k.send(s, "fail")
	end, list := k.ended(s)
	if end.Status != chunk.StatusFailed || end.Error == "" {
		t.Errorf("a failed run: %+v", end)
	}
	// A client that has all but the end.
	l := s.Log(ctx, client.LogOptions{After: spool.Cursor{Seq: list[len(list)-1].Seq}})
	if rest := k.rest(l); len(rest) != 0 || l.Ending().Status != chunk.StatusFailed || l.Ending().Error == "" {
		t.Errorf("after the end of a failed log: %+v, %+v", rest, l.Ending())
	}
	var failed *chunk.RunError
	st := s.Attach(ctx, client.AttachOptions{})
	for {
		_, err := st.Next()
		if err == nil {
			continue
		}
		if !errors.As(err, &failed) || errors.Is(err, io.EOF) {
			t.Errorf("the end of a failed run's events: %v", err)
		}
		break
	}
}

func partialServer(partial bool) *server.Options { return &server.Options{NoContentReplay: partial} }
