package fold_test

import (
	"testing"

	"github.com/spool-run/spool/chunk"
)

// A stop or an interrupt that comes behind a message, which takes the place of a
// pause, is for the message's run and not for the one that only ends the pause.
func TestStopBehindASupersedingMessage(t *testing.T) {
	t.Parallel()
	run := func(id, turn, mode string, commands ...string) *chunk.RunStarted {
		return &chunk.RunStarted{Base: chunk.Base{RunID: id}, TurnID: turn, MessageID: "m-" + turn, Mode: mode, Commands: commands}
	}
	user := func(id string, busy chunk.WhenBusy) *chunk.UserMessage {
		return &chunk.UserMessage{CommandID: id, WhenBusy: busy, Message: chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: id}}}}
	}
	over := func(id string) *chunk.RunFinished {
		return &chunk.RunFinished{Base: chunk.Base{RunID: id}, Outcome: chunk.OutcomeStopped, FinishReason: "other"}
	}
	paused := []chunk.Chunk{user("u1", ""), run("r1", "u1", "start", "u1"),
		&chunk.StepStarted{Base: chunk.Base{RunID: "r1"}, StepID: "s1"},
		&chunk.AssistantMessage{Base: chunk.Base{RunID: "r1"}, MessageID: "m-u1", StepID: "s1", Parts: []chunk.Part{{Type: chunk.PartTool, Tool: &chunk.ToolPart{CallID: "c", Name: "t"}}}},
		&chunk.ToolStart{Base: chunk.Base{RunID: "r1"}, ToolCallID: "c", ToolName: "t", Client: true},
		&chunk.RunSuspended{Base: chunk.Base{RunID: "r1"}, Kind: "awaiting_client_tool", ToolCallIDs: []string{"c"}, StepID: "s1"},
		user("u2", "")}
	for name, asked := range map[string]chunk.Chunk{
		"stop": &chunk.StopRequested{CommandID: "x"}, "interrupt": &chunk.InterruptRequested{CommandID: "x"},
	} {
		chunks := append(paused[:len(paused):len(paused)], asked, run("r2", "u1", chunk.ModeSuperseded), over("r2"), run("r3", "u2", "start", "u2"))
		f := foldRecords(t, commandRecords(t, 0, chunks...))
		if name == "stop" && f.Stop == nil || name == "interrupt" && f.Interrupt == nil {
			t.Errorf("the %s is lost", name)
		}
		f = foldRecords(t, commandRecords(t, 0, append(chunks, over("r3"))...))
		if f.Stop != nil || f.Interrupt != nil {
			t.Errorf("the %s is not over", name)
		}
	}
}
