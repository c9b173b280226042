package wiretest

import (
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool/chunk"
)

// Agents returns a log of agents that call agents: in parallel, in generations,
// failing, crashing, waiting for answers at every depth, stopped, and one that
// outlives the call and the turn in which it began. It is the same at every call.
func Agents() []chunk.Record {
	b := &builder{now: 1763730000000}
	a := &agent{log: b, session: Session, kind: "lead"}
	parallelAgents(a)
	waitingAgents(a)
	stoppedAgents(a)
	companion(a)
	return b.records
}

// dispatch begins a call that asks made.
func (a *agent) dispatch(call string) {
	a.start(call, "agent__"+call, `{"topic":"`+call+`"}`)
}

// child dispatches a call and begins a child agent for it, with a task.
func (a *agent) child(n int, kind, call, mode, task string) *agent {
	a.dispatch(call)
	c := &agent{log: a.log, session: fmt.Sprintf("%s.%d", a.session, n), kind: kind, call: call}
	a.emit(&chunk.SubAgentStart{SubAgentType: kind, SubSessionID: c.session, CallID: call, Mode: mode})
	c.told(fmt.Sprintf("task-%s", c.session), task, fmt.Sprintf("%s.%d-r1", a.run, n))
	return c
}

// told gives a child a task and begins its turn.
func (a *agent) told(id, task, run string) {
	a.say(id, task, "")
	a.begin(run, id, id)
}

// done ends a child whose result is its call's.
func (a *agent) done(c *agent, result, failure string) {
	a.emit(&chunk.SubAgentEnd{SubAgentType: c.kind, SubSessionID: c.session, CallID: c.call, Result: json.RawMessage(result), Error: failure})
	a.end(c.call, "agent__"+c.call, result, failure)
}

// asks opens a step that calls tools, up to their dispatch.
func (a *agent) asks(text string, calls ...string) {
	a.beginStep()
	if text != "" {
		a.text("", text[:len(text)/2], text[len(text)/2:])
	}
	for _, call := range calls {
		a.callArgs(call, "agent__"+call, true, `{"topic":`, `"`+call+`"}`)
	}
	a.closeModel("tool-calls", false)
}

// says is a step of words alone.
func (a *agent) says(text string) {
	a.beginStep()
	a.text("", text[:len(text)/2], text[len(text)/2:])
	a.closeModel("stop", false)
	a.commit(false)
}

// ends is a child's last words.
func (a *agent) ends(text string) {
	a.says(text)
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}

// parallelAgents has two children at once, one with a child of its own, and one
// whose owner is lost twice: in the middle of its words, which are retracted, and of
// the records that close them, which are written again. Then it fails.
func parallelAgents(a *agent) {
	a.say("cmd-1", "Compare trains and planes.", "")
	a.begin("run-1", "cmd-1", "cmd-1")
	a.asks("I will ask two of mine.", "trains", "planes", "search")
	trains := a.child(1, "researcher", "trains", "", "Trains?")
	planes := a.child(2, "researcher", "planes", "", "Planes?")
	a.dispatch("search")

	trains.beginStep()
	planes.beginStep()
	trains.think("", json.RawMessage(`{"anthropic":{"signature":"dHJhaW5z"}}`), "Rails ", "first.")
	planes.text("", "Planes ")
	trains.text("", "Trains ")
	planes.text("", "fly")
	a.emit(&chunk.Custom{EventName: "note", Data: json.RawMessage(`{"of":"the lead"}`)})
	trains.text("", "leave hourly.")
	planes.callArgs("search", "agent__search", false, `{"topic":"pl`)
	a.emit(&chunk.ExecutorSuperseded{Reason: "lease_expired"})
	planes.discard("crash_recovery")
	trains.callArgs("call-1", "search", true, `{"query":"trains"}`)
	trains.closeModel("tool-calls", false)
	planes.emit(&chunk.StreamResync{MessageCount: 1, FromSequence: uint64(len(a.log.records)), Reason: "crash_recovery"})
	trains.start("call-1", "search", `{"query":"trains"}`)
	planes.beginStep()
	planes.text("", "Planes", " are fast.")
	half := 50.0
	trains.progress(chunk.Progress{ID: "call-1", Label: "Searching", Percent: &half}, `{"id":"call-1","label":"Searching","percent":50}`)
	a.end("search", "agent__search", `{"hits":2}`, "")
	trains.emit(&chunk.Custom{EventName: "note", Data: json.RawMessage(`{"of":"trains"}`)})
	trains.show("chart", "c1", `{"child":1}`)
	trains.emit(&chunk.ToolEnd{ToolCallID: "call-1", ToolName: "search", Result: json.RawMessage(`[1]`), Success: true, Preliminary: true})
	trains.end("call-1", "search", `[1,2]`, "")
	planes.beginClose()
	a.emit(&chunk.ExecutorSuperseded{Reason: "lease_expired"})
	planes.closeModel("stop", true)
	trains.commit(false)

	trains.asks("", "history")
	history := trains.child(1, "historian", "history", "", "When?")
	history.says("In 1825. ")
	planes.commit(false)
	planes.finish(chunk.OutcomeFailed, "error", "no fuel", "provider_error")
	a.done(planes, `null`, "no fuel")
	history.beginStep()
	history.text("", "Or so ", "they say.")
	history.emit(&chunk.Citation{SourceID: "src-1", URL: "https://example.com/a", Title: "A"})
	history.closeModel("stop", false)
	history.commit(false)
	history.finish(chunk.OutcomeCompleted, "stop", "", "")
	trains.done(history, `"1825"`, "")
	trains.show("chart", "c1", `{"child":2}`)
	trains.commit(false)
	trains.ends("Trains are older.")
	a.done(trains, `"older"`, "")
	a.commit(false)
	a.says("Trains it is.")
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}

// waitingAgents wait: one for a decision, one two generations down for a client,
// while a third goes on; then one is denied.
func waitingAgents(a *agent) {
	a.say("cmd-2", "Book both.", "")
	a.begin("run-2", "cmd-2", "cmd-2")
	a.asks("", "book", "place", "walk")
	book := a.child(3, "booker", "book", "", "Book.")
	place := a.child(4, "locator", "place", "", "Where?")
	walk := a.child(5, "walker", "walk", "", "Walk.")

	book.beginStep()
	book.callArgs("pay", "pay", true, `{"amount":2}`)
	book.callArgs("sign", "sign", true, `{}`)
	book.closeModel("tool-calls", false)
	place.asks("", "phone")
	phone := place.child(1, "phone", "phone", "", "Ask the phone.")
	walk.beginStep()
	walk.text("", "Step")
	book.emit(&chunk.ToolApprovalRequest{ApprovalID: "appr-pay", ToolCallID: "pay", ToolName: "pay", Input: json.RawMessage(`{"amount":2}`)})
	book.emit(&chunk.ToolApprovalRequest{ApprovalID: "appr-sign", ToolCallID: "sign", ToolName: "sign", Input: json.RawMessage(`{}`)})
	book.suspend("awaiting_approval", "pay", "sign")
	phone.beginStep()
	phone.text("", "Where are you?")
	phone.callArgs("location", "location", true, `{}`)
	phone.closeModel("tool-calls", false)
	phone.start("location", "location", `{}`)
	phone.suspend("awaiting_client_tool", "location")
	place.emit(&chunk.RunSuspended{Kind: "awaiting_children", Children: []string{phone.session}, StepID: place.stepID})
	walk.text("", " by step.")
	walk.closeModel("stop", false)
	walk.commit(false)
	walk.finish(chunk.OutcomeCompleted, "stop", "", "")
	a.done(walk, `"walked"`, "")
	a.emit(&chunk.RunSuspended{Kind: "awaiting_children", Children: []string{book.session, place.session}, StepID: a.stepID, Data: a.settled()})
	answeredAgents(a, book, place, phone)
}

// answeredAgents get what they waited for, and go on from the deepest up.
func answeredAgents(a, book, place, phone *agent) {
	book.command(&chunk.ToolApprovalResponse{CommandID: "cmd-3", ApprovalID: "appr-pay", Approved: true})
	phone.command(&chunk.ToolResultSubmitted{CommandID: "cmd-4", ToolCallID: "location", Result: json.RawMessage(`{"lat":52.5}`)})
	phone.command(&chunk.ToolResultSubmitted{CommandID: "cmd-5", ToolCallID: "location", Result: json.RawMessage(`{"lat":0}`)}) // late
	book.command(&chunk.ToolApprovalResponse{CommandID: "cmd-6", ApprovalID: "appr-sign", Reason: "not I"})

	step, bookStep, placeStep, phoneStep := a.stepID, book.stepID, place.stepID, phone.stepID
	a.resume("run-3", "approval", "cmd-3", "cmd-4", "cmd-6")
	a.stepID, a.step = step, 1
	book.resume("run-3.3-r2", "approval", "cmd-3", "cmd-6")
	book.stepID, book.step = bookStep, 1
	place.resume("run-3.4-r2", "client_tool_result")
	place.stepID, place.step = placeStep, 1
	phone.resume("run-3.4-r2.1-r2", "client_tool_result", "cmd-4")
	phone.stepID, phone.step = phoneStep, 1
	book.start("pay", "pay", `{"amount":2}`)
	phone.end("location", "location", `{"lat":52.5}`, "")
	phone.commit(false)
	phone.ends("Berlin.")
	book.end("pay", "pay", `{"paid":true}`, "")
	place.done(phone, `"Berlin"`, "")
	place.commit(false)
	place.ends("In Berlin.")
	a.done(place, `"Berlin"`, "")
	book.end("sign", "sign", `null`, "the user said no: not I")
	book.commit(false)
	book.ends("Paid, not signed.")
	a.done(book, `"paid"`, "")
	a.commit(false)
	a.says("Booked, in part.")
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}

// stoppedAgents are stopped in mid-word.
func stoppedAgents(a *agent) {
	a.say("cmd-7", "Again.", "")
	a.begin("run-4", "cmd-7", "cmd-7")
	a.asks("", "again")
	again := a.child(6, "researcher", "again", "", "Again.")
	again.asks("Not aga", "deep")
	deep := again.child(1, "diver", "deep", "", "Dive.")
	deep.beginStep()
	deep.text("", "Glu", "gg")
	deep.callArgs("swim", "swim", false, `{"to`)
	a.command(&chunk.StopRequested{CommandID: "cmd-8", Target: "run-4"})
	deep.emit(&chunk.AssistantMessage{MessageID: deep.message, StepID: deep.stepID, Parts: deep.parts, FinishReason: "other", Partial: true})
	deep.emit(&chunk.ToolInputError{ToolCallID: "swim", ToolName: "swim", Input: json.RawMessage(`"{\"to"`), Error: "stopped"})
	deep.emit(&chunk.StepCommitted{StepID: deep.stepID, Partial: true})
	deep.finish(chunk.OutcomeStopped, "other", "", "")
	again.done(deep, `null`, "stopped")
	again.emit(&chunk.StepCommitted{StepID: again.stepID, Partial: true})
	again.finish(chunk.OutcomeStopped, "other", "", "")
	a.done(again, `null`, "stopped")
	a.emit(&chunk.StepCommitted{StepID: a.stepID, Partial: true})
	a.finish(chunk.OutcomeStopped, "other", "", "")
}

// companion outlives its call: it speaks while its parent does, beyond the step
// and, told again, in another turn.
func companion(a *agent) {
	a.say("cmd-9", "Watch the door.", "")
	a.begin("run-5", "cmd-9", "cmd-9")
	a.asks("", "watch")
	watch := a.child(7, "watcher", "watch", chunk.ChildBackground, "Watch.")
	a.end("watch", "agent__watch", `{"child":"`+watch.session+`"}`, "")
	watch.beginStep()
	watch.text("", "Nobody")
	a.commit(false)
	a.beginStep()
	a.text("", "It ")
	watch.text("", " there.")
	a.text("", "watches")
	watch.callArgs("look", "look", true, `{}`)
	watch.closeModel("tool-calls", false)
	a.text("", ".")
	watch.start("look", "look", `{}`)
	a.closeModel("stop", false)
	a.commit(false)
	watch.end("look", "look", `"a cat"`, "")
	watch.commit(false)
	watch.ends("A cat was there.")
	a.finish(chunk.OutcomeCompleted, "stop", "", "")

	a.say("cmd-10", "And now?", "")
	a.begin("run-6", "cmd-10", "cmd-10")
	a.asks("", "tell")
	a.dispatch("tell")
	watch.step = 0
	watch.told("task-again", "And now?", "run-6.7-r2")
	watch.ends("The cat left.")
	a.end("tell", "agent__tell", `"The cat left."`, "")
	a.commit(false)
	a.says("It left.")
	a.finish(chunk.OutcomeCompleted, "stop", "", "")
}
