package merlin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/merlin"
)

// chunkOf makes a chunk of two bytes: anything in any order.
func chunkOf(op, arg byte, n int) chunk.Chunk {
	call := fmt.Sprintf("c%d", arg%3)
	kid := chunk.Base{AgentID: fmt.Sprintf("%s.%d", session, arg%2+1), AgentType: "helper", RunID: "kid"}
	grandkid := chunk.Base{AgentID: fmt.Sprintf("%s.%d", kid.AgentID, arg/2%2+1), AgentType: "grandchild", RunID: "grandkid"}
	word := fmt.Sprintf("w%d ", n)
	switch op % 33 {
	case 0:
		return started()
	case 1:
		return &chunk.StepStarted{StepID: fmt.Sprint("s", n)}
	case 2, 3:
		return &chunk.TextDelta{Delta: word, PartID: fmt.Sprint(arg % 2)}
	case 4:
		return &chunk.Thinking{Content: word, IsComplete: arg%2 == 0}
	case 5:
		return &chunk.ToolArgStreamStart{ToolCallID: call, ToolName: "t"}
	case 6:
		return &chunk.ToolArgStreamDelta{ToolCallID: call, Delta: `{"a":` + fmt.Sprint(arg) + `}`}
	case 7:
		return &chunk.ToolArgStreamEnd{ToolCallID: call}
	case 8:
		return &chunk.ToolStart{ToolCallID: call, ToolName: "t", Arguments: json.RawMessage(fmt.Sprintf(`{"a":%d}`, arg/3))}
	case 9:
		return &chunk.ToolEnd{ToolCallID: call, ToolName: "t", Result: json.RawMessage(`"` + word + `"`), Success: arg%2 == 0, Error: "no", Preliminary: arg%5 == 0}
	case 10:
		return &chunk.ToolInputError{ToolCallID: call, ToolName: "t", Input: json.RawMessage(`"{"`), Error: "bad"}
	case 11:
		c := &chunk.Progress{ID: fmt.Sprintf("p%d", arg%3), Parent: fmt.Sprintf("p%d", arg/3%4), Label: word, State: "running"}
		if arg >= 128 { // placed
			c.ID = fmt.Sprintf("q%d", arg%8)
			c.Data = json.RawMessage(fmt.Sprintf(`{"contentIndex":%d,"type":%q}`, arg%4, []string{"", "HEADING"}[arg/8%2]))
		}
		return c
	case 12:
		return &chunk.Progress{ID: call + "/x", Label: word, State: "done", Data: json.RawMessage(`{"type":"HEADING"}`)}
	case 13:
		return &chunk.Progress{ID: call, Label: "same", State: "done", Data: json.RawMessage(`[1]`)}
	case 14:
		return &chunk.Citation{SourceID: fmt.Sprint("s", arg%3), URL: fmt.Sprint("u", arg%3), Title: "T", CitedText: fmt.Sprint("q", arg%4)}
	case 15:
		return &chunk.File{URL: word, MediaType: "text/plain"}
	case 16:
		return &chunk.SubAgentStart{SubAgentType: "helper", SubSessionID: kid.AgentID, CallID: call}
	case 17, 18:
		return &chunk.TextDelta{Base: kid, Delta: word}
	case 19:
		return &chunk.Thinking{Base: kid, Content: word}
	case 20:
		return &chunk.StepStarted{Base: kid, StepID: fmt.Sprint("s", n)}
	case 21:
		return &chunk.StepDiscarded{Base: kid, StepID: "s", Reason: "crash_recovery"}
	case 22:
		return &chunk.StepDiscarded{StepID: "s", Reason: "crash_recovery"}
	case 23:
		return &chunk.Progress{Base: kid, ID: fmt.Sprint("k", arg%3), Label: word}
	case 24:
		return &chunk.StepCommitted{StepID: "s"}
	case 25:
		return &chunk.RunSuspended{Kind: "awaiting_approval"}
	case 27:
		return &chunk.ToolStart{Base: kid, ToolCallID: call, ToolName: "t", Arguments: json.RawMessage(`{}`)}
	case 28:
		return &chunk.SubAgentStart{Base: kid, SubAgentType: "grandchild", SubSessionID: fmt.Sprintf("%s.%d", kid.AgentID, arg%2+1), CallID: call}
	case 29:
		return &chunk.TextDelta{Base: grandkid, Delta: word}
	case 30:
		return &chunk.Thinking{Base: grandkid, Content: word}
	case 31:
		return &chunk.ToolEnd{Base: kid, ToolCallID: call, ToolName: "t", Result: json.RawMessage(`1`), Success: true}
	case 32:
		return &chunk.Progress{Base: grandkid, ID: fmt.Sprint("k", arg%3), Label: word}
	}
	return finished()
}

// FuzzProjector: in whatever order chunks come, who never left, or came back
// when it was cut, has what the plan says.
func FuzzProjector(f *testing.F) {
	f.Add([]byte{1, 0, 4, 1, 2, 0, 14, 0, 14, 1, 2, 1, 14, 0, 26, 0}, uint8(0))
	f.Add([]byte{1, 0, 5, 0, 6, 0, 7, 0, 5, 1, 7, 1, 8, 0, 16, 0, 20, 0, 17, 0, 19, 0, 21, 0, 17, 0, 9, 2, 24, 0, 25, 0}, uint8(1))
	f.Add([]byte{1, 0, 8, 0, 11, 0, 11, 4, 12, 0, 13, 0, 11, 5, 22, 0, 2, 0}, uint8(2))
	f.Add([]byte{1, 0, 2, 0, 8, 0, 8, 1, 16, 0, 16, 4, 19, 0, 19, 1, 19, 0, 9, 0, 19, 1, 23, 0, 23, 1, 0, 0}, uint8(3))
	f.Add([]byte{1, 0, 8, 0, 16, 0, 27, 0, 28, 0, 29, 0, 30, 0, 32, 0, 31, 0, 17, 0, 9, 0}, uint8(0))
	f.Add([]byte{1, 0, 8, 0, 16, 0, 27, 0, 27, 2, 28, 0, 28, 2, 29, 2, 30, 2, 31, 0, 30, 2, 21, 0, 29, 2, 9, 2}, uint8(3))
	f.Add([]byte{1, 0, 11, 129, 2, 0, 11, 130, 8, 0, 11, 131, 11, 137, 2, 1, 13, 0, 11, 129, 22, 0, 11, 128}, uint8(0))
	f.Fuzz(func(t *testing.T, ops []byte, profile uint8) {
		if len(ops) > 400 {
			ops = ops[:400]
		}
		o := profiles[int(profile)%len(profiles)].o
		p := merlin.NewProjector("turn-1", &o)
		chunks := []chunk.Chunk{started()}
		for i := 0; i+1 < len(ops); i += 2 {
			chunks = append(chunks, chunkOf(ops[i], ops[i+1], i))
		}
		var stream []spool.Frame // without the terminal ones, which nothing after them has made wrong
		for _, r := range log(t, chunks...) {
			frames, err := p.Apply(nil, r)
			check(t, err)
			for _, fr := range frames {
				switch {
				case fr.Cut:
					stream = lasting(plan(t, p))
				case !fr.Terminal:
					stream = append(stream, fr)
				}
			}
			live, err := state([]byte(text(stream)), &o)
			if err != nil {
				t.Fatalf("after record %d (%s): %v\n%s", r.Seq, r.Type, err, text(stream))
			}
			now := lasting(plan(t, p))
			planned, err := state([]byte(text(now)), &o)
			if err != nil {
				t.Fatalf("the plan after record %d (%s): %v\n%s", r.Seq, r.Type, err, text(now))
			}
			if string(live) != string(planned) {
				t.Fatalf("after record %d (%s) who never left has\n%s\nand the plan says\n%s", r.Seq, r.Type, live, planned)
			}
		}
	})
}

// lasting returns the frames that are not terminal.
func lasting(frames []spool.Frame) []spool.Frame {
	return slices.DeleteFunc(frames, func(f spool.Frame) bool { return f.Terminal })
}
