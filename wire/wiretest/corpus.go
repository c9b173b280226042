package wiretest

import (
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
)

// Session is the session id of the corpus.
const Session = "corpus"

// Corpus returns a realistic log: several turns and runs with every chunk type
// that this version knows, every end that a run can have, calls that wait for
// people, clients and children, a crash, commands that repeat and commands that
// are refused, an edit and a regeneration, series of records, and a chunk of a
// type that nobody knows. It is the same at every call.
func Corpus() []spool.Record {
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
func KeptOnly(log []spool.Record) []spool.Record {
	var kept []spool.Record
	for _, r := range log {
		if r.Class == spool.Kept {
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
	a.say("cmd-busy", "Hello?", spool.BusyReject)
	a.callArgs("call-1", "search", true, `{"query"`, `:"news \u0026 more"`, `}`)
	a.callArgs("call-2", "fetch", true, `{"url":"https://example.com/a b"}`)
	a.closeModel("tool-calls", false)
	a.start("call-1", "search", `{"query":"news & more"}`)
	a.start("call-2", "fetch", `{"url":"https://example.com/a b"}`)
	half, done := 50.0, 100.0
	a.progress(spool.Progress{ID: "p1", Label: "Searching", State: "running", Percent: &half}, `{"id":"p1","label":"Searching","state":"running","percent":50}`)
	a.show("chart", "c1", `{"points":[1]}`)
	a.emit(&spool.StatePatch{ToolCallID: "call-1", Patches: []spool.PatchOperation{
		{Op: "add", Path: "/notes", Value: json.RawMessage(`[]`)}, {Op: "add", Path: "/notes/-", Value: json.RawMessage(`"first"`)},
	}})
	a.emit(&spool.ToolEnd{ToolCallID: "call-1", ToolName: "search", Result: json.RawMessage(`{"hits":1}`), Success: true, Preliminary: true})
	a.show("chart", "c1", `{"points":[1,2]}`)
	a.end("call-2", "fetch", `null`, "connection refused")
	a.progress(spool.Progress{ID: "p1", Label: "Searching", State: "done", Percent: &done}, `{"id":"p1","label":"Searching","state":"done","percent":100}`)
	a.progress(spool.Progress{ID: "p2", Parent: "p1", Data: json.RawMessage(`{"n":2}`)}, `{"id":"p2","parent":"p1","data":{"n":2}}`)
	a.end("call-1", "search", `{"hits":[{"title":"A <b> & c","score":0.5}]}`, "")
	a.commit(true)

	a.say("cmd-2", "Then book it.", spool.BusyQueue)
	a.beginStep()
	a.text("t1", "Here it is: ")
	a.text("t2", "the second block")
	a.emit(&spool.Citation{SourceID: "src-1", URL: "https://example.com/a", Title: "A", CitedText: "quoted"})
	a.emit(&spool.Citation{SourceID: "src-2", Title: "Paper", MediaType: "application/pdf", Filename: "paper.pdf"})
	a.emit(&spool.File{URL: "data:text/plain,hello", MediaType: "text/plain", Filename: "hello.txt"})
	a.emit(&spool.Custom{EventName: "note", Data: json.RawMessage(`{"kept":true}`)})
	a.emit(&spool.Custom{EventName: "blink", Data: json.RawMessage(`1`), Transient: true})
	a.show("chart", "c1", `{"points":[1,2,3]}`)
	a.text("t2", ", which ends in a few words of its own.")
	a.closeModel("stop", true)
	a.emit(&spool.UsageReport{Usage: spool.Usage{InputTokens: 80, OutputTokens: 30, ReasoningTokens: 5, CachedInputTokens: 40}})
	a.commit(false)
	a.emit(&spool.Output{Output: json.RawMessage(`{"answer":42}`)})
	a.finish(spool.OutcomeCompleted, "stop", "", "")
}

// waitingTurn is the queued one. It waits for an approval, for a client's tool
// and for a child.
func waitingTurn(a *agent) {
	a.begin("run-2", "cmd-2", "cmd-2")
	a.beginStep()
	a.callArgs("call-3", "book", true, `{"seats":`, `2}`)
	a.callArgs("call-4", "cancel", true, `{}`)
	a.closeModel("tool-calls", false)
	a.emit(&spool.ToolApprovalRequest{ApprovalID: "appr-1", ToolCallID: "call-3", ToolName: "book", Input: json.RawMessage(`{"seats":2}`)})
	a.emit(&spool.ToolApprovalRequest{ApprovalID: "appr-2", ToolCallID: "call-4", ToolName: "cancel", Input: json.RawMessage(`{}`)})
	a.emit(&spool.RunPaused{Reason: "approval", PendingToolName: "book", PendingToolCallID: "call-3"})
	a.suspend("awaiting_approval", "call-3", "call-4")
	a.command(&spool.ToolApprovalResponse{CommandID: "cmd-3", ApprovalID: "appr-1", Approved: true})
	a.command(&spool.ToolApprovalResponse{CommandID: "cmd-4", ApprovalID: "appr-2", Reason: "too late"})
	a.command(&spool.ToolApprovalResponse{CommandID: "cmd-5", ApprovalID: "appr-2", Approved: true}) // a second tab, late

	step, checkpoint := a.stepID, "cp-run-1-step-2"
	a.resume("run-3", "approval", "cmd-3", "cmd-4")
	a.emit(&spool.RunResumed{FromCheckpointID: &checkpoint, FromStepCount: 2, Mode: "approval"})
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
	a.command(&spool.ToolResultSubmitted{CommandID: "cmd-6", ToolCallID: "call-5", Result: json.RawMessage(`{"lat":52.5}`)})

	step = a.stepID
	a.resume("run-4", "client_tool_result", "cmd-6")
	a.emit(&spool.RunResumed{FromStepCount: 1, Mode: "client_tool_result"})
	a.stepID, a.step = step, 2
	a.end("call-5", "location", `{"lat":52.5}`, "")
	a.commit(false)

	a.beginStep()
	a.callArgs("call-6", "research", true, `{"topic":"trains"}`)
	a.closeModel("tool-calls", false)
	a.start("call-6", "research", `{"topic":"trains"}`)
	child := &agent{log: a.log, session: Session + ".1", kind: "researcher"}
	a.emit(&spool.SubAgentStart{SubAgentType: child.kind, SubSessionID: child.session, CallID: "call-6"})
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
	child.finish(spool.OutcomeCompleted, "stop", "", "")
	a.emit(&spool.SubAgentEnd{SubAgentType: child.kind, SubSessionID: child.session, CallID: "call-6", Result: json.RawMessage(`"hourly"`)})
	a.end("call-6", "research", `"hourly"`, "")
	a.commit(false)
	a.beginStep()
	a.text("", "Trains leave hourly.")
	a.closeModel("stop", false)
	a.commit(false)
	a.finish(spool.OutcomeCompleted, "stop", "", "")
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
	a.emit(&spool.ExecutorSuperseded{Reason: "lease_expired"})
	a.discard("crash_recovery")
	a.emit(&spool.StreamResync{CheckpointID: "cp-run-4-step-4", MessageCount: 5, FromSequence: uint64(len(a.log.records)), Reason: "crash_recovery"})

	a.beginStep()
	a.text("", "Long ago")
	a.callArgs("call-8", "draw", true, `{"what":`) // not JSON, though it ended
	a.callArgs("call-9", "paint", true, `{}`)
	a.closeModel("tool-calls", false)
	a.emit(&spool.ToolInputError{ToolCallID: "call-8", ToolName: "draw", Input: json.RawMessage(`"{\"what\":"`), Error: "unexpected end of JSON input"})
	a.start("call-9", "paint", `{}`)
	a.emit(&spool.ToolOutputError{ToolCallID: "call-9", ToolName: "paint", Error: "no paint"})
	a.commit(false)
	a.beginStep()
	a.emit(&spool.ErrorChunk{Error: "the provider is overloaded", Code: "provider_overloaded", Recoverable: true})
	a.text("", "There ", "lived")
	a.callArgs("call-10", "draw", false, `{"wh`)
	a.command(&spool.StopRequested{CommandID: "cmd-8", Target: "run-5", Reason: "enough"})

	a.emit(&spool.AssistantMessage{MessageID: a.message, StepID: a.stepID, Parts: a.parts, FinishReason: "other", Partial: true})
	a.parts = nil
	a.emit(&spool.ToolInputError{ToolCallID: "call-10", ToolName: "draw", Input: json.RawMessage(`"{\"wh"`), Error: "stopped"})
	a.emit(&spool.StepCommitted{StepID: a.stepID, Partial: true})
	a.finish(spool.OutcomeStopped, "other", "", "")
}

// interruptedTurn is a regenerated answer that was interrupted, goes on and
// fails.
func interruptedTurn(a *agent) {
	a.command(&spool.HistoryRewound{CommandID: "cmd-9", AfterMessageID: "user-cmd-7", Trigger: "regenerate", WhenBusy: spool.BusyInterrupt})
	a.begin("run-6", "cmd-9", "cmd-9")
	a.beginStep()
	a.text("", "Chapter one.")
	a.show("chart", "c3", `{"chapter":1}`)
	a.closeModel("tool-calls", false)
	a.commit(false)
	checkpoint := "cp-" + a.run + "-step-1"
	a.beginStep()
	a.command(&spool.InterruptRequested{CommandID: "cmd-15", Target: "run-6", Reason: "user"})
	a.text("", "Chapter tw")
	a.discard("interrupted")
	a.emit(&spool.RunInterrupted{CheckpointID: &checkpoint, Reason: "user"})
	a.suspend("interrupted")

	a.command(&spool.ResumeRequested{CommandID: "cmd-16", Mode: spool.ModeContinue, Target: "run-6"})
	a.resume("run-7", "continue", "cmd-16")
	a.emit(&spool.RunResumed{FromCheckpointID: &checkpoint, FromStepCount: 1, Mode: "continue"})
	a.beginStep()
	a.emit(&spool.AnswerStarted{StepID: a.stepID, Cursor: "resp_1:0"})
	a.text("", "Chapter two")
	a.callArgs("call-11", "draw", true, `{"what":"a dragon"}`)
	a.closeModel("tool-calls", false)
	a.start("call-11", "draw", `{"what":"a dragon"}`)
	a.show("chart", "c3", `{"chapter":2}`)
	a.end("call-11", "draw", `null`, "the run failed")
	a.emit(&spool.StepCommitted{StepID: a.stepID, Data: a.settled(), Partial: true})
	a.finish(spool.OutcomeFailed, "error", "the model is gone", "provider_error")
}

// rolledBackTurn goes back to the checkpoint of the turn that failed, and on from
// there.
func rolledBackTurn(a *agent) {
	var at spool.Checkpoint
	f := spool.NewFold(a.session)
	for _, r := range a.log.records {
		if c, err := spool.DecodeChunk(r.Data); err == nil && at.Seq == 0 {
			f.ApplyChunk(r, c)
			if n := len(f.Checkpoints); n > 0 && f.Checkpoints[n-1].RunID == "run-6" {
				at = f.Checkpoints[n-1]
			}
		}
	}
	for _, c := range f.Content("cmd-17", at.ID) {
		a.command(c)
	}
	a.command(&spool.ResumeRequested{CommandID: "cmd-18", Mode: spool.ModeRetry, CheckpointID: at.ID})
	a.turn, a.message, a.data, a.dirty = "cmd-18", "answer-cmd-18", nil, map[int]bool{}
	a.resume("run-11", spool.ModeRetry, "cmd-18")
	a.emit(&spool.RunResumed{FromCheckpointID: &at.ID, FromStepCount: at.StepCount, Mode: spool.ModeRetry})
	a.emit(&spool.StreamResync{CheckpointID: at.ID, StepCount: at.StepCount, MessageCount: at.MessageCount, FromSequence: at.Seq, Reason: "rollback"})
	a.beginStep()
	a.text("", "Chapter two, ", "again")
	a.closeModel("stop", false)
	a.commit(false)
	a.finish(spool.OutcomeCompleted, "stop", "", "")
}

// steeredTurns are an edited message whose answer is steered away from, and the
// turn that the steering opens, which runs into its limit.
func steeredTurns(a *agent) {
	a.command(&spool.HistoryRewound{CommandID: "cmd-10", AfterMessageID: "answer-cmd-2", Trigger: "edit", WhenBusy: spool.BusyInterrupt})
	a.say("cmd-11", "Write a short story.", spool.BusyInterrupt)
	a.begin("run-8", "cmd-11", "cmd-10", "cmd-11")
	a.beginStep()
	a.text("", "A cat ", "sat.")
	a.say("cmd-12", "About a dog, please.", spool.BusySteer)
	a.text("", " It purred.")
	a.closeModel("stop", false)
	a.commit(false)
	a.finish(spool.OutcomeSteered, "other", "", "")

	a.begin("run-9", "cmd-12", "cmd-12")
	a.beginStep()
	a.text("", "A dog barked")
	a.closeModel("length", false)
	a.commit(false)
	a.finish(spool.OutcomeLimit, "length", "", "max_steps")
}

// replacedHistory gives the session another past, and goes on with a chunk from
// the future.
func replacedHistory(a *agent) {
	past := func(id string, role spool.Role, text string) *[]spool.Message {
		return &[]spool.Message{{ID: id, Role: role, Parts: []spool.Part{{Type: spool.PartText, Text: text}}}}
	}
	a.command(&spool.HistoryReplaced{CommandID: "cmd-13", Messages: past("old-1", spool.RoleUser, "Who are you?"), More: true})
	a.command(&spool.HistoryReplaced{CommandID: "cmd-13", Index: 1, Messages: past("old-2", spool.RoleAssistant, "A parrot."), State: json.RawMessage(`{"name":"Polly"}`)})
	a.say("cmd-14", "Hello again.", "")
	a.begin("run-10", "cmd-14", "cmd-14")
	a.beginStep()
	a.emit(&spool.Unknown{Type: "hologram", Raw: json.RawMessage(fmt.Sprintf(`{"type":"hologram","agentId":%q,"timestamp":%d,"beam":[1,2]}`, a.session, a.log.now+17))})
	a.emit(&spool.ErrorChunk{Error: "a tool forgot its manners", Code: "manners"})
	a.text("", "Hello, ", "hello.")
	a.closeModel("stop", false)
	a.commit(false)
	a.finish(spool.OutcomeCompleted, "stop", "", "")
}
