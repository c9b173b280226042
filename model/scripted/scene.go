package scripted

import (
	"iter"
	"strings"

	"github.com/spool-run/spool/model"
)

// Call is what a scene is played for.
type Call struct {
	Request *model.Request // nil with [Options.Background]
	Text    string         // of the last user message; with [Options.Background] its first 128 bytes
	Round   int            // tool rounds since that message: 0 for a turn's first call
	Denied  []string       // tools whose calls the user has refused since that message
}

// Scene plays one model call. It yields parts, and an error to fail there.
type Scene func(c Call) iter.Seq2[model.Part, error]

// Step is one call's parts, and the error that ends them, if any.
type Step struct {
	Parts []model.Part
	Err   error
}

// Steps returns a scene of one step a tool round; later rounds repeat the last.
func Steps(steps ...Step) Scene {
	return func(c Call) iter.Seq2[model.Part, error] {
		return func(yield func(model.Part, error) bool) {
			if len(steps) == 0 {
				return
			}
			s := steps[min(c.Round, len(steps)-1)]
			for _, p := range s.Parts {
				if !yield(p, nil) {
					return
				}
			}
			if s.Err != nil {
				yield(nil, s.Err)
			}
		}
	}
}

// Say returns a step of parts, in order.
func Say(parts ...[]model.Part) Step {
	var s Step
	for _, p := range parts {
		s.Parts = append(s.Parts, p...)
	}
	return s
}

// Text returns a text block, a delta a word.
func Text(text string) []model.Part {
	var parts []model.Part
	for word := range words(text) {
		parts = append(parts, model.TextDelta{ID: "text", Delta: word})
	}
	return parts
}

// Reasoning returns a whole reasoning block, a delta a word.
func Reasoning(text string) []model.Part {
	var parts []model.Part
	for word := range words(text) {
		parts = append(parts, model.ReasoningDelta{ID: "reasoning", Delta: word})
	}
	return append(parts, model.ReasoningEnd{ID: "reasoning", Text: text})
}

// ToolCall is a call that a scene makes.
type ToolCall struct{ ID, Name, Arguments string }

// Calls returns tool calls in parallel: their argument texts come in small pieces
// and in turns.
func Calls(calls ...ToolCall) []model.Part {
	const piece = 7
	var parts []model.Part
	longest := 0
	for _, c := range calls {
		parts = append(parts, model.ToolCallStart{ID: c.ID, Name: c.Name})
		longest = max(longest, len(c.Arguments))
	}
	for at := 0; at < longest; at += piece {
		for _, c := range calls {
			if at < len(c.Arguments) {
				// Pieces end wherever they end: a reader must join them first.
				parts = append(parts, model.ToolCallDelta{ID: c.ID, Delta: cut(c.Arguments, at, at+piece)})
			}
		}
	}
	for _, c := range calls {
		parts = append(parts, model.ToolCallEnd{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return parts
}

// cut returns s[from:to], with both ends moved down to rune borders.
func cut(s string, from, to int) string {
	return s[border(s, from):border(s, to)]
}

func border(s string, i int) int {
	if i >= len(s) {
		return len(s)
	}
	for i > 0 && s[i]&0xC0 == 0x80 {
		i--
	}
	return i
}

// words cuts text after the white space that follows each word.
func words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text != "" {
			body := strings.IndexAny(text, " \n\t")
			end := len(text)
			if body >= 0 {
				rest := strings.TrimLeft(text[body:], " \n\t")
				end = len(text) - len(rest)
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}
