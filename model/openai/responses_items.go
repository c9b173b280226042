package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// index is the output index of an event, or what it must be.
func (in *response) index(e *responseEvent) int {
	switch {
	case e.Output != nil:
		in.last = int(*e.Output)
	case e.Type == "response.output_item.added" && len(in.list) > 0:
		in.last++
	}
	return in.last
}

// find returns the item of an event: the one at its index, if it is of that kind,
// else the last of that kind. One that was never announced begins.
func (in *response) find(e *responseEvent, kind string) *item {
	i := in.index(e)
	if it := in.items[i]; it != nil && family(it.kind) == family(kind) {
		return it
	}
	for _, it := range in.list {
		if e.ItemID != "" && it.itemID == e.ItemID && !it.done && family(it.kind) == family(kind) {
			return it // the index is wrong
		}
	}
	if in.items[i] != nil {
		for n := len(in.list) - 1; n >= 0; n-- {
			if it := in.list[n]; family(it.kind) == family(kind) && !it.done {
				return it
			}
		}
	}
	return in.begin(i, &outputItem{Type: kind, ID: e.ItemID, Name: e.Name})
}

func family(kind string) string {
	switch {
	case isClient(kind):
		return "call"
	case isServer(kind), kind == "reasoning":
		return kind
	}
	return "message"
}

func isClient(kind string) bool {
	switch kind {
	case "function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call":
		return true
	}
	return false
}

func isServer(kind string) bool { return strings.HasSuffix(kind, "_call") && !isClient(kind) }

// begin opens an item. It is harmless on one that is open.
func (in *response) begin(i int, o *outputItem) *item {
	in.begun = true
	if it := in.items[i]; it != nil && it.kind == o.Type && !(isClient(o.Type) && o.CallID != "" && it.id != o.CallID && (it.done || it.args.Len() > 0)) {
		return it
	}
	it := &item{kind: o.Type, itemID: o.ID, pieces: map[int]*passage{}, parts: map[int]bool{}}
	in.items[i] = it
	in.list = append(in.list, it)
	switch {
	case isClient(o.Type):
		in.identify(it, o.CallID, o.ID)
		it.initial = o.arguments()
		in.named(it, o.toolName())
	case isServer(o.Type):
		in.identify(it, o.ID, o.CallID)
		in.endThinking()
		it.name, it.started = o.toolName(), true
		in.emit(model.ToolCallStart{ID: it.id, Name: it.name, ProviderExecuted: true})
	default:
		in.fillContent(it, o)
	}
	return it
}

// identify gives a call its id: the first that comes with it and that no other call
// has.
func (in *response) identify(it *item, ids ...string) {
	for n := len(in.list) - 1; ; n++ {
		for _, id := range ids {
			if id != "" && !in.ids[id] {
				it.id, in.ids[id] = id, true
				return
			}
		}
		ids = []string{"call_" + strconv.Itoa(n)}
	}
}

func (o *outputItem) toolName() string {
	if o.Name != "" {
		return o.Name
	}
	if o.Type == "function_call" || o.Type == "custom_tool_call" {
		return ""
	}
	return strings.TrimSuffix(o.Type, "_call")
}

// arguments is what a call was asked for, as text.
func (o *outputItem) arguments() string {
	if s := argumentText(o.Arguments); s != "" {
		return s
	}
	for _, raw := range []json.RawMessage{o.Action, o.Operation} {
		if provider.Said(raw) {
			return string(raw)
		}
	}
	switch {
	case provider.Said(o.Queries):
		return `{"queries":` + string(o.Queries) + `}`
	case provider.Said(o.Code):
		return `{"code":` + string(o.Code) + `}`
	}
	return o.Input
}

// named starts a call once its name is known.
func (in *response) named(it *item, name string) {
	if it.started || !isClient(it.kind) || name == "" {
		return
	}
	in.endThinking()
	it.name, it.started = name, true
	in.called = true
	in.emit(model.ToolCallStart{ID: it.id, Name: name})
	in.flush(it)
}

func (in *response) arguments(it *item, s string) {
	if it.done || !isClient(it.kind) {
		return
	}
	it.args.WriteString(it.join.Add(s))
	in.flush(it)
}

func (in *response) flush(it *item) {
	if rest := it.args.String()[it.sent:]; rest != "" && it.started {
		it.sent = it.args.Len()
		in.emit(model.ToolCallDelta{ID: it.id, Delta: rest})
	}
}

// wholeArguments takes the whole of arguments that may have been streamed.
func (in *response) wholeArguments(it *item, whole string) {
	if rest, ok := strings.CutPrefix(whole, it.args.String()); ok && whole != "" {
		it.join.Drop()
		in.arguments(it, rest)
	}
}

// finish closes an item with all that it says.
func (in *response) finish(i int, o *outputItem) {
	it := in.match(i, o, nil)
	if it == nil {
		it = in.begin(i, o)
	}
	in.close(it, o)
}

// match finds the item that o is the whole of: by its call's id, else at its
// index, else the first of its kind.
func (in *response) match(i int, o *outputItem, taken map[*item]bool) *item {
	if o.CallID != "" {
		for _, it := range in.list {
			if it.id == o.CallID && it.kind == o.Type && !taken[it] {
				return it
			}
		}
	}
	if it := in.items[i]; it != nil && it.kind == o.Type && !taken[it] && (o.CallID == "" || !it.done) {
		return it
	}
	if o.CallID != "" {
		return nil
	}
	for _, it := range in.list {
		if it.kind == o.Type && !taken[it] && (taken != nil || !it.done) {
			return it
		}
	}
	return nil
}

// close ends an item; o, if not nil, is the whole of it.
func (in *response) close(it *item, o *outputItem) {
	if it.done {
		return
	}
	if o == nil {
		o = &outputItem{}
	}
	switch {
	case isClient(it.kind):
		if !it.started && o.CallID != "" && !in.ids[o.CallID] {
			in.identify(it, o.CallID) // it began without
		}
		in.named(it, o.toolName())
		in.wholeArguments(it, o.arguments())
		if it.args.Len() == 0 {
			in.arguments(it, it.initial)
		}
		it.args.WriteString(it.join.End())
		in.flush(it)
		if !it.started { // no one named it
			in.endThinking()
			it.started, in.called = true, true
			in.emit(model.ToolCallStart{ID: it.id})
			in.flush(it)
		}
		in.emit(model.ToolCallEnd{ID: it.id, Name: it.name, Arguments: it.args.String()})
	case isServer(it.kind):
		in.served(it, o)
	case it.kind == "reasoning":
		in.fillContent(it, o)
		in.endReasoning(it, o)
	default:
		in.fillContent(it, o)
		in.flushText(it)
	}
	it.done = true
}

// served ends a call that the provider executed.
func (in *response) served(it *item, o *outputItem) {
	args := o.arguments()
	if args != "" {
		in.emit(model.ToolCallDelta{ID: it.id, Delta: args})
	}
	in.emit(model.ToolCallEnd{ID: it.id, Name: it.name, Arguments: args})
	if o.raw == nil {
		return
	}
	result := model.ToolResult{ID: it.id, Result: o.raw}
	switch {
	case provider.Said(o.Error):
		result.Error = provider.ParseError(0, nil, o.Error).Message
	case o.Status == "failed":
		result.Error = "the tool failed"
	}
	if o.Type == "image_generation_call" && o.Result != "" {
		format := o.Format
		if format == "" {
			format = "png"
		}
		in.emit(model.File{URL: "data:image/" + format + ";base64," + o.Result, MediaType: "image/" + format})
		// The image stands in the file.
		result.Result, _ = provider.Marshal(map[string]any{"type": o.Type, "id": o.ID, "status": o.Status})
	}
	in.emit(result)
}

// fill takes the whole output: what was not streamed is said now. Items are the
// ones at their index, or with their id, if they are of the same kind.
func (in *response) fill(output []*outputItem) {
	taken := map[*item]bool{}
	next := len(output)
	for i := range in.items {
		next = max(next, i+1)
	}
	for i, o := range output {
		if o == nil {
			continue
		}
		it := in.match(i, o, taken)
		if it == nil {
			if in.items[i] != nil {
				i, next = next, next+1
			}
			it = in.begin(i, o)
		}
		taken[it] = true
		in.fillContent(it, o)
		in.close(it, o)
	}
}

// content takes a content part, as it begins or as it ends.
func (in *response) content(it *item, i int, c *contentPart) {
	switch c.Type {
	case "refusal":
		in.denied = true
		in.wholeText(it, i, c.Refusal)
	case "reasoning_text":
		in.wholeThought(it, rawThought+i, c.Text)
	case "summary_text":
		in.wholeThought(it, i, c.Text)
	default:
		in.wholeText(it, i, c.Text)
	}
	for _, a := range c.Annotations {
		in.annotate(a)
	}
}

func (in *response) fillContent(it *item, o *outputItem) {
	for i := range o.Content {
		if len(o.Content) > 1 {
			it.announce(i)
		}
	}
	if it.kind == "reasoning" {
		if it.done {
			return
		}
		for i := range o.Summary {
			in.wholeThought(it, i, o.Summary[i].Text)
		}
		for i := range o.Content {
			in.wholeThought(it, rawThought+i, o.Content[i].Text)
		}
		return
	}
	for i := range o.Content {
		in.content(it, i, &o.Content[i])
	}
}

func (in *response) text(it *item, i int, s string) {
	if s == "" || it.kind == "reasoning" {
		return
	}
	p := it.piece(i, "")
	if p == nil {
		p = &passage{}
		it.pieces[i], it.last = p, p
	}
	if s = p.join.Add(s); s != "" {
		in.say(p, s)
	}
}

func (in *response) say(p *passage, s string) {
	if p.id == "" {
		in.texts++
		p.id = "text-" + strconv.Itoa(in.texts)
	}
	in.endThinking()
	p.text.WriteString(s)
	in.emit(model.TextDelta{ID: p.id, Delta: s})
}

// announce notes that the provider has announced content at an index.
func (it *item) announce(i int) {
	if it.kind == "reasoning" {
		i += rawThought
	}
	it.parts[i] = true
}

// piece returns the passage at an index, or nil if there is none yet. Some servers raise
// the index with every delta. So, where no content was announced at the index, the last
// passage goes on, unless whole, the text at the index, does not begin with it.
func (it *item) piece(i int, whole string) *passage {
	p := it.pieces[i]
	if p != nil {
		return p
	}
	summary := it.kind == "reasoning" && i < rawThought
	if it.last != nil && !summary && !it.parts[i] && (whole == "" || strings.HasPrefix(whole, it.last.text.String())) {
		p = it.last
		it.pieces[i] = p
	}
	return p
}

// wholeText takes the whole of a text that may have been streamed.
func (in *response) wholeText(it *item, i int, whole string) {
	said := ""
	p := it.piece(i, whole)
	if p != nil {
		said = p.text.String()
	}
	if rest, ok := strings.CutPrefix(whole, said); ok && whole != "" {
		if p != nil {
			p.join.Drop()
		}
		in.text(it, i, rest)
	}
}

// flushText emits what was held back of an item's texts: the beginnings of characters
// that were cut.
func (in *response) flushText(it *item) {
	for _, i := range slices.Sorted(maps.Keys(it.pieces)) {
		p := it.pieces[i]
		if rest := p.join.End(); rest != "" {
			in.say(p, rest)
		}
	}
}

// flushAll emits all that was held back, before a failure.
func (in *response) flushAll() {
	if p := in.thinking; p != nil {
		in.muse(p, p.join.End())
	}
	for _, it := range in.list {
		if family(it.kind) == "message" {
			in.flushText(it)
		}
		if it.started && !it.done {
			it.args.WriteString(it.join.End())
			in.flush(it)
		}
	}
}

func (in *response) think(it *item, i int, s string) {
	if s == "" || it.kind != "reasoning" || it.done {
		return
	}
	p := it.piece(i, "")
	if p == nil || p.ended {
		in.endThinking()
		in.thoughts++
		said := ""
		if p != nil {
			said = p.text.String()
		}
		p = &passage{id: "reasoning-" + strconv.Itoa(in.thoughts)}
		if said != "" { // interrupted: it goes on in a block of its own
			it.pieces[-1-in.thoughts] = it.pieces[i]
		}
		it.pieces[i], it.lastOne, in.thinking = p, p, p
		if i >= rawThought {
			it.last = p
		}
	}
	in.muse(p, p.join.Add(s))
}

func (in *response) muse(p *passage, s string) {
	if s == "" {
		return
	}
	p.text.WriteString(s)
	in.emit(model.ReasoningDelta{ID: p.id, Delta: s})
}

func (in *response) wholeThought(it *item, i int, whole string) {
	said := ""
	p := it.piece(i, whole)
	if p != nil {
		said = p.text.String()
		if p.ended {
			return
		}
	}
	if rest, ok := strings.CutPrefix(whole, said); ok && whole != "" {
		if p != nil {
			p.join.Drop()
		}
		in.think(it, i, rest)
	}
}

// endThinking ends the open reasoning, because consumers take one block at a time.
func (in *response) endThinking() {
	if p := in.thinking; p != nil {
		in.muse(p, p.join.End())
		in.thinking, p.ended = nil, true
		in.emit(model.ReasoningEnd{ID: p.id, Text: p.text.String()})
	}
}

// endReasoning ends a reasoning item. Its last block keeps what must be sent back.
func (in *response) endReasoning(it *item, o *outputItem) {
	var meta json.RawMessage
	if o.ID != "" && o.raw != nil {
		meta, _ = provider.Marshal(map[string]kept{"openai": {From: in.from, Item: o.raw}})
	}
	if p := it.lastOne; p != nil && !p.ended {
		in.muse(p, p.join.End())
		in.thinking, p.ended = nil, true
		in.emit(model.ReasoningEnd{ID: p.id, Text: p.text.String(), Metadata: meta})
	} else if meta != nil {
		in.endThinking()
		in.thoughts++
		in.emit(model.ReasoningEnd{ID: "reasoning-" + strconv.Itoa(in.thoughts), Metadata: meta})
	}
}

// annotate emits what a text cites, once.
func (in *response) annotate(raw json.RawMessage) {
	var a struct {
		Type     string `json:"type"`
		URL      string `json:"url"`
		Title    string `json:"title"`
		FileID   string `json:"file_id"`
		Filename string `json:"filename"`
		Nested   struct {
			URL   string `json:"url"`
			Title string `json:"title"`
		} `json:"url_citation"`
	}
	if len(raw) == 0 || provider.Decode(raw, &a) != nil {
		return
	}
	s := model.Source{URL: a.URL, Title: a.Title}
	if s.URL == "" {
		s.URL, s.Title = a.Nested.URL, a.Nested.Title
	}
	key := s.URL
	if key == "" && (a.FileID != "" || a.Filename != "") {
		key = "file " + a.FileID + a.Filename
		s.Title, s.Filename, s.MediaType = a.Filename, a.Filename, "text/plain"
		if s.Title == "" {
			s.Title = a.FileID
		}
	}
	if key == "" || in.sources[key] {
		return
	}
	in.sources[key] = true
	s.ID = "source-" + strconv.Itoa(len(in.sources))
	in.emit(s)
}
