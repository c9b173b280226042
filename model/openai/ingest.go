package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// IngestOptions are the settings of [Ingest]. The zero value is fine.
type IngestOptions struct {
	MaxLine int    // bytes of one line, or of an answer that is not streamed; 0: 32 MiB
	OnData  func() // called for every event that has data; may be nil
	// From names the endpoint that the answer comes from, "" for none. What must be
	// sent back (signatures, encrypted reasoning) then goes to no other.
	From string
}

// Ingest takes the bytes of a chat-completions answer apart, a stream or a whole
// one. The parts do not depend on how src cuts its bytes. Options may be nil.
//
// An answer that ends with neither a finish reason nor [DONE] was cut and ends in
// [model.CodeTruncated]. So does a failed read, unless the finish reason came
// before it; src's error is wrapped.
func Ingest(src io.Reader, o *IngestOptions) iter.Seq2[model.Part, error] {
	if o == nil {
		o = new(IngestOptions)
	}
	return func(yield func(model.Part, error) bool) {
		newReader(yield, o).Read(src)
	}
}

func newReader(yield func(model.Part, error) bool, o *IngestOptions) *provider.Reader {
	in := &ingester{out: provider.Emitter{Yield: yield}, from: o.From}
	in.out.End, in.out.Flush = in.end, in.flush
	return &provider.Reader{Limit: o.MaxLine, OnData: o.OnData, Fast: in.fast, Event: in.event, Whole: in.whole, Out: &in.out}
}

type ingester struct {
	out  provider.Emitter
	from string

	calls   calls
	choice  *int // the choice that is ours: the first one seen
	done    bool // [DONE], or a whole answer
	spoken  bool // there was a message, not a delta
	sources map[string]bool
	cited   int    // how many there are
	quoted  *index // the block that a quotation came in, if no other has begun since

	texts, thoughts int // blocks so far
	inText          bool
	textID          string
	words           provider.Joiner
	thinking        bool
	thoughtID       string
	musings         provider.Joiner
	thought         strings.Builder
	field           string // the member that the reasoning came in
	details         details
	tagged          bool // reasoning in the text, as Google has it
	sound           sound

	strings provider.Strings
	scratch []byte
}

func (in *ingester) event(name string, data []byte) {
	switch {
	case bytes.EqualFold(data, []byte("[DONE]")):
		in.done = true
		in.end()
	case name == "error":
		in.failWith(provider.ErrorMember(data))
	default:
		in.chunk(data)
	}
}

// whole reads an answer that is one JSON value, or one for each chunk.
func (in *ingester) whole(data []byte) {
	values := json.NewDecoder(bytes.NewReader(data))
	var err error
	for !in.out.Stopped && err == nil {
		var value json.RawMessage
		if err = values.Decode(&value); err == nil {
			in.chunk(value)
		}
	}
	if in.choice == nil || err != io.EOF && in.out.Finish == "" {
		in.out.Fail(&model.Error{Code: model.CodeProtocol, Message: "the provider's answer is neither a stream nor a completion: " + provider.Excerpt(string(data))})
	}
	in.done = in.spoken
	in.end()
}

func (in *ingester) chunk(data []byte) {
	var c completion
	if data[0] == '"' || data[0] == '[' { // an error without the object, or a list of errors
		in.failWith(data)
		return
	}
	if err := provider.Decode(data, &c); err != nil {
		return
	}
	in.choose(c.Choices)
	for i := range c.Choices {
		in.take(&c.Choices[i])
	}
	for _, url := range c.Citations {
		in.source(model.Source{URL: url}, nil)
	}
	in.countAll(&c)
	switch failure := c.failure(); {
	case failure != nil:
		in.failWith(failure)
	case c.isError():
		in.failWith(data)
	}
}

// countAll takes the usage from wherever a provider puts it.
func (in *ingester) countAll(c *completion) {
	in.count(c.Usage)
	for i := range c.Choices {
		if c.Usage == nil {
			in.count(c.Choices[i].Usage)
		}
	}
	if c.XGroq != nil {
		in.count(c.XGroq.Usage)
	}
}

// failure returns the error from wherever a provider puts it, or nil.
func (c *completion) failure() json.RawMessage {
	places := [4]json.RawMessage{c.Error, c.Errors}
	if c.BaseResp.Code != 0 {
		places[2], _ = provider.Marshal(map[string]any{"message": c.BaseResp.Message, "code": c.BaseResp.Code})
	}
	if c.XGroq != nil {
		places[3] = c.XGroq.Error
	}
	for _, failure := range places {
		if provider.Said(failure) {
			return failure
		}
	}
	for i := range c.Choices {
		if provider.Said(c.Choices[i].Error) {
			return c.Choices[i].Error
		}
	}
	return nil
}

// isError reports whether the value as a whole is an error.
func (c *completion) isError() bool {
	return c.Object == "error" || c.Type == "error" ||
		len(c.Choices) == 0 && (provider.Said(c.Detail) || provider.Said(c.Message) || provider.Said(c.Msg))
}

// choose decides on the choice that is ours: the first one of the first chunk that
// has any.
func (in *ingester) choose(list []choice) {
	if in.choice != nil || len(list) == 0 {
		return
	}
	in.choice = new(int)
	*in.choice = list[0].number()
	for i := range list {
		*in.choice = min(*in.choice, list[i].number())
	}
}

func (c *choice) number() int {
	if c.Index == nil {
		return 0
	}
	return *c.Index
}

func (in *ingester) take(c *choice) {
	if c.number() != *in.choice {
		return
	}
	if c.Delta != nil {
		in.delta(c.Delta)
	} else if c.Message != nil && in.texts+in.thoughts+len(in.calls.list) == 0 {
		in.delta(c.Message)
	}
	in.spoken = in.spoken || c.Delta == nil && c.Message != nil
	if c.Delta == nil || provider.IsNull(c.Delta.Content) { // Together says it twice
		text, _ := provider.Raw(c.Text)
		in.text(text)
	}
	if in.out.Finish == "" && c.FinishReason != "null" { // as Alibaba's own protocol has it
		in.out.Finish = c.FinishReason
	}
}

func (in *ingester) delta(d *delta) {
	text, piece, files := d.content()
	in.details.opaque += d.ReasoningOpaque
	// Google marks thoughts, and puts them into one pair of tags.
	if d.Extra.Google.Thought {
		text, piece = "", piece+strings.TrimPrefix(text, "<thought>")
		in.tagged = true
	} else if in.tagged && text != "" {
		text, in.tagged = strings.TrimPrefix(text, "</thought>"), false
	}
	// The same reasoning often comes in several members: the first one counts.
	field, said := "reasoning_details", in.details.add(d.ReasoningDetails)
	if said == "" {
		field, said = "content", piece
	}
	for _, m := range []struct {
		field string
		raw   json.RawMessage
	}{{"thinking", d.Thinking}, {"reasoning_text", d.ReasoningText}, {"reasoning", d.Reasoning}, {"reasoning_content", d.ReasoningContent}} {
		if s := thought(m.raw); s != "" {
			field, said = m.field, s
		}
	}
	object := objectOf(d.Reasoning)
	if object.begins(&in.details.object) {
		in.endReasoning()
	}
	in.reasoning(field, said)
	in.details.object.add(object)
	if in.quoted != nil && d.Index != nil && *d.Index > *in.quoted && text != "" {
		in.endText() // so that a quotation is shown with the words that it belongs to
		in.quoted = nil
	}
	in.text(text)
	refusal, _ := provider.Raw(d.Refusal)
	in.text(refusal)
	if d.Audio != nil {
		in.text(string(d.Audio.Transcript))
		in.sound.add(d.Audio.Data)
	}
	for _, a := range d.Annotations {
		in.source(model.Source{URL: a.URL.URL, Title: a.URL.Title, CitedText: a.URL.Content}, nil)
	}
	if d.Citation != nil {
		in.source(d.Citation.source(), d.Index)
		in.quoted = d.Index
	}
	for _, url := range files {
		in.file(url)
	}
	for _, i := range d.Images {
		in.file(i.ImageURL.URL)
	}
	if f := d.FunctionCall; f != nil {
		zero := index(0)
		in.tool(&toolDelta{Index: &zero, Function: *f})
	}
	for i := range d.ToolCalls {
		in.tool(&d.ToolCalls[i])
	}
}

func (in *ingester) text(s string) {
	if s == "" {
		return
	}
	if s = in.words.Add(s); s != "" {
		in.say(s)
	}
}

func (in *ingester) say(s string) {
	in.endReasoning()
	if !in.inText {
		in.inText = true
		in.texts++
		in.textID = "text-" + strconv.Itoa(in.texts)
	}
	in.out.Emit(model.TextDelta{ID: in.textID, Delta: s})
}

// endText ends the text, after what was held back: the beginning of a character.
func (in *ingester) endText() {
	if rest := in.words.End(); rest != "" {
		in.say(rest)
	}
	in.inText = false
}

func (in *ingester) reasoning(field, s string) {
	if s == "" {
		return
	}
	if s = in.musings.Add(s); s != "" {
		in.think(field, s)
	}
}

func (in *ingester) think(field, s string) {
	if !in.thinking {
		in.endText()
		in.thinking, in.field = true, field
		in.thoughts++
		in.thoughtID = "reasoning-" + strconv.Itoa(in.thoughts)
	}
	in.thought.WriteString(s)
	in.out.Emit(model.ReasoningDelta{ID: in.thoughtID, Delta: s})
}

func (in *ingester) endReasoning() {
	if rest := in.musings.End(); rest != "" {
		in.think(in.field, rest)
	}
	if !in.thinking {
		return
	}
	in.thinking = false
	in.out.Emit(model.ReasoningEnd{ID: in.thoughtID, Text: in.thought.String(), Metadata: in.details.metadata(in.field, in.from)})
	in.thought.Reset()
}

func (in *ingester) tool(d *toolDelta) {
	in.endText()
	in.endReasoning()
	for _, p := range in.calls.add(d) {
		in.out.Emit(p)
	}
}

// source emits what the answer cites. Each quotation is emitted once in each block, and
// each source without one once. Block is nil if the provider does not give it.
func (in *ingester) source(s model.Source, block *index) {
	document := s.URL
	if document == "" {
		document = s.Title
		if s.Document != nil { // others may have the same title
			document += "\x00" + strconv.Itoa(*s.Document)
		}
	}
	quotation := document + "\x00" + s.CitedText
	if block != nil {
		quotation += "\x00" + strconv.Itoa(int(*block))
	}
	if document == "" || in.sources[quotation] || s.CitedText == "" && in.sources[document] {
		return
	}
	if in.sources == nil {
		in.sources = map[string]bool{}
	}
	in.sources[document], in.sources[quotation] = true, true
	in.cited++
	s.ID = "source-" + strconv.Itoa(in.cited)
	in.out.Emit(s)
}

func (in *ingester) file(url string) {
	if url == "" {
		return
	}
	media := "image/png"
	if rest, ok := strings.CutPrefix(url, "data:"); ok {
		if end := strings.IndexAny(rest, ";,"); end > 0 {
			media = rest[:end]
		}
	}
	in.out.Emit(model.File{URL: url, MediaType: media})
}

func (in *ingester) count(u *usage) {
	if u == nil || *u == (usage{}) {
		return
	}
	if in.out.Usage == nil {
		in.out.Usage = new(chunk.Usage)
	}
	sum := in.out.Usage
	// These are totals and may come one by one. A number that is missing stays.
	for _, n := range []struct {
		total *int64
		said  provider.Count
	}{
		{&sum.InputTokens, max(u.PromptTokens, u.InputTokens)},
		{&sum.OutputTokens, max(u.CompletionTokens, u.OutputTokens)},
		{&sum.ReasoningTokens, max(u.CompletionDetails.ReasoningTokens, u.ReasoningTokens)},
		{&sum.CachedInputTokens, max(u.PromptDetails.CachedTokens, u.PromptCacheHit, u.CachedTokens)},
	} {
		if n.said > 0 {
			*n.total = int64(n.said)
		}
	}
}

func (in *ingester) failWith(raw json.RawMessage) {
	in.out.Fail(provider.ParseError(0, nil, raw))
}

// flush emits what was held back, before a failure.
func (in *ingester) flush() {
	in.endText()
	if rest := in.musings.End(); rest != "" {
		in.think(in.field, rest)
	}
	parts := in.calls.startUpTo(nil)
	for _, c := range in.calls.list {
		if c.started {
			parts = c.flush(parts)
		}
	}
	for _, p := range parts {
		in.out.Emit(p)
	}
}

// end completes the answer.
func (in *ingester) end() {
	if in.out.Finish == "error" {
		in.out.Fail(&model.Error{Code: model.CodeUnknown, Message: "the provider ended the answer with an error", Retryable: true})
		return
	}
	in.calls.join()
	if in.out.Finish == "" && (!in.done || in.calls.open()) {
		in.out.Truncated(nil)
		return
	}
	in.endText()
	in.endReasoning()
	if meta := in.details.metadata("", in.from); meta != nil {
		in.thoughts++
		in.out.Emit(model.ReasoningEnd{ID: "reasoning-" + strconv.Itoa(in.thoughts), Metadata: meta})
	}
	for _, p := range in.calls.end(in.from) {
		in.out.Emit(p)
	}
	in.file(in.sound.url())
	raw := in.out.Finish
	in.out.Complete(model.Finish{Reason: reason(raw, len(in.calls.list) > 0), Raw: raw})
}

// reason maps a finish reason. Some providers say stop although there are calls.
func reason(raw string, called bool) string {
	switch strings.ToLower(raw) {
	case "length", "max_tokens", "model_length":
		return "length"
	case "content_filter", "safety", "recitation", "prohibited_content", "refusal":
		return "content-filter"
	case "tool_calls", "function_call", "tool_use":
		return "tool-calls"
	case "stop", "", "end_turn", "stop_sequence", "eos", "eos_token":
		if called {
			return "tool-calls"
		}
		return "stop"
	}
	if called {
		return "tool-calls"
	}
	return "other"
}
