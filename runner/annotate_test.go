package runner_test

import (
	"context"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/runner"
)

// The names of messages are unique in their session and valid, whatever the program
// returns; its metadata is that of agents without their own.
func TestAnnotations(t *testing.T) {
	inWorld(t, func(w *world) {
		names := map[string]func(string) string{
			"same":    func(string) string { return "answer" },
			"user":    func(string) string { return "u1" }, // the id of a message that is there
			"invalid": func(string) string { return "a/b" },
			"long":    func(string) string { return strings.Repeat("x", chunk.MaxIDBytes) },
			"panics":  func(string) string { panic("no id") },
		}
		w.start(demo(nil), &runner.Options{Annotations: runner.Annotations{
			MessageID:      func(session string) string { return names[session](session) },
			StartMetadata:  func(_ context.Context, r agent.RunInfo) any { return map[string]string{"session": r.Session} },
			FinishMetadata: func(context.Context, agent.RunInfo) any { panic("no metadata") },
		}})
		for session := range names {
			for _, id := range []string{"u1", "u2", "u3"} {
				w.say(session, id, "hello")
				w.settled(session)
			}
			seen := map[string]bool{}
			for _, turn := range w.fold(session).Turns {
				if chunk.CheckID(turn.MessageID) != nil || seen[turn.MessageID] || turn.MessageID == "u1" {
					t.Errorf("%s: message %q", session, turn.MessageID)
				}
				seen[turn.MessageID] = true
			}
			if len(seen) != 3 || session == "same" && !(seen["answer"] && seen["answer-2"] && seen["answer-3"]) || session == "user" && !seen["u1-2"] {
				t.Errorf("%s: %v", session, seen)
			}
			if m := w.fold(session).Messages[1]; string(m.Metadata) != `{"session":"`+session+`"}` {
				t.Errorf("%s: metadata %s", session, m.Metadata)
			}
		}
	})
}
