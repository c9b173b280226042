package wiretest

import (
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// Session is the session id of the corpus.
const Session = "corpus"

// Corpus returns a realistic log: several turns and runs with every chunk type
// that this version knows, every end that a run can have, calls that wait for
// people, clients and children, a crash, a hand-over, commands that repeat and commands that
// are refused, an edit and a regeneration, series of records, and a chunk of a
// type that nobody knows. It is the same at every call.
func Corpus() []chunk.Record {
	b := &builder{now: 1763730000000}
	a := &agent{log: b, session: Session, kind: "assistant"}
	completedTurn(a)
	waitingTurn(a)
	crashedTurn(a)
	interruptedTurn(a)
	rolledBackTurn(a)
	steeredTurns(a)
	replacedHistory(a)
	return b.records
}

// KeptOnly returns the kept records of a log: what is left of it when its trace
// was trimmed.
func KeptOnly(log []chunk.Record) []chunk.Record {
	var kept []chunk.Record
	for _, r := range log {
		if r.Class == chunk.Kept {
			kept = append(kept, r)
		}
	}
	return kept
}

// completedTurn has two steps, parallel calls, one of which fails, data parts,
// state, a refused, a repeated and a queued command.
func completedTurn(a *agent) {
	a.say("cmd-1", "What is <new> & \"good\"?", "")
	a.begin("run-1", "cmd-1", "cmd-1")
	a.beginStep()
	a.think("", json.RawMessage(`{"anthropic":{"signature":"c2ln"}}`), "The user ", "asks about ", "news.")
	a.text("", "Let me ", "look 🧵 that", " up.\n\n")
	a.say("cmd-1", "What is <new> & \"good\"?", "") // the tab tries again
	a.say("cmd-busy", "Hello?", chunk.BusyReject)
	a.callArgs("call-1", "search", true, `{"query"`, `:"news \u0026 more"`, `}`)
	a.callArgs("call-2", "fetch", true, `{"url":"https://example.com/a b"}`)
	a.closeModel("tool-calls", false)
	a.start("call-1", "search", `{"query":"news & more"}`)
	a.start("call-2", "fetch", `{"url":"https://example.com/a b"}`)
	half, done := 50.0, 100.0
	a.progress(chunk.Progress{ID: "p1", Label: "Searching", State: "running", Percent: &half}, `{"id":"p1","label":"Searching","state":"running","percent":50}`)
	a.show("chart", "c1", `{"points":[1]}`)
	a.emit(&chunk.StatePatch{ToolCallID: "call-1", Patches: []chunk.PatchOperation{
		{Op: "add", Path: "/notes", Value: json.RawMessage(`[]`)}, {Op: "add", Path: "/notes/-", Value: json.RawMessage(`"first"`)},
	}})
	a.emit(&chunk.ToolEnd{ToolCallID: "call-1", ToolName: "search", Result: json.RawMessage(`{"hits":1}`), Success: true, Preliminary: true})
	a.show("chart", "c1", `{"points":[1,2]}`)
	a.end("call-2", "fetch", `null`, "connection refused")
	a.progress(chunk.Progress{ID: "p1", Label: "Searching", State: "done", Percent: &done}, `{"id":"p1","label":"Searching","state":"done","percent":100}`)
	a.progress(chunk.Progress{ID: "p2", Parent: "p1", Data: json.RawMessage(`{"n":2}`)}, `{"id":"p2","parent":"p1","data":{"n":2}}`)
	a.end("call-1", "search", `{"hits":[{"title":"A <b> & c","score":0.5}]}`, "")
	a.commit(true)

	a.say("cmd-2", "Then book it.", chunk.BusyQueue)
	a.beginStep()
	a.text("t1", "Here it is: ")
	a.text("t2", "the second block")
	a.emit(&chunk.Citation{SourceID: "src-1", URL: "https://example.com/a", Title: "A", CitedText: "quoted"})
	a.emit(&chunk.Citation{SourceID: "src-2", Title: "Paper", MediaType: "application/pdf", Filename: "paper.pdf"})
	a.emit(&chunk.File{URL: "data:text/plain,hello", MediaType: "text/plain", Filename: "hello.txt"})
	a.emit(&chunk.Custom{EventName: "note", Data: json.RawMessage(`{"kept":true}`)})
	a.emit(&chunk.Custom{EventName: "blink", Data: json.RawMessage(`1`), Transient: true})
	a.show("chart", "c1", `{"points":[1,2,3]}`)
	a.text("t2", ", which ends in a few words of its own.")
	a.closeModel("stop", true)
	a.emit(&chunk.UsageReport{Usage: chunk.Usage{InputTokens: 80, OutputTokens: 30, ReasoningTokens: 5, CachedInputTokens: 40}})
	a.commit(false)
	a.emit(&chunk.Output{Output: json.RawMessage(`{"answer":42}`)})
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}

// waitingTurn is the queued one. It waits for an approval, for a client's tool
// and for a child.
func waitingTurn(a *agent) {
	a.begin("run-2", "cmd-2", "cmd-2")
	a.beginStep()
	a.callArgs("call-3", "book", true, `{"seats":`, `2}`)
	a.callArgs("call-4", "cancel", true, `{}`)
	a.closeModel("tool-calls", false)
	a.emit(&chunk.ToolApprovalRequest{ApprovalID: "appr-1", ToolCallID: "call-3", ToolName: "book", Input: json.RawMessage(`{"seats":2}`)})
	a.emit(&chunk.ToolApprovalRequest{ApprovalID: "appr-2", ToolCallID: "call-4", ToolName: "cancel", Input: json.RawMessage(`{}`)})
	a.emit(&chunk.RunPaused{Reason: "approval", PendingToolName: "book", PendingToolCallID: "call-3"})
	a.suspend("awaiting_approval", "call-3", "call-4")
	a.command(&chunk.ToolApprovalResponse{CommandID: "cmd-3", ApprovalID: "appr-1", Approved: true})
	a.command(&chunk.ToolApprovalResponse{CommandID: "cmd-4", ApprovalID: "appr-2", Reason: "too late"})
	a.command(&chunk.ToolApprovalResponse{CommandID: "cmd-5", ApprovalID: "appr-2", Approved: true}) // a second tab, late

	step, checkpoint := a.stepID, "cp-run-1-step-2"
	a.resume("run-3", "approval", "cmd-3", "cmd-4")
	a.emit(&chunk.RunResumed{FromCheckpointID: &checkpoint, FromStepCount: 2, Mode: "approval"})
	a.stepID, a.step = step, 1
	a.start("call-3", "book", `{"seats":2}`)
	a.end("call-3", "book", `{"booked":true}`, "")
	a.end("call-4", "cancel", `null`, "the user said no: too late")
	a.commit(false)

	a.beginStep()
	a.text("", "Booked. Where are you?")
	a.callArgs("call-5", "location", true, `{}`)
	a.closeModel("tool-calls", false)
	a.start("call-5", "location", `{}`)
	a.suspend("awaiting_client_tool", "call-5")
	a.command(&chunk.ToolResultSubmitted{CommandID: "cmd-6", ToolCallID: "call-5", Result: json.RawMessage(`{"lat":52.5}`)})

	step = a.stepID
	a.resume("run-4", "client_tool_result", "cmd-6")
	a.emit(&chunk.RunResumed{FromStepCount: 1, Mode: "client_tool_result"})
	a.stepID, a.step = step, 2
	a.end("call-5", "location", `{"lat":52.5}`, "")
	a.commit(false)
	askedChild(a)
	a.beginStep()
	a.text("", "Trains leave hourly.")
	a.closeModel("stop", false)
	a.commit(false)
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}

// askedChild is a step that asks a child, which answers.
func askedChild(a *agent) {
	a.beginStep()
	a.callArgs("call-6", "research", true, `{"topic":"trains"}`)
	a.closeModel("tool-calls", false)
	a.start("call-6", "research", `{"topic":"trains"}`)
	child := &agent{log: a.log, session: Session + ".1", kind: "researcher"}
	a.emit(&chunk.SubAgentStart{SubAgentType: child.kind, SubSessionID: child.session, CallID: "call-6"})
	child.begin("run-4.1", "call-6")
	child.beginStep()
	child.think("", nil)
	child.text("", "Trains ", "leave hourly.")
	child.show("chart", "c1", `{"child":true}`)
	child.callArgs("call-1", "search", true, `{"query":"trains"}`) // the child's own call-1
	child.closeModel("tool-calls", false)
	child.start("call-1", "search", `{"query":"trains"}`)
	child.end("call-1", "search", `[]`, "")
	child.commit(false)
	child.finish(chunk.OutcomeCompleted, "stop", "", "")
	a.emit(&chunk.SubAgentEnd{SubAgentType: child.kind, SubSessionID: child.session, CallID: "call-6", Result: json.RawMessage(`"hourly"`)})
	a.end("call-6", "research", `"hourly"`, "")
	a.commit(false)
}

// crashedTurn loses its executor in a model phase, and is stopped by its user.
func crashedTurn(a *agent) {
	a.say("cmd-7", "Write a long story.", "")
	a.begin("run-5", "cmd-7", "cmd-7")
	a.beginStep()
	a.think("", nil, "A story")
	a.text("", "Once upon", " a ti")
	a.callArgs("call-7", "draw", false, `{"what":"a`)
	a.show("chart", "c2", `{"lost":true}`)
	a.data = nil
	a.emit(&chunk.ExecutorSuperseded{Reason: "lease_expired"})
	a.discard("crash_recovery")
	a.emit(&chunk.StreamResync{CheckpointID: "cp-run-4-step-4", MessageCount: 5, FromSequence: uint64(len(a.log.records)), Reason: "crash_recovery"})

	a.beginStep()
	a.text("", "Long ago")
	a.callArgs("call-8", "draw", true, `{"what":`) // not JSON, though it ended
	a.callArgs("call-9", "paint", true, `{}`)
	a.closeModel("tool-calls", false)
	a.emit(&chunk.ToolInputError{ToolCallID: "call-8", ToolName: "draw", Input: json.RawMessage(`"{\"what\":"`), Error: "unexpected end of JSON input"})
	a.start("call-9", "paint", `{}`)
	a.emit(&chunk.ToolOutputError{ToolCallID: "call-9", ToolName: "paint", Error: "no paint"})
	a.commit(false)
	a.beginStep()
	a.emit(&chunk.ErrorChunk{Error: "the provider is overloaded", Code: "provider_overloaded", Recoverable: true})
	a.text("", "There ", "lived")
	a.callArgs("call-10", "draw", false, `{"wh`)
	a.command(&chunk.StopRequested{CommandID: "cmd-8", Target: "run-5", Reason: "enough"})

	a.emit(&chunk.AssistantMessage{MessageID: a.message, StepID: a.stepID, Parts: a.parts, FinishReason: "other", Partial: true})
	a.parts = nil
	a.emit(&chunk.ToolInputError{ToolCallID: "call-10", ToolName: "draw", Input: json.RawMessage(`"{\"wh"`), Error: "stopped"})
	a.emit(&chunk.StepCommitted{StepID: a.stepID, Partial: true})
	a.finish(chunk.OutcomeStopped, "other", "", "")
}

// interruptedTurn is a regenerated answer that was interrupted, goes on and
// fails.
func interruptedTurn(a *agent) {
	a.command(&chunk.HistoryRewound{CommandID: "cmd-9", AfterMessageID: "user-cmd-7", Trigger: "regenerate", WhenBusy: chunk.BusyInterrupt})
	a.begin("run-6", "cmd-9", "cmd-9")
	a.beginStep()
	a.text("", "Chapter one.")
	a.show("chart", "c3", `{"chapter":1}`)
	a.closeModel("tool-calls", false)
	a.commit(false)
	checkpoint := "cp-" + a.run + "-step-1"
	a.beginStep()
	a.command(&chunk.InterruptRequested{CommandID: "cmd-15", Target: "run-6", Reason: "user"})
	a.text("", "Chapter tw")
	a.discard("interrupted")
	a.emit(&chunk.RunInterrupted{CheckpointID: &checkpoint, Reason: "user"})
	a.suspend("interrupted")

	a.command(&chunk.ResumeRequested{CommandID: "cmd-16", Mode: chunk.ModeContinue, Target: "run-6"})
	a.resume("run-7", "continue", "cmd-16")
	a.emit(&chunk.RunResumed{FromCheckpointID: &checkpoint, FromStepCount: 1, Mode: "continue"})
	a.beginStep()
	a.emit(&chunk.AnswerStarted{StepID: a.stepID, Cursor: "resp_1:0"})
	a.text("", "Chapter two")
	a.callArgs("call-11", "draw", true, `{"what":"a dragon"}`)
	a.closeModel("tool-calls", false)
	a.start("call-11", "draw", `{"what":"a dragon"}`)
	a.show("chart", "c3", `{"chapter":2}`)
	a.end("call-11", "draw", `null`, "the run failed")
	a.emit(&chunk.StepCommitted{StepID: a.stepID, Data: a.settled(), Partial: true})
	a.finish(chunk.OutcomeFailed, "error", "the model is gone", "provider_error")
}

// rolledBackTurn goes back to the checkpoint of the turn that failed, and on from
// there.
func rolledBackTurn(a *agent) {
	var at fold.Checkpoint
	f := fold.New(a.session)
	for _, r := range a.log.records {
		if c, err := chunk.Decode(r.Data); err == nil && at.Seq == 0 {
			f.ApplyChunk(r, c)
			if n := len(f.Checkpoints); n > 0 && f.Checkpoints[n-1].RunID == "run-6" {
				at = f.Checkpoints[n-1]
			}
		}
	}
	for _, c := range f.Owed().Content("cmd-17", at.ID) {
		a.command(c)
	}
	a.command(&chunk.ResumeRequested{CommandID: "cmd-18", Mode: chunk.ModeRetry, CheckpointID: at.ID})
	a.turn, a.message, a.data, a.dirty = "cmd-18", "answer-cmd-18", nil, map[int]bool{}
	a.resume("run-11", chunk.ModeRetry, "cmd-18")
	a.emit(&chunk.RunResumed{FromCheckpointID: &at.ID, FromStepCount: at.StepCount, Mode: chunk.ModeRetry})
	a.emit(&chunk.StreamResync{CheckpointID: at.ID, StepCount: at.StepCount, MessageCount: at.MessageCount, FromSequence: at.Seq, Reason: "rollback"})
	a.beginStep()
	a.text("", "Chapter two, ", "again")
	a.closeModel("stop", false)
	a.commit(false)
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}

// steeredTurns are an edited message whose answer is steered away from, and the
// turn that the steering opens, which runs into its limit.
func steeredTurns(a *agent) {
	a.command(&chunk.HistoryRewound{CommandID: "cmd-10", AfterMessageID: "answer-cmd-2", Trigger: "edit", WhenBusy: chunk.BusyInterrupt})
	a.say("cmd-11", "Write a short story.", chunk.BusyInterrupt)
	a.begin("run-8", "cmd-11", "cmd-10", "cmd-11")
	a.beginStep()
	a.text("", "A cat ", "sat.")
	a.say("cmd-12", "About a dog, please.", chunk.BusySteer)
	a.text("", " It purred.")
	a.closeModel("stop", false)
	a.commit(false)
	a.finish(chunk.OutcomeSteered, "other", "", "")

	a.begin("run-9", "cmd-12", "cmd-12")
	a.beginStep()
	a.text("", "A dog barked")
	a.closeModel("length", false)
	a.commit(false)
	a.finish(chunk.OutcomeLimit, "length", "", "max_steps")
}

// replacedHistory gives the session another past, and goes on with a chunk from
// the future.
func replacedHistory(a *agent) {
	past := func(id string, role chunk.Role, text string) *[]chunk.Message {
		return &[]chunk.Message{{ID: id, Role: role, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
	}
	a.command(&chunk.HistoryReplaced{CommandID: "cmd-13", Messages: past("old-1", chunk.RoleUser, "Who are you?"), More: true})
	a.command(&chunk.HistoryReplaced{CommandID: "cmd-13", Index: 1, Messages: past("old-2", chunk.RoleAssistant, "A parrot."), State: json.RawMessage(`{"name":"Polly"}`)})
	a.say("cmd-14", "Hello again.", "")
	a.begin("run-10", "cmd-14", "cmd-14")
	a.beginStep()
	a.emit(&chunk.Unknown{Type: "hologram", Raw: json.RawMessage(fmt.Sprintf(`{"type":"hologram","agentId":%q,"timestamp":%d,"beam":[1,2]}`, a.session, a.log.now+17))})
	a.emit(&chunk.ErrorChunk{Error: "a tool forgot its manners", Code: "manners"})
	a.text("", "Hello, ", "hello.")
	a.closeModel("stop", false)
	a.emit(&chunk.ExecutorHandedOver{Epoch: 1})
	a.commit(false)
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}
