package scripted_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
)

func refused(tool string) []chunk.Part {
	return []chunk.Part{{Type: chunk.PartStep}, {Type: chunk.PartTool, Tool: &chunk.ToolPart{Name: tool, State: chunk.ToolDenied}}}
}

// resume hears an answer again, as another process would: with a model of its own.
func resume(t *testing.T, o scripted.Options, cursor string) (parts []model.Part, err error) {
	t.Helper()
	for p, e := range scripted.New(&o).Resume(t.Context(), cursor) {
		if e != nil {
			return parts, e
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// A background answer begins with a position, and with that position another model
// plays the same answer, whatever the scene needs to know of the conversation.
func TestBackgroundAnswersAreResumed(t *testing.T) {
	o := scripted.Options{Background: true}
	for name, r := range map[string]*model.Request{
		"hello":             ask("hello"),
		"tour":              ask("What is this?"),
		"nothing said":      ask(""),
		"second word":       ask("branch south"),
		"quotes":            ask("think \"of\" \x00 <tags> & ünïcödé"),
		"a long message":    ask("think " + strings.Repeat("\x01é", 10_000)),
		"second round":      ask("tools", refused("get_weather")...),
		"a call refused":    ask("approve", refused("book_trip")...),
		"another refused":   ask("approve", refused("get_weather")...),
		"fails":             ask("fail"),
		"many calls denied": ask("approve", deniedTools(9)...),
	} {
		parts, err := play(t.Context(), scripted.New(&o), r)
		position, ok := parts[0].(model.Position)
		if !ok || position.Cursor == "" || len(position.Cursor) > chunk.MaxCursorBytes {
			t.Errorf("%s: begins with %T of %d bytes", name, parts[0], len(position.Cursor))
			continue
		}
		again, errAgain := resume(t, o, position.Cursor)
		if !reflect.DeepEqual(again, parts[1:]) || !reflect.DeepEqual(err, errAgain) {
			t.Errorf("%s: resumed with %d parts and %v, streamed %d and %v", name, len(again), errAgain, len(parts)-1, err)
		}
		foreground, _ := play(t.Context(), scripted.New(nil), r)
		if !reflect.DeepEqual(foreground, parts[1:]) {
			t.Errorf("%s: it says something else than in the foreground", name)
		}
		if err := scripted.New(&o).CancelAnswer(t.Context(), position.Cursor); err != nil {
			t.Errorf("%s: cancelled: %v", name, err)
		}
	}
}

func deniedTools(n int) (parts []chunk.Part) {
	for i := range n {
		parts = append(parts, refused(fmt.Sprint("tool_", i))...)
	}
	return parts
}

// What does not fit in a cursor is not promised: the answer has no position then.
func TestAnswerWithoutPosition(t *testing.T) {
	parts, err := play(t.Context(), scripted.New(&scripted.Options{Background: true}), ask("approve", deniedTools(200)...))
	if err != nil || sum(t, parts).text == "" {
		t.Fatalf("%v %v", parts, err)
	}
	if _, ok := parts[0].(model.Position); ok {
		t.Error("it has a position")
	}
}

// The answer goes on while nobody listens: who resumes it gets at once what has been
// said meanwhile, and the rest at the model's pace.
func TestBackgroundAnswersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := scripted.Steps(scripted.Say(scripted.Text(strings.Repeat("word ", 100))))
		o := scripted.Options{Background: true, Rate: 10, Scenes: map[string]scripted.Scene{"speak": text}}
		ctx, die := context.WithCancel(t.Context())
		defer die()
		cursor, heard := "", 0
		for p, err := range scripted.New(&o).Stream(ctx, ask("speak")) {
			if at, ok := p.(model.Position); ok {
				cursor = at.Cursor
			} else if err == nil {
				if heard++; heard == 20 {
					die()
				}
			}
		}
		time.Sleep(3 * time.Second)
		begun := time.Now()
		atOnce, all := 0, 0
		for p, err := range scripted.New(&o).Resume(t.Context(), cursor) {
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := p.(model.TextDelta); ok {
				if all++; time.Since(begun) == 0 {
					atOnce++
				}
			}
		}
		if atOnce != 50 || all != 100 || time.Since(begun) != 5*time.Second {
			t.Errorf("of %d deltas %d came at once, all after %v", all, atOnce, time.Since(begun))
		}
	})
}

// A cursor of another provider, of another version, or in a model that is not to be
// resumed, is an answer that is gone.
func TestForeignCursors(t *testing.T) {
	parts, err := play(t.Context(), scripted.New(&scripted.Options{Background: true}), ask("hello"))
	if err != nil {
		t.Fatal(err)
	}
	mine := parts[0].(model.Position).Cursor
	for _, tt := range []struct {
		cursor     string
		background bool
	}{
		{"", true}, {"resp_1:0", true}, {"{}", true}, {mine[:len(mine)-1], true}, {mine + "}", true}, {mine, false},
	} {
		parts, err := resume(t, scripted.Options{Background: tt.background}, tt.cursor)
		if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeGone || len(parts) > 0 {
			t.Errorf("%q: %d parts, %v", tt.cursor, len(parts), err)
		}
	}
	foreground, _ := play(t.Context(), scripted.New(nil), ask("hello"))
	if _, ok := foreground[0].(model.Position); ok {
		t.Error("an answer in the foreground has a position")
	}
}

// What the user refused in an earlier turn says nothing about this one.
func TestEarlierRefusals(t *testing.T) {
	r := ask("approve", chunk.Part{Type: chunk.PartStep}, chunk.Part{Type: chunk.PartTool, Tool: &chunk.ToolPart{Name: "book_trip", State: chunk.ToolCompleted}})
	r.Messages[1].Parts = refused("book_trip")
	parts, err := play(t.Context(), scripted.New(nil), r)
	if err != nil || !strings.Contains(sum(t, parts).text, "It is booked") {
		t.Errorf("%q, %v", sum(t, parts).text, err)
	}
}
