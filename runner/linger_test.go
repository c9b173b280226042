package runner_test

import (
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
)

// How deltas are merged is not seen in what they say: the messages are the same, and so is
// what the deltas of each block add up to.
func TestLingerChangesOnlyTheRecords(t *testing.T) {
	type said struct {
		messages string
		blocks   string
		deltas   int
	}
	play := func(linger time.Duration) (s said) {
		inWorld(t, func(w *world) {
			w.start(demo(map[string]scripted.Scene{"slowly": sayFor(30, 10*time.Millisecond)}), &runner.Options{Linger: linger})
			for _, text := range []string{"slowly", "think", "tools"} {
				w.say("s", text, text)
				w.settled("s")
			}
			var block chunk.Type
			for _, r := range w.settled("s") {
				var text string
				switch c := w.decode(r).(type) {
				case *chunk.TextDelta:
					text = c.Delta
				case *chunk.Thinking:
					text = c.Content
				case *chunk.ToolArgStreamDelta:
					text = c.Delta
				default:
					block = ""
					continue
				}
				s.deltas++
				if r.Type != block {
					block = r.Type
					s.blocks += "\n" + string(block) + " "
				}
				s.blocks += text
			}
			for _, m := range w.fold("s").Messages {
				for _, p := range m.Parts {
					p.First = 0 // a sequence
					s.messages += mustJSON(p) + "\n"
				}
			}
		})
		return s
	}
	single, merged := play(-1), play(50*time.Millisecond)
	if merged.messages != single.messages || merged.blocks != single.blocks {
		t.Errorf("with deltas merged:%s\n%s\nwithout:%s\n%s", merged.blocks, merged.messages, single.blocks, single.messages)
	}
	if merged.deltas > single.deltas-24 { // of the 30 slow deltas, at least five become one
		t.Errorf("%d records of deltas, %d when they are not merged", merged.deltas, single.deltas)
	}
}
