package scripted

import (
	_ "embed" // the essay
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/model"
)

var builtin = map[string]Scene{
	"hello": Steps(Say(Text("Hello! I am a scripted model: I say the same words every time, and every one of them " +
		"is in the log before you see it. Reload the page while I talk and nothing is lost."))),

	"think": Steps(Say(
		Reasoning("The user wants to see reasoning. It should arrive before the answer, in a block of its own. "+
			"Seven times eight is fifty-six, and half of that is twenty-eight."),
		Text("I thought about it first: half of seven times eight is **28**. "+
			"The reasoning above is part of the message and survives a reload, as this text does."))),

	"tools": Steps(
		Say(
			Reasoning("A trip to Lisbon. The weather and the notes do not depend on each other, so both can be asked for at once."),
			Text("Let me look at the weather and at your notes. "),
			Calls(
				ToolCall{ID: "call_0", Name: "get_weather", Arguments: `{"city":"Lisbon"}`},
				ToolCall{ID: "call_1", Name: "search_notes", Arguments: `{"query":"packing for Lisbon"}`})),
		Say(Calls(
			ToolCall{ID: "call_0", Name: "plan_trip", Arguments: `{"city":"Lisbon","days":3}`})),
		Say(Text("Your three days in Lisbon are planned.\n\n"+
			"1. Alfama and the castle, on foot.\n"+
			"2. Belém by tram, with a stop for *pastéis de nata*.\n"+
			"3. Sintra by train, back by the evening.\n\n"+
			"The weather will be kind; your notes say to pack good shoes and one warm layer. "+
			"That took three steps and three tool calls, two of them in parallel."))),

	"long": Steps(Say(Text(strings.TrimSpace(essay)))),
	"bulk": bulk,

	"approve":   approve,
	"meanwhile": approve,

	"client-tool": Steps(
		Say(
			Text("Where are you? Only your browser knows. "),
			Calls(ToolCall{ID: "call_0", Name: "get_location", Arguments: `{}`})),
		Say(Text("Thank you: that is what your browser said, and it is in the log now."))),

	"branch": branch,

	"agents":         agents,
	"agents-approve": agentsApprove,
	"research":       research, // what the agents of the scenes before are told
	"recall":         recall,
	"book":           book,

	"fail": Steps(Step{
		Parts: Text("I will begin to answer, and in the middle of this sentence the provider "),
		Err:   &model.Error{Code: model.CodeUnavailable, Message: "the scripted provider failed in the middle of its answer, as requested", StatusCode: 503},
	}),
}

var tour = Steps(Say(Text("This is Spool's demo. No model is configured, so a scripted one answers: " +
	"what it says depends only on the first word of your message.\n\n" +
	"- `hello`: a short answer.\n" +
	"- `think`: reasoning, then an answer.\n" +
	"- `tools`: three steps, two tools in parallel, progress and state.\n" +
	"- `long`: a short history of logs, of a few minutes' reading. Reload, close the laptop, open a second tab, kill the server.\n" +
	"- `approve`: a call that waits for your approval, for days if need be.\n" +
	"- `meanwhile`: the same, while another call still runs.\n" +
	"- `client-tool`: a call that the browser answers.\n" +
	"- `branch`: a journey of three steps, each a checkpoint to go back to or to branch from.\n" +
	"- `agents`: two agents at work for another one, at the same time.\n" +
	"- `agents-approve`: an agent of an agent that waits for your approval.\n" +
	"- `fail`: an error in mid-answer.\n" +
	"- `bulk`: " + strconv.Itoa(bulkDeltas) + " deltas of nonsense, for measurements.\n\n" +
	"Set `OPENAI_API_KEY`, `OPENAI_BASE_URL` or `ANTHROPIC_API_KEY` to talk to a real model.")))

// approve asks before it books, and takes no for an answer. Meanwhile it may look
// at the weather.
func approve(c Call) iter.Seq2[model.Part, error] {
	if c.Round == 0 {
		calls := []ToolCall{{ID: "call_0", Name: "book_trip", Arguments: `{"city":"Lisbon","days":3}`}}
		if strings.HasPrefix(c.Text, "meanwhile") {
			calls = append(calls, ToolCall{ID: "call_1", Name: "get_weather", Arguments: `{"city":"Lisbon"}`})
		}
		return Steps(Say(Text("I can book three days in Lisbon. You decide. "), Calls(calls...)))(c)
	}
	if slices.Contains(c.Denied, "book_trip") {
		return Steps(Say(Text("Then I leave it. Nothing was booked.")))(c)
	}
	return Steps(Say(Text("It is booked. The call ran once, after you said yes.")))(c)
}

// branch plans one stop in each step, so that there are steps to go back to. With
// south as its second word it takes another route.
func branch(c Call) iter.Seq2[model.Part, error] {
	stop := func(before, city string, days int) Step {
		return Say(Text(before), Calls(ToolCall{ID: "call_0", Name: "plan_trip",
			Arguments: `{"city":"` + city + `","days":` + strconv.Itoa(days) + `}`}))
	}
	if _, rest, _ := strings.Cut(strings.TrimSpace(c.Text), " "); strings.HasPrefix(strings.ToLower(strings.TrimSpace(rest)), "south") {
		return Steps(
			stop("South, then. Inland first. ", "Évora", 2),
			stop("And down to the sea. ", "Faro", 3),
			Say(Text("South it is: Évora, then Faro. The other journey is where you left it.")))(c)
	}
	return Steps(
		Step{Parts: append(Reasoning("One stop a step, so that each has a checkpoint of its own."),
			stop("We begin in the capital. ", "Lisbon", 2).Parts...)},
		stop("Then halfway north, to the old university. ", "Coimbra", 1),
		stop("And up to the river with the bridges. ", "Porto", 3),
		Say(Text("Lisbon, Coimbra, Porto: three stops, a step each, and after each a checkpoint.\n\n"+
			"Go back to one of them and the journey goes on from there. Or branch there, say `branch south` "+
			"in the new chat, and compare the two.")))(c)
}

// essay is what long says.
//
//go:embed long.md
var essay string

const bulkDeltas = 20_000

var vocabulary = strings.Fields(`a log keeps what was said and in which order it was said so that whoever comes late
	reads the same story as those who came first every reader holds only a position and asks for what follows
	durable visible record cursor session writer lease epoch frame stream quiet café naïve Lisboa — résumé
	nothing gets lost between the model and the page while the process that ran it may have gone long ago`)

// bulk is Markdown without sense, about 600 KB of it.
func bulk(Call) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		seed := uint32(2463534242)
		next := func(n int) int { // xorshift: the same prose on every machine
			seed ^= seed << 13
			seed ^= seed >> 17
			seed ^= seed << 5
			return int(seed % uint32(n))
		}
		var b strings.Builder
		for i := range bulkDeltas {
			b.Reset()
			switch {
			case i == bulkDeltas-1:
				b.WriteString("\n\nThat was all of it.")
			case i%400 == 0:
				b.WriteString("\n\n## Part " + strconv.Itoa(i/400+1) + "\n\n")
			case i%400 == 200:
				b.WriteString("\n\n```go\nfor r := range log.Records(ctx) {\n\tfold.Apply(r)\n}\n```\n\n")
			case i%40 == 0:
				b.WriteString("\n\n")
			case i%400 > 360 && i%8 == 0:
				b.WriteString("\n- ")
			}
			for n := 3 + next(6); n > 0 && i < bulkDeltas-1; n-- {
				word := vocabulary[next(len(vocabulary))]
				if next(40) == 0 {
					word = "**" + word + "**"
				}
				b.WriteString(word)
				b.WriteByte(' ')
			}
			if next(5) == 0 && i < bulkDeltas-1 {
				b.WriteString("🧵. ")
			}
			if !yield(model.TextDelta{ID: "text", Delta: b.String()}, nil) {
				return
			}
		}
	}
}
