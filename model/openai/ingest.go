package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// IngestOptions are the settings of [Ingest]. The zero value is fine.
type IngestOptions struct {
	MaxLine int    // bytes of one line, or of an answer that is not streamed; 0: 32 MiB
	OnData  func() // called for every event that has data; may be nil
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
		in := &ingester{yield: yield}
		limit := o.MaxLine
		if limit <= 0 {
			limit = sse.DefaultMaxLine
		}
		buf := bufio.NewReader(src)
		first, err := firstByte(buf)
		switch {
		case err != nil:
			in.cut(err)
		case first == '{':
			in.whole(buf, limit)
		case first == '<':
			in.fail(&model.Error{Code: model.CodeProtocol, Message: "the provider answered with a web page instead of a stream"})
		default:
			in.events(sse.NewReader(buf, &sse.ReaderOptions{MaxLine: limit, KeepLast: true}), o.OnData)
		}
	}
}

// firstByte skips blank space and a byte order mark.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if strings.IndexByte(" \t\r\n\xEF\xBB\xBF", b) < 0 {
			return b, r.UnreadByte()
		}
	}
}

type ingester struct {
	yield   func(model.Part, error) bool
	stopped bool // the consumer is gone, or the stream has ended

	calls   calls
	choice  *int // the choice that is ours: the first one seen
	finish  string
	done    bool // [DONE], or a whole answer
	usage   spool.Usage
	counted bool
	sources map[string]bool

	texts, thoughts int // blocks so far
	inText          bool
	thinking        bool
	thought         strings.Builder
	field           string // the member that the reasoning came in
	details         details
}

func (in *ingester) events(r *sse.Reader, onData func()) {
	for !in.stopped {
		e, err := r.Next()
		if err != nil {
			in.cut(err)
			return
		}
		if onData != nil {
			onData()
		}
		data := bytes.TrimSpace(e.Data)
		switch {
		case len(data) == 0:
		case strings.EqualFold(string(data), "[DONE]"):
			in.done = true
			in.end()
			return
		case string(e.Name) == "error":
			in.failWith(provider.ErrorMember(data))
		case !json.Valid(data) && e.Unterminated:
			in.cut(io.EOF)
		case !json.Valid(data):
			in.fail(&model.Error{Code: model.CodeProtocol, Message: "the provider sent an event that is not JSON: " + provider.Excerpt(string(data))})
		default:
			in.chunk(data)
		}
	}
}

// whole reads an answer that is one JSON value.
func (in *ingester) whole(r io.Reader, limit int) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		in.cut(err)
	case len(data) > limit:
		in.cut(sse.ErrLineTooLong)
	case unfinished(data):
		in.cut(io.EOF)
	default:
		if json.Valid(data) {
			in.chunk(data)
		}
		if in.choice == nil {
			in.fail(&model.Error{Code: model.CodeProtocol, Message: "the provider's answer is neither a stream nor a completion: " + provider.Excerpt(string(data))})
		}
		in.done = true
		in.end()
	}
}

// unfinished reports whether data is the beginning of a JSON value.
func unfinished(data []byte) bool {
	var v json.RawMessage
	return errors.Is(json.NewDecoder(bytes.NewReader(data)).Decode(&v), io.ErrUnexpectedEOF)
}

func (in *ingester) chunk(data []byte) {
	var c chunk
	if data[0] == '"' {
		in.failWith(data)
		return
	}
	if err := provider.Decode(data, &c); err != nil {
		return
	}
	for i := range c.Choices {
		in.take(&c.Choices[i])
	}
	for _, url := range c.Citations {
		in.source(model.Source{URL: url})
	}
	in.count(c.Usage)
	for i := range c.Choices {
		if c.Usage == nil {
			in.count(c.Choices[i].Usage)
		}
	}
	failure := c.Error
	if !provider.Said(failure) {
		failure = c.Errors
	}
	if c.BaseResp.Code != 0 && !provider.Said(failure) {
		failure, _ = provider.Marshal(map[string]any{"message": c.BaseResp.Message, "code": c.BaseResp.Code})
	}
	if c.XGroq != nil {
		in.count(c.XGroq.Usage)
		if !provider.Said(failure) {
			failure = c.XGroq.Error
		}
	}
	for i := range c.Choices {
		if !provider.Said(failure) {
			failure = c.Choices[i].Error
		}
	}
	switch {
	case provider.Said(failure):
		in.failWith(failure)
	case c.Object == "error", c.Type == "error", len(c.Choices) == 0 && (provider.Said(c.Detail) || provider.Said(c.Message) || provider.Said(c.Msg)):
		in.failWith(data)
	}
}

func (in *ingester) take(c *choice) {
	number := 0
	if c.Index != nil {
		number = *c.Index
	}
	if in.choice == nil {
		in.choice = &number
	}
	if number != *in.choice {
		return
	}
	if c.Delta != nil {
		in.delta(c.Delta)
	} else if c.Message != nil && in.texts+in.thoughts+len(in.calls.list) == 0 {
		in.delta(c.Message)
	}
	in.text(c.Text)
	if in.finish == "" {
		in.finish = c.FinishReason
	}
}

func (in *ingester) delta(d *delta) {
	text, piece, files := d.content()
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
	in.reasoning(field, said)
	in.text(text)
	in.text(d.Refusal)
	for _, a := range d.Annotations {
		in.source(model.Source{URL: a.URL.URL, Title: a.URL.Title, CitedText: a.URL.Content})
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
	in.endReasoning()
	if !in.inText {
		in.inText = true
		in.texts++
	}
	in.emit(model.TextDelta{ID: "text-" + strconv.Itoa(in.texts), Delta: s})
}

func (in *ingester) reasoning(field, s string) {
	if s == "" {
		return
	}
	if !in.thinking {
		in.thinking, in.inText, in.field = true, false, field
		in.thoughts++
	}
	in.thought.WriteString(s)
	in.emit(model.ReasoningDelta{ID: "reasoning-" + strconv.Itoa(in.thoughts), Delta: s})
}

func (in *ingester) endReasoning() {
	if !in.thinking {
		return
	}
	in.thinking = false
	in.emit(model.ReasoningEnd{ID: "reasoning-" + strconv.Itoa(in.thoughts), Text: in.thought.String(), Metadata: in.details.metadata(in.field)})
	in.thought.Reset()
}

func (in *ingester) tool(d *toolDelta) {
	in.endReasoning()
	in.inText = false
	for _, p := range in.calls.add(d) {
		in.emit(p)
	}
}

func (in *ingester) source(s model.Source) {
	if s.URL == "" || in.sources[s.URL] {
		return
	}
	if in.sources == nil {
		in.sources = map[string]bool{}
	}
	in.sources[s.URL] = true
	s.ID = "source-" + strconv.Itoa(len(in.sources))
	in.emit(s)
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
	in.emit(model.File{URL: url, MediaType: media})
}

func (in *ingester) count(u *usage) {
	if u == nil || *u == (usage{}) {
		return
	}
	in.counted = true
	// Totals, which may come in instalments: what is not said stays.
	for _, n := range []struct {
		total *int64
		said  int64
	}{
		{&in.usage.InputTokens, max(u.PromptTokens, u.InputTokens)},
		{&in.usage.OutputTokens, max(u.CompletionTokens, u.OutputTokens)},
		{&in.usage.ReasoningTokens, max(u.CompletionDetails.ReasoningTokens, u.ReasoningTokens)},
		{&in.usage.CachedInputTokens, max(u.PromptDetails.CachedTokens, u.PromptCacheHit, u.CachedTokens)},
	} {
		if n.said > 0 {
			*n.total = n.said
		}
	}
}

func (in *ingester) emit(p model.Part) {
	if !in.stopped && !in.yield(p, nil) {
		in.stopped = true
	}
}

func (in *ingester) failWith(raw json.RawMessage) {
	in.fail(provider.ParseError(0, nil, raw))
}

// fail ends the stream with an error.
func (in *ingester) fail(err *model.Error) {
	if in.stopped {
		return
	}
	for _, c := range in.calls.list {
		if c.started {
			for _, p := range c.flush(nil) {
				in.emit(p)
			}
		}
	}
	in.report()
	if !in.stopped {
		err.Message, err.Finish = provider.Redact(err.Message), in.finish
		in.yield(nil, err)
		in.stopped = true
	}
}

// report says what the call has used, once, last.
func (in *ingester) report() {
	if in.counted {
		in.emit(model.UsageUpdate{Usage: in.usage})
	}
}

// cut is called when no more bytes come.
func (in *ingester) cut(err error) {
	switch {
	case errors.Is(err, sse.ErrLineTooLong), errors.Is(err, sse.ErrEventTooLong):
		in.fail(&model.Error{Code: model.CodeProtocol, Message: "the provider sent an event that is too large", Err: err})
	case in.finish != "":
		in.end()
	default:
		if failure, ok := errors.AsType[*model.Error](err); ok {
			in.fail(failure)
			return
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		in.fail(&model.Error{Code: model.CodeTruncated, Message: "the provider's stream ended before the answer did", Retryable: true, Err: err})
	}
}

// end completes the answer.
func (in *ingester) end() {
	if in.finish == "error" {
		in.fail(&model.Error{Code: model.CodeUnknown, Message: "the provider ended the answer with an error", Retryable: true})
		return
	}
	if in.finish == "" && (!in.done || in.calls.open()) {
		in.cut(io.EOF)
		return
	}
	in.endReasoning()
	if meta := in.details.metadata(""); meta != nil {
		in.thoughts++
		in.emit(model.ReasoningEnd{ID: "reasoning-" + strconv.Itoa(in.thoughts), Metadata: meta})
	}
	for _, p := range in.calls.end() {
		in.emit(p)
	}
	in.report()
	in.emit(model.Finish{Reason: reason(in.finish, len(in.calls.list) > 0), Raw: in.finish})
	in.stopped = true
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
