package spool_test

import (
	"testing"

	"github.com/spool-run/spool"
)

// A stop or an interrupt that comes behind a message, which takes the place of a
// pause, is for the message's run and not for the one that only ends the pause.
func TestStopBehindASupersedingMessage(t *testing.T) {
	t.Parallel()
	run := func(id, turn, mode string, commands ...string) *spool.RunStarted {
		return &spool.RunStarted{Base: spool.Base{RunID: id}, TurnID: turn, MessageID: "m-" + turn, Mode: mode, Commands: commands}
	}
	user := func(id string, busy spool.WhenBusy) *spool.UserMessage {
		return &spool.UserMessage{CommandID: id, WhenBusy: busy, Message: spool.Message{ID: id, Role: spool.RoleUser, Parts: []spool.Part{{Type: spool.PartText, Text: id}}}}
	}
	over := func(id string) *spool.RunFinished {
		return &spool.RunFinished{Base: spool.Base{RunID: id}, Outcome: spool.OutcomeStopped, FinishReason: "other"}
	}
	paused := []spool.Chunk{user("u1", ""), run("r1", "u1", "start", "u1"),
		&spool.StepStarted{Base: spool.Base{RunID: "r1"}, StepID: "s1"},
		&spool.AssistantMessage{Base: spool.Base{RunID: "r1"}, MessageID: "m-u1", StepID: "s1", Parts: []spool.Part{{Type: spool.PartTool, Tool: &spool.ToolPart{CallID: "c", Name: "t"}}}},
		&spool.ToolStart{Base: spool.Base{RunID: "r1"}, ToolCallID: "c", ToolName: "t", Client: true},
		&spool.RunSuspended{Base: spool.Base{RunID: "r1"}, Kind: "awaiting_client_tool", ToolCallIDs: []string{"c"}, StepID: "s1"},
		user("u2", "")}
	for name, asked := range map[string]spool.Chunk{
		"stop": &spool.StopRequested{CommandID: "x"}, "interrupt": &spool.InterruptRequested{CommandID: "x"},
	} {
		chunks := append(paused[:len(paused):len(paused)], asked, run("r2", "u1", spool.ModeSuperseded), over("r2"), run("r3", "u2", "start", "u2"))
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
