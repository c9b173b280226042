package agent_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
)

// randomAnswer says anything that a model may say, in any order.
func randomAnswer(rng *rand.Rand) scripted.Step {
	words := []string{"a", "aa", "é", "\"quoted\" ", "a\n", "äöü"}
	word := func() string { return words[rng.IntN(len(words))] }
	out := []model.Part{position}
	type open struct {
		id       string
		executed bool
	}
	var calls []open
	var thought, text string
	named := 0
	endThought := func() {
		if thought != "" {
			out = append(out, model.ReasoningEnd{ID: fmt.Sprint("r", named), Text: thought})
			thought = ""
		}
	}
	for range 3 + rng.IntN(25) {
		switch n := rng.IntN(10); n {
		case 0, 1, 2:
			endThought()
			id := "t"
			if rng.IntN(3) == 0 {
				id = fmt.Sprint("t", rng.IntN(2))
			}
			text = word()
			out = append(out, model.TextDelta{ID: id, Delta: text})
		case 3, 4:
			if thought == "" {
				named += rng.IntN(2) // an id may come again
			}
			d := word()
			thought += d
			out = append(out, model.ReasoningDelta{ID: fmt.Sprint("r", named), Delta: d})
		case 5:
			endThought()
			if rng.IntN(2) == 0 { // what is encrypted has no text
				named++
				out = append(out, model.ReasoningEnd{ID: fmt.Sprint("r", named), Metadata: []byte(`{"x":1}`)})
			}
		case 6:
			endThought()
			c := open{fmt.Sprint("c", rng.IntN(1000)), rng.IntN(3) == 0}
			calls = append(calls, c)
			out = append(out, model.ToolCallStart{ID: c.id, Name: "f", ProviderExecuted: c.executed})
		case 7, 8:
			if len(calls) > 0 {
				c := calls[rng.IntN(len(calls))]
				out = append(out, model.ToolCallDelta{ID: c.id, Delta: word()})
			}
		case 9:
			switch {
			case len(calls) > 0 && rng.IntN(2) == 0:
				i := rng.IntN(len(calls))
				c := calls[i]
				calls = append(calls[:i:i], calls[i+1:]...)
				out = append(out, model.ToolCallEnd{ID: c.id, Name: "f"})
				if c.executed {
					out = append(out, model.ToolResult{ID: c.id, Result: []byte(`"ok"`)})
				}
			case rng.IntN(2) == 0:
				out = append(out, model.Source{ID: fmt.Sprint("s", len(out)), URL: "https://a.example"})
			default:
				out = append(out, model.File{URL: "data:,x", MediaType: "text/plain"})
			}
		}
	}
	return scripted.Step{Parts: append(out, model.Finish{Reason: "stop"})}
}

// shortened cuts the text of a chunk.
func shortened(c chunk.Chunk, rng *rand.Rand) chunk.Chunk {
	cut := func(s string) string {
		n := rng.IntN(len(s) + 1)
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		return s[:n]
	}
	switch c := c.(type) {
	case *chunk.TextDelta:
		d := *c
		d.Delta = cut(c.Delta)
		return &d
	case *chunk.ToolArgStreamDelta:
		d := *c
		d.Delta = cut(c.Delta)
		return &d
	case *chunk.Thinking:
		if !c.IsComplete {
			d := *c
			d.Content = cut(c.Content)
			return &d
		}
	}
	return c
}

// The same as TestReattach with answers of all shapes, and records that hold a
// part of a delta.
func TestReattachToRandomAnswers(t *testing.T) {
	for n := range matrix.Points(t, 300, 10) {
		seed := uint64(n)
		rng := rand.New(rand.NewPCG(seed, 1))
		answer := randomAnswer(rng)
		k := &keeper{}
		k.steps = []scripted.Step{answer}
		want, l, err := heard(t, &agent.Agent{Name: "a", Model: k}, nil)
		if err != nil {
			t.Fatal(seed, err)
		}
		chunks := l.chunks[2:]
		for n, c := range chunks {
			if c.ChunkType() == chunk.TypeAssistantMessage {
				break
			}
			if n == 0 {
				continue
			}
			for how, again := range map[string]scripted.Step{"as it was": answer, "joined": joined(answer), "in runes": single(answer)} {
				stored := append(chunks[:n:n], shortened(c, rng))
				k := &keeper{again: func(string) scripted.Step { return again }}
				got, l, err := heard(t, &agent.Agent{Name: "a", Model: k}, stored)
				if err != nil || got != want || retracted(l) {
					t.Fatalf("seed %d, after %d chunks, heard %s: %v, %s\n%s\nwant %s", seed, n, how, err, l.kinds(), got, want)
				}
			}
		}
	}
}
