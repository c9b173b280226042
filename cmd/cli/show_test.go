package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
)

// A log as a person at a terminal sees it: who speaks, what is called, how it ends;
// nothing that others wrote is obeyed by the terminal.
func TestPrinter(t *testing.T) {
	t.Parallel()
	at := func(agent string) chunk.Base { return chunk.Base{AgentID: agent} }
	user := func(text string) *chunk.UserMessage {
		return &chunk.UserMessage{Base: at("s"), Message: chunk.Message{ID: text, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
	}
	for name, tt := range map[string]struct {
		chunks []chunk.Chunk
		want   string
	}{
		"a turn": {[]chunk.Chunk{user("hi\nthere"), &chunk.StepStarted{Base: at("s")}, &chunk.Thinking{Base: at("s"), Content: "Hm"}, &chunk.Thinking{Base: at("s"), Content: "Hm, so.", IsComplete: true},
			&chunk.TextDelta{Base: at("s"), Delta: "One "}, &chunk.TextDelta{Base: at("s"), Delta: "moment."}, &chunk.ToolStart{Base: at("s"), ToolName: "look", Arguments: json.RawMessage(`{"a": 1}`)},
			&chunk.ToolEnd{Base: at("s"), ToolName: "look", Success: true, Result: json.RawMessage(`"sunny"`)}, &chunk.TextDelta{Base: at("s"), Delta: "Sunny.\n"},
			&chunk.AssistantMessage{Base: at("s"), Parts: []chunk.Part{{Type: chunk.PartText, Text: "One moment.Sunny."}}}, &chunk.RunFinished{Base: at("s"), Outcome: chunk.OutcomeCompleted}},
			"> hi\nthere\nHm, so.\nOne moment.\n* look {\"a\":1}\n  look = sunny\nSunny.\n"},
		"without its deltas": {[]chunk.Chunk{user("hi"), &chunk.StepStarted{Base: at("s")}, &chunk.AssistantMessage{Base: at("s"), Parts: []chunk.Part{{Type: chunk.PartText, Text: "Hello."}}},
			&chunk.RunFinished{Base: at("s"), Outcome: chunk.OutcomeStopped}}, "> hi\nHello.\nstopped\n"},
		"children": {[]chunk.Chunk{&chunk.SubAgentStart{Base: at("s"), SubAgentType: "researcher", SubSessionID: "s.1"}, &chunk.TextDelta{Base: at("s.1"), Delta: "a"}, &chunk.TextDelta{Base: at("s.2"), Delta: "b"},
			&chunk.TextDelta{Base: at("s.2"), Delta: "c"}, &chunk.ToolEnd{Base: at("s.1"), ToolName: "look", Error: "no"}}, "[researcher 1] a\n[ 2] bc\n[researcher 1]   look failed: no\n"},
		"a failure": {[]chunk.Chunk{&chunk.TextDelta{Base: at("s"), Delta: "So"}, &chunk.StepDiscarded{Base: at("s")}, &chunk.ErrorChunk{Base: at("s"), Error: "broken", Fatal: true},
			&chunk.RunFinished{Base: at("s"), Outcome: chunk.OutcomeFailed, Error: "broken", Code: "provider_error"}}, "So\n… this step was lost, and begins again\nfailed: broken (provider_error)\n"},
		"what a terminal would obey": {[]chunk.Chunk{&chunk.TextDelta{Base: at("s"), Delta: "a\x1b[2Jb\r\u202ec\u009b1m\a"}, &chunk.ToolEnd{Base: at("s"), ToolName: "x\x1b]0;", Success: true, Result: json.RawMessage(`"\u001b[1A` + strings.Repeat("x", 99) + `"`)}},
			"a[2Jbc1m\n  x]0; = [1A" + strings.Repeat("x", 26) + "…\n"},
	} {
		var b strings.Builder
		p := newPrinter(&b, "s", 40, false)
		for _, c := range tt.chunks {
			p.chunk(c)
		}
		if b.String() != tt.want {
			t.Errorf("%s:\ngot  %q\nwant %q", name, b.String(), tt.want)
		}
	}
}

// What a person is asked to allow is shown with the spaces that its texts have.
func TestCompactKeepsTexts(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{ "path": "a  b" ,` + "\n" + `"n": [1, 2] }`: `{"path":"a  b","n":[1,2]}`,
		`"just  text"`: "just  text",
		``:             "",
	} {
		if got := compact([]byte(in)); got != want {
			t.Errorf("compact(%q) = %q, want %q", in, got, want)
		}
	}
}
