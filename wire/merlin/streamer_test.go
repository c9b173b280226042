package merlin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/wire/merlin"
)

// chunksOf turns a provider's bytes into the chunks that a streamer takes.
func chunksOf(stream string) iter.Seq2[chunk.Chunk, error] {
	return model.Chunks(openai.Ingest(strings.NewReader(stream), nil))
}

func delta(d string) string { return `data: {"choices":[{"delta":` + d + `}]}` + "\n\n" }

const stops = `data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"

// An orchestrator's loop: the model calls two agents, which speak as the results
// of their calls, one of them unheard; then it answers.
func TestStreamer(t *testing.T) {
	t.Parallel()
	for _, version := range []merlin.Version{merlin.V1, merlin.V2} {
		t.Run(fmt.Sprint("V", version), func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			s := merlin.NewStreamer(w, &merlin.StreamerOptions{Options: merlin.Options{Version: version}, Pacing: []merlin.Pace{}})
			check(t, s.Init())
			if got := w.Header(); got.Get("Content-Type") != "text/event-stream" || !strings.HasPrefix(got.Get("Cache-Control"), "no-cache") || got.Get("Connection") != "keep-alive" || !w.Flushed && version == merlin.V1 {
				t.Errorf("the headers are %v", got)
			}
			asked, err := s.Stream(t.Context(), chunksOf(delta(`{"reasoning":"hm"}`)+delta(`{"content":"I ask."}`)+
				delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"scout","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"clerk","arguments":""}}]}`)+stops), merlin.StreamConfig{})
			check(t, err)
			if got, want := string(mustJSON(t, asked)), `{"content":["I ask."],"reasoningContent":[{"text":"hm","index":0,"id":"reasoning-1"}],"citations":[],`+
				`"toolCalls":[{"type":"function","function":{"name":"scout","arguments":"{}"},"id":"a"},{"type":"function","function":{"name":"clerk","arguments":"{}"},"id":"b"}],`+
				`"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`; got != want {
				t.Errorf("the model asked %s\nwant %s", got, want)
			}
			events, err := s.NewEventManager(nil)
			check(t, err)
			step, err := events.CreateEvent("Asking", "")
			check(t, err)
			heard, err := s.Stream(t.Context(), chunksOf(delta(`{"content":"All is "}`)+delta(`{"content":"quiet."}`)+stops), merlin.StreamConfig{AsResultOf: "a"})
			check(t, err)
			unheard, err := s.Stream(t.Context(), chunksOf(delta(`{"reasoning":"secret"}`)+delta(`{"content":"secret"}`)+stops), merlin.StreamConfig{AsResultOf: "b", Suppress: true})
			check(t, err)
			if strings.Join(heard.Content, "") != "All is quiet." || strings.Join(unheard.Content, "") != "secret" || len(unheard.ReasoningContent) != 1 {
				t.Errorf("the agents said %+v and %+v", heard, unheard)
			}
			check(t, s.Result("a", "scout", json.RawMessage(`"All is quiet."`), ""))
			check(t, s.Result("b", "clerk", nil, "closed"))
			check(t, step.End())
			_, err = s.Stream(t.Context(), chunksOf(delta(`{"content":"It is "}`)+delta(`{"content":"quiet.","annotations":[{"type":"url_citation","url_citation":{"url":"u","title":"U","content":"q"}}]}`)+stops), merlin.StreamConfig{})
			check(t, err)
			check(t, s.AppendEvent("later", map[string]int{"a": 1}))
			check(t, s.End(nil))
			if err := s.End(nil); !errors.Is(err, merlin.ErrEnded) {
				t.Errorf("ended twice: %v", err)
			}
			stream := w.Body.String()
			c := read(t, stream)
			if strings.Contains(stream, "secret") || !c.Ended || len(c.Attachments) != 1 {
				t.Errorf("the client has %+v after\n%s", c, stream)
			}
			if version == merlin.V1 {
				if c.Text() != "I ask.It is quiet.[citation: 1: 1]" || len(c.Steps) != 1 {
					t.Errorf("the client has %+v", c)
				}
				return
			}
			for _, frame := range []string{`"index":2,"type":"toolCallResult","toolCallResult":{"index":0,"delta":"All is "}`, `"index":4,"type":"text","text":"It is "`} {
				if !strings.Contains(stream, frame) {
					t.Errorf("no %s in\n%s", frame, stream)
				}
			}
			if r := c.Blocks[2].Results; len(r) != 2 || r[0].Text != "All is quiet." || !r[1].Failed || r[1].Text != "closed" {
				t.Errorf("the results are %+v", r)
			}
		})
	}
}

// A stream that breaks gives what came, without calls, and the error; so does one
// whose caller or client leaves.
func TestStreamerFailures(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := merlin.NewStreamer(w, nil)
	broken := delta(`{"content":"Half"}`) + delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]}`)
	said, err := s.Stream(t.Context(), chunksOf(broken), merlin.StreamConfig{})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeTruncated || strings.Join(said.Content, "") != "Half" || said.ToolCalls != nil {
		t.Errorf("%+v, %v", said, err)
	}
	unheard, err := s.Stream(t.Context(), chunksOf(delta(`{"content":"secret"}`)+stops), merlin.StreamConfig{Suppress: true})
	if err != nil || strings.Join(unheard.Content, "") != "secret" {
		t.Errorf("%+v, %v", unheard, err)
	}
	check(t, s.End(err))
	check(t, err)
	if c := read(t, w.Body.String()); c.Text() != "Half" || !c.Ended {
		t.Errorf("the client has %+v", c)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := merlin.NewStreamer(httptest.NewRecorder(), nil).Stream(ctx, chunksOf(broken), merlin.StreamConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who left: %v", err)
	}
	gone := errors.New("gone")
	if _, err := merlin.NewStreamer(leaver{gone}, nil).Stream(t.Context(), chunksOf(broken), merlin.StreamConfig{}); !errors.Is(err, gone) {
		t.Errorf("a client who left: %v", err)
	}
	w = httptest.NewRecorder()
	check(t, merlin.NewStreamer(w, nil).End(gone))
	if c := read(t, w.Body.String()); c.Error == nil || c.Error.Message != "gone" || !c.Ended {
		t.Errorf("the client has %+v", c)
	}
}

// A gateway passes the blocks of its model on: V1 writes a quotation's marker
// behind the block that it came in, V2 shows it there.
func TestStreamerCitations(t *testing.T) {
	t.Parallel()
	answer := delta(`{"index":0,"content":"Tea is old"}`) + delta(`{"index":0,"citation":{"document_index":0,"cited_text":"very old"}}`) +
		delta(`{"index":0,"citation":{"url":"https://a.example","title":"A","cited_text":"old"}}`) + delta(`{"index":1,"content":". And hot."}`) + stops
	for version, want := range map[merlin.Version]string{
		merlin.V1: "Tea is old[citation: 1: 1][citation: 2: 1]. And hot.",
		merlin.V2: "Tea is old. And hot.",
	} {
		w := httptest.NewRecorder()
		s := merlin.NewStreamer(w, &merlin.StreamerOptions{Options: merlin.Options{Version: version}, Pacing: []merlin.Pace{}})
		said, err := s.Stream(t.Context(), chunksOf(answer), merlin.StreamConfig{})
		check(t, err)
		check(t, s.End(nil))
		c := read(t, w.Body.String())
		if c.Text() != want || strings.Join(said.Content, "") != want || len(said.Citations) != 2 || len(c.Attachments) != 2 ||
			c.Attachments[0].Title != "Document 1" || c.Attachments[1].URL != "https://a.example" {
			t.Errorf("V%d: %+v\n%s", version, said, w.Body)
		}
		if version == merlin.V2 && (len(c.Blocks) != 2 || len(c.Blocks[0].Citations) != 2) {
			t.Errorf("the blocks are %+v", c.Blocks)
		}
	}
}

// What is suppressed is heard by the caller alone; literally, its reasoning is
// shown. Either way it has no index that another's words could run into.
func TestStreamerSuppression(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		literal bool
		want    string
	}{{false, `[{"index":0,"text":"Hi."}]`}, {true, `[{"index":0,"reasoning":"hm"},{"index":1,"text":"Hi."}]`}} {
		w := httptest.NewRecorder()
		w.Header().Set("Access-Control-Allow-Origin", "https://a.example")
		s := merlin.NewStreamer(w, &merlin.StreamerOptions{Options: merlin.Options{Literal: merlin.Literal{Suppression: tt.literal}}})
		said, err := s.Stream(t.Context(), chunksOf(delta(`{"reasoning":"hm"}`)+delta(`{"content":"secret"}`)+stops), merlin.StreamConfig{Suppress: true})
		check(t, err)
		_, err = s.Stream(t.Context(), chunksOf(delta(`{"content":"Hi."}`)+stops), merlin.StreamConfig{})
		check(t, err)
		check(t, s.End(nil))
		if got := string(mustJSON(t, read(t, w.Body.String()).Blocks)); got != tt.want || strings.Join(said.Content, "") != "secret" || len(said.ReasoningContent) != 1 {
			t.Errorf("literally %v: the client has %s, the caller %+v", tt.literal, got, said)
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "https://a.example" {
			t.Errorf("the program's own header became %q", got)
		}
	}
}

type leaver struct{ err error }

func (l leaver) Write([]byte) (int, error) { return 0, l.err }
