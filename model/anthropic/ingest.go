package anthropic

import (
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
}

// Ingest takes the bytes of a messages answer apart, a stream or a whole one. The
// parts do not depend on how src cuts its bytes. Options may be nil.
//
// An answer that ends with neither a stop reason nor message_stop was cut and ends
// in [model.CodeTruncated]. So does a failed read, unless the stop reason came
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
	in := &ingester{out: provider.Emitter{Yield: yield}, blocks: map[int]*block{}, ids: map[string]bool{}, sources: map[string]bool{}}
	in.out.End, in.out.Flush = in.end, in.flush
	return &provider.Reader{Limit: o.MaxLine, OnData: o.OnData, Fast: in.fast, Event: in.event, Whole: in.whole, Out: &in.out}
}

type ingester struct {
	out provider.Emitter

	begun  bool // the message has
	shown  bool // parts of it have gone out
	blocks map[int]*block
	open   []*block // in the order in which they began
	last   int      // index of the block last touched
	ids    map[string]bool
	called bool // a client's tool

	texts, thoughts, calls int
	sources                map[string]bool
	servers                map[string]string // of MCP calls; they must go back with the result
	used                   usage

	strings provider.Strings
	scratch []byte
}

// block is a content block under assembly.
type block struct {
	kind      string // text, thinking, tool
	id        string // of its parts
	name      string
	input     string // a whole input, said at the start
	signature string
	body      strings.Builder
	join      provider.Joiner
}

type event struct {
	Type    string          `json:"type"`
	Index   *int            `json:"index"`
	Message *message        `json:"message"`
	Block   content         `json:"content_block"`
	Delta   delta           `json:"delta"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type message struct {
	Type       string            `json:"type"`
	Content    []json.RawMessage `json:"content"`
	StopReason string            `json:"stop_reason"`
	Usage      *usage            `json:"usage"`
}

// content is a block as it starts. Its bytes are kept, as some blocks must be sent back
// as they came.
type content struct {
	raw json.RawMessage

	Type      string            `json:"type"`
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Text      string            `json:"text"`
	Thinking  string            `json:"thinking"`
	Signature string            `json:"signature"`
	Data      string            `json:"data"`
	Input     json.RawMessage   `json:"input"`
	ToolUseID string            `json:"tool_use_id"`
	Server    string            `json:"server_name"`
	IsError   bool              `json:"is_error"`
	Content   json.RawMessage   `json:"content"`
	Citations []json.RawMessage `json:"citations"`
}

func (c *content) UnmarshalJSON(raw []byte) error {
	type plain content
	err := provider.Decode(raw, (*plain)(c))
	c.raw = append(json.RawMessage(nil), raw...)
	return err
}

type delta struct {
	Type        string          `json:"type"`
	Text        snippet         `json:"text"`
	PartialJSON arguments       `json:"partial_json"`
	Thinking    snippet         `json:"thinking"`
	Signature   string          `json:"signature"`
	Citation    json.RawMessage `json:"citation"`
	StopReason  string          `json:"stop_reason"`
}

// snippet is a piece of text, which may begin or end inside a character.
type snippet string

func (p *snippet) UnmarshalJSON(raw []byte) error {
	s, _ := provider.Raw(raw)
	*p = snippet(s)
	return nil
}

// arguments is a piece of argument text. Some proxies send the object itself.
type arguments string

func (a *arguments) UnmarshalJSON(raw []byte) error {
	text, ok := provider.Raw(raw)
	if !ok && len(raw) > 0 && raw[0] == '{' {
		text = string(raw)
	}
	*a = arguments(text)
	return nil
}

type usage struct {
	Input      provider.Count `json:"input_tokens"`
	CacheRead  provider.Count `json:"cache_read_input_tokens"`
	CacheWrite provider.Count `json:"cache_creation_input_tokens"`
	Output     provider.Count `json:"output_tokens"`
}

func (in *ingester) event(name string, data []byte) {
	if data[0] != '{' {
		if data[0] == '[' && in.out.Finish != "" { // [DONE], which some proxies add
			in.end()
		} else if name == "error" {
			in.out.Fail(provider.ParseError(0, nil, data))
		}
		return
	}
	var e event
	if provider.Decode(data, &e) != nil {
		return
	}
	if e.Type == "" {
		e.Type = name
	}
	if e.Type == "error" || name == "error" || provider.Said(e.Error) {
		in.out.Fail(provider.ParseError(0, nil, data))
		return
	}
	in.apply(&e)
}

// apply does what an event says. One without an index is about the last block, or
// begins the next.
func (in *ingester) apply(e *event) {
	index := in.last
	if e.Index != nil {
		index = *e.Index
	}
	switch e.Type {
	case "message_start":
		in.start(e.Message)
	case "content_block_start":
		if e.Index == nil && len(in.blocks) > 0 {
			index++
		}
		in.last = index
		in.begin(index, &e.Block)
	case "content_block_delta":
		in.last = index
		in.grow(index, &e.Delta)
	case "content_block_stop":
		in.last = index
		in.stop(in.blocks[index])
	case "message_delta":
		in.count(e.Usage)
		if e.Delta.StopReason != "" {
			in.out.Finish = e.Delta.StopReason
		}
	case "message_stop":
		in.count(e.Usage)
		in.end()
	}
}

// whole reads an answer that is one JSON value.
func (in *ingester) whole(data []byte) {
	var m message
	if !json.Valid(data) && in.out.Lines(data, in.event) {
		return
	}
	if provider.Decode(data, &m) != nil || m.Type != "message" && len(m.Content) == 0 {
		var e struct {
			Type  string          `json:"type"`
			Error json.RawMessage `json:"error"`
		}
		if provider.Decode(data, &e) == nil && (e.Type == "error" || provider.Said(e.Error)) {
			in.out.Fail(provider.ParseError(0, nil, data))
			return
		}
		in.out.Fail(&model.Error{Code: model.CodeProtocol, Message: "the provider's answer is neither a stream nor a message: " + provider.Excerpt(string(data))})
		return
	}
	in.start(&m)
	in.end()
}

// start begins the message. Some proxies lose the connection and begin again in
// the same stream: what came before is void.
func (in *ingester) start(m *message) {
	if in.begun {
		if in.shown {
			in.emit(model.Restart{})
		}
		fresh := ingester{out: in.out, blocks: map[int]*block{}, ids: map[string]bool{}, sources: map[string]bool{}}
		fresh.out.Finish, fresh.out.Usage = "", nil
		fresh.out.End, fresh.out.Flush = in.end, in.flush
		*in = fresh
	}
	in.begun = true
	if m == nil {
		return
	}
	in.count(m.Usage)
	for i, raw := range m.Content {
		var c content
		if c.UnmarshalJSON(raw) == nil {
			in.begin(i, &c)
			in.stop(in.blocks[i])
		}
	}
	if m.StopReason != "" {
		in.out.Finish = m.StopReason
	}
}

func (in *ingester) begin(index int, c *content) {
	in.begun = true
	if b := in.blocks[index]; b != nil {
		if b.kind == "tool" && b.body.Len() == 0 && c.ID != "" && b.id == c.ID && in.isOpen(b) {
			return // said again
		}
		in.stop(b)
	}
	switch {
	case c.Type == "text":
		in.text(index)
		in.write(in.blocks[index], c.Text)
		for _, raw := range c.Citations {
			in.cite(raw)
		}
	case c.Type == "thinking":
		in.thinking(index)
		in.write(in.blocks[index], c.Thinking)
		in.blocks[index].signature = c.Signature
	case c.Type == "redacted_thinking":
		in.closeText()
		in.thoughts++
		in.blocks[index] = nil
		in.emit(model.ReasoningEnd{ID: "reasoning-" + strconv.Itoa(in.thoughts), Metadata: metadata("redactedData", c.Data)})
	case c.ToolUseID != "" && strings.HasSuffix(c.Type, "_result"):
		in.closeText()
		in.blocks[index] = nil
		in.emit(model.ToolResult{ID: c.ToolUseID, Result: in.result(c), Error: c.failed()})
	case strings.HasSuffix(c.Type, "tool_use"):
		in.tool(index, c)
	default:
		in.blocks[index] = nil // of a kind that came later than this code
	}
}

// result is a server tool's result block as it must go back.
func (in *ingester) result(c *content) json.RawMessage {
	var block map[string]json.RawMessage
	server := in.servers[c.ToolUseID]
	if server == "" || json.Unmarshal(c.raw, &block) != nil {
		return c.raw
	}
	block["server_name"], _ = provider.Marshal(server)
	raw, err := provider.Marshal(block)
	if err != nil {
		return c.raw
	}
	return raw
}

// failed says how a server tool failed, "" if it did not.
func (c *content) failed() string {
	var e struct {
		Type string `json:"type"`
		Code string `json:"error_code"`
	}
	if len(c.Content) > 0 && c.Content[0] == '{' && provider.Decode(c.Content, &e) == nil && strings.HasSuffix(e.Type, "_error") {
		if e.Code == "" {
			return e.Type
		}
		return e.Code
	}
	if c.IsError {
		return "the tool failed"
	}
	return ""
}

func (in *ingester) push(index int, b *block) {
	in.closeText()
	in.blocks[index] = b
	in.open = append(in.open, b)
}

func (in *ingester) text(index int) {
	in.texts++
	in.push(index, &block{kind: "text", id: "text-" + strconv.Itoa(in.texts)})
}

func (in *ingester) thinking(index int) {
	in.thoughts++
	in.push(index, &block{kind: "thinking", id: "reasoning-" + strconv.Itoa(in.thoughts)})
}

func (in *ingester) tool(index int, c *content) {
	b := &block{kind: "tool", id: c.ID, name: c.Name}
	if s, ok := provider.Str(c.Input); ok {
		b.input = s
	} else if provider.Said(c.Input) {
		b.input = string(c.Input)
	}
	for b.id == "" || in.ids[b.id] {
		in.calls++
		b.id = "call_" + strconv.Itoa(in.calls)
	}
	in.ids[b.id] = true
	if c.Server != "" {
		if in.servers == nil {
			in.servers = map[string]string{}
		}
		in.servers[b.id] = c.Server
	}
	in.push(index, b)
	executed := c.Type != "tool_use"
	in.called = in.called || !executed
	in.emit(model.ToolCallStart{ID: b.id, Name: c.Name, ProviderExecuted: executed})
}

func (in *ingester) grow(index int, d *delta) {
	b := in.blocks[index]
	switch {
	case d.Text != "" && d.Type != "thinking_delta":
		if b == nil || b.kind != "text" || !in.isOpen(b) {
			in.text(index)
		}
		in.write(in.blocks[index], string(d.Text))
	case d.Thinking != "" || d.Signature != "":
		if b == nil || b.kind != "thinking" || !in.isOpen(b) {
			in.thinking(index)
		}
		in.write(in.blocks[index], string(d.Thinking))
		if d.Signature != "" {
			in.blocks[index].signature = d.Signature
		}
	case d.PartialJSON != "":
		if b == nil || b.kind != "tool" || !in.isOpen(b) {
			b = in.lastTool() // the index is wrong
		}
		if b != nil {
			in.write(b, string(d.PartialJSON))
		}
	case len(d.Citation) > 0:
		in.cite(d.Citation)
	}
}

func (in *ingester) write(b *block, s string) {
	if s == "" {
		return
	}
	if s = b.join.Add(s); s != "" {
		in.put(b, s)
	}
}

// flush emits what was held back: the beginnings of characters that were cut.
func (in *ingester) flush() {
	for _, b := range in.open {
		if rest := b.join.End(); rest != "" {
			in.put(b, rest)
		}
	}
}

func (in *ingester) put(b *block, s string) {
	switch b.kind {
	case "text":
		in.emit(model.TextDelta{ID: b.id, Delta: s})
	case "thinking":
		b.body.WriteString(s)
		in.emit(model.ReasoningDelta{ID: b.id, Delta: s})
	case "tool":
		b.body.WriteString(s)
		in.emit(model.ToolCallDelta{ID: b.id, Delta: s})
	}
}

// lastTool is the open call that began last, nil if there is none.
func (in *ingester) lastTool() *block {
	for i := len(in.open) - 1; i >= 0; i-- {
		if in.open[i].kind == "tool" {
			return in.open[i]
		}
	}
	return nil
}

func (in *ingester) isOpen(b *block) bool {
	for _, o := range in.open {
		if o == b {
			return true
		}
	}
	return false
}

// closeText ends open text and thinking, because consumers take one block at a time.
func (in *ingester) closeText() {
	for i := 0; i < len(in.open); {
		if b := in.open[i]; b.kind != "tool" {
			in.stop(b)
			continue
		}
		i++
	}
}

// stop ends a block. It is harmless on one that has ended.
func (in *ingester) stop(b *block) {
	for i, o := range in.open {
		if o != b {
			continue
		}
		if rest := b.join.End(); rest != "" {
			in.put(b, rest)
		}
		in.open = append(in.open[:i], in.open[i+1:]...)
		switch b.kind {
		case "thinking":
			if b.body.Len() > 0 || b.signature != "" {
				in.emit(model.ReasoningEnd{ID: b.id, Text: b.body.String(), Metadata: metadata("signature", b.signature)})
			}
		case "tool":
			if b.body.Len() == 0 {
				in.write(b, b.input)
			}
			in.emit(model.ToolCallEnd{ID: b.id, Name: b.name, Arguments: b.body.String()})
		}
		return
	}
}

func metadata(key, value string) json.RawMessage {
	if value == "" {
		return nil
	}
	data, err := json.Marshal(map[string]any{"anthropic": map[string]string{key: value}})
	if err != nil {
		return nil
	}
	return data
}

// cite emits what a text block cites, each quotation once.
func (in *ingester) cite(raw json.RawMessage) {
	var c struct {
		Type          string `json:"type"`
		URL           string `json:"url"`
		Source        string `json:"source"`
		Title         string `json:"title"`
		DocumentTitle string `json:"document_title"`
		CitedText     string `json:"cited_text"`
		DocumentIndex *int   `json:"document_index"`
	}
	if provider.Decode(raw, &c) != nil {
		return
	}
	s := model.Source{URL: c.URL, Title: c.Title, CitedText: c.CitedText}
	if s.URL == "" && strings.Contains(c.Source, "://") {
		s.URL = c.Source
	}
	key := s.URL + "\x00" + s.CitedText
	if s.URL == "" {
		key = string(raw)
		if s.Title == "" {
			s.Title = c.DocumentTitle
		}
		if s.Title == "" {
			s.Title = c.Source
		}
		s.MediaType = "text/plain"
		if c.Type == "page_location" {
			s.MediaType = "application/pdf"
		}
		if c.DocumentIndex != nil && *c.DocumentIndex >= 0 {
			s.Document = c.DocumentIndex
		}
	}
	if in.sources[key] {
		return
	}
	in.sources[key] = true
	s.ID = "source-" + strconv.Itoa(len(in.sources))
	in.emit(s)
}

// count takes totals. A number that is missing stays as it was.
func (in *ingester) count(u *usage) {
	if u == nil || *u == (usage{}) {
		return
	}
	for _, n := range []struct {
		total *provider.Count
		said  provider.Count
	}{{&in.used.Input, u.Input}, {&in.used.CacheRead, u.CacheRead}, {&in.used.CacheWrite, u.CacheWrite}, {&in.used.Output, u.Output}} {
		if n.said > 0 {
			*n.total = n.said
		}
	}
	in.out.Usage = &chunk.Usage{
		InputTokens:       int64(in.used.Input + in.used.CacheRead + in.used.CacheWrite),
		OutputTokens:      int64(in.used.Output),
		CachedInputTokens: int64(in.used.CacheRead),
	}
}

func (in *ingester) emit(p model.Part) {
	in.shown = true
	in.out.Emit(p)
}

// end completes the answer.
func (in *ingester) end() {
	if in.out.Finish == "" {
		for _, b := range in.open {
			if b.kind == "tool" && b.body.Len() > 0 && !json.Valid([]byte(b.body.String())) {
				in.out.Truncated(nil)
				return
			}
		}
	}
	for len(in.open) > 0 {
		in.stop(in.open[0])
	}
	raw := in.out.Finish
	in.out.Complete(model.Finish{Reason: in.reason(raw), Raw: raw, Paused: raw == "pause_turn"})
}

func (in *ingester) reason(raw string) string {
	switch raw {
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "refusal":
		return "content-filter"
	case "tool_use":
		return "tool-calls"
	case "end_turn", "stop_sequence", "":
		if in.called {
			return "tool-calls"
		}
		return "stop"
	}
	return "other"
}
