// Package scripted is a model that plays scenes: the same words for the same
// request, every time, with no network. It is the demo's model and the tests'.
package scripted

import (
	"context"
	"iter"
	"maps"
	"strings"
	"time"
	"unicode"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
)

// Options are a scripted model's settings. The zero value plays the built-in
// scenes as fast as it can.
type Options struct {
	// Scenes are played when the user's message begins with their name, in lower
	// case. They come on top of the built-in ones and win over them.
	Scenes map[string]Scene
	// Default is played for any other message; nil: a tour that names the scenes.
	Default Scene
	// Rate is the pace in deltas per second; 0: as fast as it can.
	Rate float64
	// Background makes answers resumable, as those of a provider that goes on with
	// its work when nobody listens: an answer begins with a [model.Position], and
	// [Model.Resume] plays it again in any process whose model has the same scenes.
	// Scenes then get no [Call.Request], and only the beginning of [Call.Text].
	Background bool
	// Sleep waits for d or until ctx ends, which it reports; nil: a timer.
	Sleep func(ctx context.Context, d time.Duration) error
	// Now tells how long a background answer has been going on; nil: time.Now.
	Now func() time.Time
}

// Model is a scripted [model.Model]. It is safe for concurrent use if its scenes
// are.
type Model struct{ o Options }

var _ model.Resumer = (*Model)(nil)

// New returns a scripted model. Options may be nil.
func New(o *Options) *Model {
	m := new(Model)
	if o != nil {
		m.o = *o
	}
	scenes := maps.Clone(builtin)
	maps.Copy(scenes, m.o.Scenes)
	m.o.Scenes = scenes
	if m.o.Default == nil {
		m.o.Default = tour
	}
	if m.o.Sleep == nil {
		m.o.Sleep = sleep
	}
	if m.o.Now == nil {
		m.o.Now = time.Now
	}
	return m
}

// Stream plays the scene that the last user message asks for. What a scene leaves
// out at its end, usage and finish, is added.
func (m *Model) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		c := newCall(r)
		if !m.o.Background {
			m.play(ctx, c, promptTokens(r), 0, yield)
			return
		}
		at := newPosition(c, promptTokens(r), m.o.Now())
		if cursor := at.cursor(); cursor != "" && !yield(model.Position{Cursor: cursor}, nil) {
			return
		}
		m.play(ctx, at.call(), at.InputTokens, 0, yield)
	}
}

// play plays a scene that has been going on for some time already: what it has said
// by now comes at once.
func (m *Model) play(ctx context.Context, c Call, inputTokens int64, since time.Duration, yield func(model.Part, error) bool) {
	scene, ok := m.o.Scenes[firstWord(c.Text)]
	if !ok {
		scene = m.o.Default
	}
	pace, said := pacer{sleep: m.o.Sleep, owed: -since}, played{used: chunk.Usage{InputTokens: inputTokens}}
	if m.o.Rate > 0 {
		pace.each = time.Duration(float64(time.Second) / m.o.Rate)
	}
	for p, err := range scene(c) {
		if err == nil {
			err = pace.wait(ctx, p)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		said.count(p)
		if f, ok := p.(model.Finish); ok {
			said.end(f, yield)
			return
		}
		if !yield(p, nil) {
			return
		}
	}
	if err := ctx.Err(); err != nil {
		yield(nil, err)
		return
	}
	said.end(said.finish(), yield)
}

// played is what a scene has said so far, as far as its end depends on it.
type played struct {
	used    chunk.Usage
	called  bool // it calls a tool
	counted bool // it has told its usage
}

func (s *played) count(p model.Part) {
	switch p.(type) {
	case model.TextDelta, model.ToolCallDelta:
		s.used.OutputTokens++
	case model.ReasoningDelta:
		s.used.OutputTokens++
		s.used.ReasoningTokens++
	case model.ToolCallEnd:
		s.called = true
	case model.UsageUpdate:
		s.counted = true
	}
}

// end ends the stream, after the usage if the scene has not told it.
func (s *played) end(f model.Finish, yield func(model.Part, error) bool) {
	if s.counted || yield(model.UsageUpdate{Usage: s.used}, nil) {
		yield(f, nil)
	}
}

// finish is for a scene that leaves it out.
func (s *played) finish() model.Finish {
	if s.called {
		return model.Finish{Reason: "tool-calls", Raw: "scripted"}
	}
	return model.Finish{Reason: "stop", Raw: "scripted"}
}

// promptTokens counts a token for every four bytes of prompt.
func promptTokens(r *model.Request) int64 {
	n := len(r.Instructions)
	for i := range r.Messages {
		for j := range r.Messages[i].Parts {
			n += len(r.Messages[i].Parts[j].Text)
		}
	}
	return int64(n+3) / 4
}

// pacer spreads deltas over time. It saves up until a wait is worth a timer; an owed
// time below zero is one that has passed already.
type pacer struct {
	each, owed time.Duration
	sleep      func(context.Context, time.Duration) error
}

func (w *pacer) wait(ctx context.Context, p model.Part) error {
	switch p.(type) {
	case model.TextDelta, model.ReasoningDelta, model.ToolCallDelta:
		if w.owed += w.each; w.owed >= 2*time.Millisecond {
			d := w.owed
			w.owed = 0
			return w.sleep(ctx, d)
		}
	}
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newCall(r *model.Request) Call {
	c := Call{Request: r}
	last := -1
	for i := range r.Messages {
		if r.Messages[i].Role == chunk.RoleUser {
			last = i
		}
	}
	if last >= 0 {
		c.Text = r.Messages[last].Text()
	}
	for i := last + 1; i < len(r.Messages); i++ {
		if r.Messages[i].Role == chunk.RoleAssistant {
			c.Round += rounds(r.Messages[i].Parts)
			c.Denied = append(c.Denied, denied(r.Messages[i].Parts)...)
		}
	}
	return c
}

// rounds counts the steps that called tools.
func rounds(parts []chunk.Part) (n int) {
	called := false
	for i := range parts {
		switch parts[i].Type {
		case chunk.PartStep:
			called = false
		case chunk.PartTool:
			if !called {
				called = true
				n++
			}
		}
	}
	return n
}

// denied returns the names of the tools whose calls the user has refused.
func denied(parts []chunk.Part) (names []string) {
	for i := range parts {
		if t := parts[i].Tool; t != nil && t.State == chunk.ToolDenied {
			names = append(names, t.Name)
		}
	}
	return names
}

func firstWord(text string) string {
	word := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
	})
	if len(word) == 0 {
		return ""
	}
	return strings.ToLower(word[0])
}
