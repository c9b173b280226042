package scripted

import (
	"iter"
	"slices"

	"github.com/spool-run/spool/model"
)

// The scenes of an agent with a sub-agent called researcher, and what the
// researcher does when it is told.
var (
	agents = Steps(
		Say(
			Reasoning("Two questions that have nothing to do with each other: two researchers can look at them at the same time."),
			Text("I will have two researchers look at this. "),
			Calls(
				ToolCall{ID: "call_0", Name: "subagent__researcher", Arguments: `{"task":"Research the weather in Lisbon for the coming days."}`},
				ToolCall{ID: "call_1", Name: "subagent__researcher", Arguments: `{"task":"Recall what makes a good day in Lisbon."}`})),
		Say(Text("Both are back, and their work is in this log beside mine.\n\n"+
			"- The weather will be kind: walk in the mornings.\n"+
			"- A good day begins in Alfama and ends by the river.\n\n"+
			"Each of them had a history of its own; you can open it from its call above.")))

	research = Steps(
		Say(
			Reasoning("The station knows."),
			Calls(ToolCall{ID: "call_0", Name: "get_weather", Arguments: `{"city":"Lisbon"}`})),
		Say(Text("The station says it will be mild and mostly dry, with some wind towards the evening.")))

	recall = Steps(Say(
		Reasoning("No tool is needed for this one."),
		Text("Begin in Alfama while it is quiet, take the tram when the legs complain, and be at the river when the sun goes down.")))

	agentsApprove = Steps(
		Say(
			Text("A colleague will book this, if you agree. "),
			Calls(ToolCall{ID: "call_0", Name: "subagent__researcher", Arguments: `{"task":"Book three days in Lisbon."}`})),
		Say(Text("My colleague is done. Whatever you decided was decided once, and both of us went on from there.")))
)

// book asks before it books, as approve does.
func book(c Call) iter.Seq2[model.Part, error] {
	if c.Round == 0 {
		return Steps(Say(
			Text("This costs money, so I ask first. "),
			Calls(ToolCall{ID: "call_0", Name: "book_trip", Arguments: `{"city":"Lisbon","days":3}`})))(c)
	}
	if slices.Contains(c.Denied, "book_trip") {
		return Steps(Say(Text("You said no, so I booked nothing.")))(c)
	}
	return Steps(Say(Text("It is booked.")))(c)
}
