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

// IngestResponses takes the bytes of a Responses API answer apart, a stream or a
// whole one. The parts do not depend on how src cuts its bytes. Options may be nil.
//
// Only response.completed and response.incomplete complete an answer; without one,
// or [DONE] behind finished items, it ends in [model.CodeTruncated].
func IngestResponses(src io.Reader, o *IngestOptions) iter.Seq2[model.Part, error] {
	if o == nil {
		o = new(IngestOptions)
	}
	return func(yield func(model.Part, error) bool) {
		in := newResponse(yield)
		in.from = o.From
		in.read(src, o)
	}
}

// response is an answer under assembly. Items and their content are found by
// their indexes: some providers give the same item a new id in each event.
type response struct {
	out    provider.Emitter
	from   string // the endpoint; "" for none
	id     string
	seq    int64 // of the last event that had one; -1: none
	past   past
	marks  bool // emit positions
	begun  bool
	shown  bool
	items  map[int]*item
	list   []*item // in the order in which they began
	last   int     // index of the item last touched
	ids    map[string]bool
	called bool // a client's tool
	denied bool // there is a refusal

	texts, thoughts int
	thinking        *passage // the reasoning that is open
	sources         map[string]bool
	sound           sound

	plain   plainEvent
	strings provider.Strings
	scratch []byte
}

func newResponse(yield func(model.Part, error) bool) *response {
	in := &response{seq: -1}
	in.reset()
	in.out.Yield, in.out.End, in.out.Flush = yield, in.end, in.flushAll
	return in
}

func (in *response) reset() {
	in.items, in.list, in.last = map[int]*item{}, nil, 0
	in.ids, in.sources = map[string]bool{}, map[string]bool{}
	in.called, in.denied, in.shown, in.thinking = false, false, false, nil
	in.texts, in.thoughts, in.sound = 0, 0, nil
	in.out.Finish, in.out.Usage = "", nil
}

func (in *response) read(src io.Reader, o *IngestOptions) {
	in.reader(o).Read(src)
}

func (in *response) reader(o *IngestOptions) *provider.Reader {
	return &provider.Reader{Limit: o.MaxLine, OnData: o.OnData, Fast: in.fast, Event: in.event, Whole: in.whole, Out: &in.out}
}

// item is an output item.
type item struct {
	kind    string
	id      string // of its call
	itemID  string // its own, as it began
	name    string
	args    strings.Builder
	sent    int    // bytes of args that have gone out
	initial string // arguments that came with the item's beginning
	started bool
	done    bool
	pieces  map[int]*passage // content, or the summary of reasoning
	parts   map[int]bool     // the content that was announced
	last    *passage         // of text, or of reasoning that is no summary
	lastOne *passage
	join    provider.Joiner // of args
}

// passage is one text of an item.
type passage struct {
	id    string
	text  strings.Builder
	ended bool
	join  provider.Joiner
}

type responseEvent struct {
	Type     string          `json:"type"`
	Seq      *int64          `json:"sequence_number"`
	Response json.RawMessage `json:"response"`
	Item     *outputItem     `json:"item"`
	Part     *contentPart    `json:"part"`

	Output  *index `json:"output_index"`
	Content *index `json:"content_index"`
	Summary *index `json:"summary_index"`
	ItemID  string `json:"item_id"`

	Delta      json.RawMessage `json:"delta"`
	Text       string          `json:"text"`
	Refusal    string          `json:"refusal"`
	Arguments  json.RawMessage `json:"arguments"`
	Input      string          `json:"input"`
	Name       string          `json:"name"`
	Annotation json.RawMessage `json:"annotation"`
	Error      json.RawMessage `json:"error"`
}

type responseBody struct {
	ID         string          `json:"id"`
	Object     string          `json:"object"`
	Status     string          `json:"status"`
	Output     []*outputItem   `json:"output"`
	Usage      *responseUsed   `json:"usage"`
	Error      json.RawMessage `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

type responseUsed struct {
	Input        provider.Count `json:"input_tokens"`
	Output       provider.Count `json:"output_tokens"`
	InputDetails struct {
		Cached provider.Count `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputDetails struct {
		Reasoning provider.Count `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

type outputItem struct {
	raw json.RawMessage

	Type      string          `json:"type"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Status    string          `json:"status"`
	Arguments json.RawMessage `json:"arguments"`
	Input     string          `json:"input"`
	Content   []contentPart   `json:"content"`
	Summary   []contentPart   `json:"summary"`
	Encrypted string          `json:"encrypted_content"`
	Action    json.RawMessage `json:"action"`
	Queries   json.RawMessage `json:"queries"`
	Code      json.RawMessage `json:"code"`
	Operation json.RawMessage `json:"operation"`
	Error     json.RawMessage `json:"error"`
	Result    string          `json:"result"`
	Format    string          `json:"output_format"`
}

func (i *outputItem) UnmarshalJSON(raw []byte) error {
	type plain outputItem
	err := provider.Decode(raw, (*plain)(i))
	i.raw = append(json.RawMessage(nil), raw...)
	return err
}

type contentPart struct {
	Type        string            `json:"type"`
	Text        string            `json:"text"`
	Refusal     string            `json:"refusal"`
	Annotations []json.RawMessage `json:"annotations"`
}

func (in *response) event(name string, data []byte) {
	if data[0] != '{' {
		switch {
		case data[0] == '[' && in.allDone():
			in.out.Finish = ""
			in.end()
		case data[0] == '[':
			in.out.Truncated(nil)
		case name == "error":
			in.out.Fail(provider.ParseError(0, nil, data))
		}
		return
	}
	var e responseEvent
	if provider.Decode(data, &e) != nil {
		return
	}
	if e.Type == "" {
		e.Type = name
	}
	switch {
	case !in.fresh(&e, data):
	case e.Type == "error", e.Type == "response.error", name == "error", e.Type == "" && provider.Said(e.Error):
		in.out.Fail(provider.ParseError(0, nil, data))
	default:
		in.take(&e)
	}
}

// fresh counts an event, and reports whether it is a new one. Some providers begin
// again from the start when they are asked to go on, and some proxies send events
// twice.
func (in *response) fresh(e *responseEvent, data []byte) bool {
	if e.Seq == nil {
		return true
	}
	if in.marks && *e.Seq <= in.seq || !in.marks && in.past.again(*e.Seq, data) {
		return false
	}
	in.seq = *e.Seq
	return true
}

// take applies an event and says how far the answer has come.
func (in *response) take(e *responseEvent) {
	in.apply(e)
	if in.marks && !in.out.Stopped && in.id != "" && e.Seq != nil {
		in.out.Emit(model.Position{Cursor: in.cursor()})
	}
}

// past is which events were read, by their numbers.
type past struct {
	first, top, n int64
	last          []byte // the last event
}

// again reports whether an event repeats the last one: it has the same bytes and the
// same number, in a stream that has numbered its events without gaps.
func (p *past) again(seq int64, data []byte) bool {
	if seq == p.top && p.n > 0 && p.n == p.top-p.first+1 && bytes.Equal(p.last, data) {
		return true
	}
	if p.n == 0 {
		p.first, p.top = seq, seq
	}
	p.top, p.n = max(p.top, seq), p.n+1
	p.last = append(p.last[:0], data...)
	return false
}

func (in *response) cursor() string { return in.id + ":" + strconv.FormatInt(in.seq, 10) }

// whole reads an answer that is one JSON value.
func (in *response) whole(data []byte) {
	var body responseBody
	if !json.Valid(data) && in.out.Lines(data, in.event) {
		return
	}
	if provider.Decode(data, &body) != nil || body.Status == "" || body.Object != "response" && body.Output == nil {
		if provider.Said(provider.ErrorMember(data)) && string(provider.ErrorMember(data)) != string(data) {
			in.out.Fail(provider.ParseError(0, nil, data))
			return
		}
		in.out.Fail(&model.Error{Code: model.CodeProtocol, Message: "the provider's answer is neither a stream nor a response: " + provider.Excerpt(string(data))})
		return
	}
	in.conclude(&body)
}

// rawThought is added to the indexes of reasoning text, so that they come after those
// of its summary.
const rawThought = 1 << 20

func number(i *index) int {
	if i == nil {
		return 0
	}
	return int(*i) % rawThought
}

// deltaText is a delta's text. Arguments may be the object itself.
func (in *response) deltaText(raw json.RawMessage) string {
	if len(raw) < 2 || raw[0] != '"' {
		return argumentText(raw)
	}
	inside := []byte(raw[1 : len(raw)-1])
	if bytes.IndexByte(inside, '\\') >= 0 {
		in.scratch = provider.AppendRaw(in.scratch[:0], inside)
		inside = in.scratch
	}
	return in.strings.Of(inside)
}

func argumentText(raw json.RawMessage) string { return (&functionDelta{Arguments: raw}).arguments() }

func kindOf(part string) string {
	if strings.HasPrefix(part, "reasoning") || strings.HasPrefix(part, "summary") {
		return "reasoning"
	}
	return "message"
}

func (in *response) name(raw json.RawMessage) {
	var body responseBody
	if provider.Decode(raw, &body) == nil && body.ID != "" {
		in.id = body.ID
	}
}

// created begins the answer. If it had begun, what came before is void.
func (in *response) created(raw json.RawMessage) {
	if in.begun {
		if in.shown {
			in.out.Emit(model.Restart{})
		}
		in.reset()
	}
	in.begun = true
	in.name(raw)
}

func (in *response) emit(p model.Part) {
	in.shown = true
	in.out.Emit(p)
}

// conclude reads the whole answer, which fills in what was not streamed, and ends.
func (in *response) conclude(body *responseBody) {
	if body.ID != "" {
		in.id = body.ID
	}
	if u := body.Usage; u != nil && *u != (responseUsed{}) {
		in.out.Usage = &chunk.Usage{InputTokens: int64(u.Input), OutputTokens: int64(u.Output),
			ReasoningTokens: int64(u.OutputDetails.Reasoning), CachedInputTokens: int64(u.InputDetails.Cached)}
	}
	switch body.Status {
	case "failed":
		failure := &model.Error{Code: model.CodeUnknown, Message: "the provider reported an error", Retryable: true}
		if provider.Said(body.Error) {
			failure = provider.ParseError(0, nil, body.Error)
		}
		in.out.Fail(failure)
		return
	case "cancelled":
		in.out.Fail(&model.Error{Code: model.CodeUnknown, Message: "the answer was cancelled at the provider"})
		return
	case "queued", "in_progress":
		in.out.Cut(io.EOF)
		return
	}
	in.fill(body.Output)
	in.out.Finish = body.Status
	if body.Incomplete.Reason != "" {
		in.out.Finish = body.Incomplete.Reason
	}
	in.end()
}

// end completes the answer.
func (in *response) end() {
	if in.out.Finish == "" && !in.allDone() {
		in.out.Truncated(nil)
		return
	}
	for _, it := range in.list {
		in.close(it, nil)
	}
	if url := in.sound.url(); url != "" {
		media, _, _ := strings.Cut(strings.TrimPrefix(url, "data:"), ";")
		in.emit(model.File{URL: url, MediaType: media})
	}
	raw := in.out.Finish
	in.out.Complete(model.Finish{Reason: in.reason(raw), Raw: raw})
}

func (in *response) allDone() bool {
	for _, it := range in.list {
		if !it.done {
			return false
		}
	}
	return len(in.list) > 0
}

func (in *response) reason(raw string) string {
	switch {
	case strings.HasPrefix(raw, "max_") || raw == "length":
		return "length"
	case raw == "content_filter" || in.denied:
		return "content-filter"
	case raw == "incomplete":
		return "other"
	case in.called:
		return "tool-calls"
	}
	return "stop"
}
