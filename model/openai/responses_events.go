package openai

import (
	"strings"

	"github.com/spool-run/spool/model/internal/provider"
)

// responseEvents says what each kind of event does. The kinds are the types without
// "response." before them. Several names stand for the same where providers differ.
var responseEvents = map[string]func(*response, *responseEvent){
	"created":     func(in *response, e *responseEvent) { in.created(e.Response) },
	"queued":      (*response).progressed,
	"in_progress": (*response).progressed,
	"completed":   (*response).concluded,
	"incomplete":  (*response).concluded,
	"failed":      (*response).concluded,
	"cancelled":   (*response).concluded,
	"done":        (*response).concluded,

	"output_item.added":    (*response).itemAdded,
	"output_item.done":     (*response).itemDone,
	"content_part.added":   (*response).partAdded,
	"content_part.done":    (*response).partDone,
	"reasoning_part.added": (*response).partAdded,
	"reasoning_part.done":  (*response).partDone,

	"output_text.delta":             (*response).textDelta,
	"text.delta":                    (*response).textDelta,
	"output_text.done":              (*response).textDone,
	"text.done":                     (*response).textDone,
	"refusal.delta":                 (*response).refusalDelta,
	"refusal.done":                  (*response).refusalDone,
	"output_text.annotation.added":  (*response).annotationAdded,
	"output_text_annotation.added":  (*response).annotationAdded,
	"audio.transcript.delta":        (*response).textDelta,
	"output_audio_transcript.delta": (*response).textDelta,
	"audio.delta":                   (*response).audioDelta,
	"output_audio.delta":            (*response).audioDelta,

	"reasoning_summary_text.delta": (*response).summaryDelta,
	"reasoning_summary.delta":      (*response).summaryDelta,
	"reasoning_summary_text.done":  (*response).summaryDone,
	"reasoning_summary.done":       (*response).summaryDone,
	"reasoning_summary_part.added": (*response).summaryPart,
	"reasoning_summary_part.done":  (*response).summaryPart,
	"reasoning_text.delta":         (*response).reasoningDelta,
	"reasoning.delta":              (*response).reasoningDelta,
	"reasoning_text.done":          (*response).reasoningDone,
	"reasoning.done":               (*response).reasoningDone,

	"function_call_arguments.delta": (*response).argumentsDelta,
	"function_call_arguments.done":  (*response).argumentsDone,
	"custom_tool_call_input.delta":  (*response).argumentsDelta,
	"custom_tool_call_input.done":   (*response).inputDone,
}

// apply does what an event says. Events of kinds that came later than this code do
// nothing.
func (in *response) apply(e *responseEvent) {
	if do := responseEvents[e.kind()]; do != nil {
		do(in, e)
	}
}

func (e *responseEvent) kind() string { return strings.TrimPrefix(e.Type, "response.") }

// progressed: the provider says that it works, and on which answer.
func (in *response) progressed(e *responseEvent) { in.name(e.Response) }

// concluded ends the answer. The event's kind stands for a status that it does not
// give.
func (in *response) concluded(e *responseEvent) {
	var body responseBody
	if provider.Decode(e.Response, &body) != nil {
		body = responseBody{}
	}
	if body.Status == "" {
		body.Status = e.kind()
	}
	in.conclude(&body)
}

func (in *response) itemAdded(e *responseEvent) {
	if e.Item != nil {
		in.begin(in.index(e), e.Item)
	}
}

func (in *response) itemDone(e *responseEvent) {
	if e.Item != nil {
		in.finish(in.index(e), e.Item)
	}
}

func (in *response) partAdded(e *responseEvent) {
	if e.Part != nil {
		it := in.find(e, kindOf(e.Part.Type))
		it.announce(number(e.Content))
		in.content(it, number(e.Content), e.Part)
	}
}

func (in *response) partDone(e *responseEvent) {
	if e.Part != nil {
		in.content(in.find(e, kindOf(e.Part.Type)), number(e.Content), e.Part)
	}
}

func (in *response) textDelta(e *responseEvent) {
	in.text(in.find(e, "message"), number(e.Content), in.deltaText(e.Delta))
}

func (in *response) textDone(e *responseEvent) {
	in.wholeText(in.find(e, "message"), number(e.Content), e.Text)
}

func (in *response) refusalDelta(e *responseEvent) {
	in.denied = true
	in.textDelta(e)
}

func (in *response) refusalDone(e *responseEvent) {
	in.denied = true
	in.wholeText(in.find(e, "message"), number(e.Content), e.Refusal)
}

func (in *response) annotationAdded(e *responseEvent) { in.annotate(e.Annotation) }

func (in *response) audioDelta(e *responseEvent) { in.sound.add(argumentText(e.Delta)) }

func (in *response) summaryDelta(e *responseEvent) {
	in.think(in.find(e, "reasoning"), number(e.Summary), in.deltaText(e.Delta))
}

func (in *response) summaryDone(e *responseEvent) {
	in.wholeThought(in.find(e, "reasoning"), number(e.Summary), e.Text)
}

func (in *response) summaryPart(e *responseEvent) {
	if e.Part != nil {
		in.wholeThought(in.find(e, "reasoning"), number(e.Summary), e.Part.Text)
	}
}

func (in *response) reasoningDelta(e *responseEvent) {
	in.think(in.find(e, "reasoning"), rawThought+number(e.Content), in.deltaText(e.Delta))
}

func (in *response) reasoningDone(e *responseEvent) {
	in.wholeThought(in.find(e, "reasoning"), rawThought+number(e.Content), e.Text)
}

func (in *response) argumentsDelta(e *responseEvent) {
	it := in.find(e, "function_call")
	in.named(it, e.Name)
	in.arguments(it, in.deltaText(e.Delta))
}

func (in *response) argumentsDone(e *responseEvent) {
	it := in.find(e, "function_call")
	in.named(it, e.Name)
	in.wholeArguments(it, argumentText(e.Arguments))
}

// inputDone: a custom tool's input is text, whose deltas are those of arguments.
func (in *response) inputDone(e *responseEvent) {
	in.wholeArguments(in.find(e, "custom_tool_call"), e.Input)
}
