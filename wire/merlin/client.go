package merlin

import (
	"cmp"
	"slices"
	"strings"
)

// Client folds events into the answer that a client shows. The zero Client has
// seen nothing.
type Client struct {
	Content     string // V1: everything; V2: nothing
	Blocks      []Block
	Attachments []Attachment
	Heading     *Progress // V1
	Steps       []Step    // V1
	Error       *Failure
	Ended       bool

	v1      bool
	content growing
	since   map[place]int // lengths at the last event with an id, of what has grown since
}

// place is something that grows: the content, if block is -1, or a part of a block.
type place struct {
	block  int // index of the block
	what   string
	result int
}

// Block is what stands at one content index.
type Block struct {
	Index     int        `json:"index"`
	Text      string     `json:"text,omitempty"`
	Reasoning string     `json:"reasoning,omitempty"`
	Calls     []ToolCall `json:"calls,omitempty"`
	Results   []Result   `json:"results,omitempty"`
	Citations []Citation `json:"citations,omitempty"`
	Heading   *Progress  `json:"heading,omitempty"`
	Steps     []Step     `json:"steps,omitempty"`

	text, reasoning growing
}

// Result is what is known of a call's result.
type Result struct {
	Index  int    `json:"index"` // of the call
	Text   string `json:"text"`
	Failed bool   `json:"failed,omitempty"`

	text growing
}

// growing builds a text to which many pieces are added, so that it is not copied
// for each.
type growing struct{ b *strings.Builder }

func (g *growing) add(to *string, piece string) {
	if *to == "" {
		*to = piece
		return
	}
	if g.b == nil || g.b.String() != *to { // cheap: mostly the same memory
		g.b = new(strings.Builder)
		g.b.WriteString(*to)
	}
	g.b.WriteString(piece)
	*to = g.b.String()
}

// Apply folds the next event. Events of later versions change nothing.
func (c *Client) Apply(e Event) {
	c.Ended = e.Kind == KindEnd
	c.fold(&e)
	if e.HasID {
		clear(c.since)
	}
}

// Drop forgets what came since the last event that had an id: a client that comes
// back with its reader's cursor is sent that again.
func (c *Client) Drop() {
	for at, n := range c.since {
		if at.block < 0 {
			c.Content = c.Content[:n]
			continue
		}
		switch b := c.at(at.block); at.what {
		case TypeText:
			b.Text = b.Text[:n]
		case TypeReasoning:
			b.Reasoning = b.Reasoning[:n]
		case TypeCitation:
			b.Citations = b.Citations[:n]
		case TypeToolCallResult:
			r := b.at(at.result)
			r.Text = r.Text[:min(n, len(r.Text))] // it may have been replaced
		}
	}
	clear(c.since)
}

// grows notes the length n of what is about to grow.
func (c *Client) grows(at place, n int) {
	if _, known := c.since[at]; known {
		return
	}
	if c.since == nil {
		c.since = map[place]int{}
	}
	c.since[at] = n
}

func (c *Client) fold(e *Event) {
	switch e.Kind {
	case KindInit:
		*c = Client{v1: true}
	case KindMessage:
		c.message(&e.Message)
	case KindProgress:
		p := &e.Progress
		if p.Metadata != nil && p.Metadata.Type == TypeHeading {
			c.Heading = &Progress{Name: p.Payload.Name, Icon: p.Payload.Icon}
			return
		}
		setStep(c.stepsOf(p.Payload.ID), Step{ID: p.Payload.ID, Name: p.Payload.Name,
			Status: p.Payload.Status, Values: p.Payload.Values, Icon: p.Payload.Icon})
	case KindAttachments:
		c.Attachments = e.Attachments
	}
}

// stepsOf finds the steps among which one with this id is: those of a block, or else
// V1's.
func (c *Client) stepsOf(id string) *[]Step {
	for i := range c.Blocks {
		if slices.ContainsFunc(c.Blocks[i].Steps, func(s Step) bool { return s.ID == id }) {
			return &c.Blocks[i].Steps
		}
	}
	return &c.Steps
}

func (c *Client) message(m *Message) {
	if m.Error != nil {
		c.Error = m.Error
		return
	}
	switch m.Type {
	case "":
		if m.Content != nil {
			c.grows(place{block: -1}, len(c.Content))
			c.content.add(&c.Content, *m.Content)
		}
	case TypeAttachments:
		c.Attachments = m.Attachments
	case TypeText:
		b := c.block(m)
		c.grows(place{block: b.Index, what: m.Type}, len(b.Text))
		b.text.add(&b.Text, m.Text)
	case TypeReasoning:
		b := c.block(m)
		c.grows(place{block: b.Index, what: m.Type}, len(b.Reasoning))
		b.reasoning.add(&b.Reasoning, m.Reasoning)
	case TypeToolCalls:
		b := c.block(m)
		for _, call := range m.ToolCalls {
			i := slices.IndexFunc(b.Calls, func(x ToolCall) bool { return x.ID == call.ID })
			if i < 0 {
				b.Calls = append(b.Calls, call)
			} else {
				b.Calls[i] = call
			}
		}
	case TypeToolCallResult:
		if m.ToolCallResult != nil {
			c.result(c.block(m), m.ToolCallResult)
		}
	case TypeCitation:
		if m.Citation != nil {
			b := c.block(m)
			c.grows(place{block: b.Index, what: m.Type}, len(b.Citations))
			b.Citations = append(b.Citations, *m.Citation)
		}
	case TypeProgress:
		switch p := m.Progress; {
		case p == nil:
		case p.Steps != nil:
			setStep(&c.block(m).Steps, *p.Steps)
		case c.v1: // see Literal.Progress
			c.Heading = p
		default:
			c.block(m).Heading = p
		}
	}
}

// block returns the block that a message is about.
func (c *Client) block(m *Message) *Block {
	if m.Index == nil {
		return c.at(0)
	}
	return c.at(*m.Index)
}

// at returns the block of an index. Blocks are in the order of their indexes,
// in whatever order they are sent.
func (c *Client) at(index int) *Block {
	i, found := slices.BinarySearchFunc(c.Blocks, index, func(b Block, index int) int { return cmp.Compare(b.Index, index) })
	if !found {
		c.Blocks = slices.Insert(c.Blocks, i, Block{Index: index})
	}
	return &c.Blocks[i]
}

// at returns the result of a call.
func (b *Block) at(call int) *Result {
	i, found := slices.BinarySearchFunc(b.Results, call, func(r Result, call int) int { return cmp.Compare(r.Index, call) })
	if !found {
		b.Results = slices.Insert(b.Results, i, Result{Index: call})
	}
	return &b.Results[i]
}

func (c *Client) result(b *Block, in *ToolCallResult) {
	r := b.at(in.Index)
	if in.Result != nil {
		*r = Result{Index: in.Index, Text: *in.Result, Failed: in.IsError}
	}
	if in.Delta != nil {
		c.grows(place{b.Index, TypeToolCallResult, in.Index}, len(r.Text))
		r.text.add(&r.Text, *in.Delta)
	}
}

// setStep replaces the step with this id, or adds it. A step without an index keeps
// the index that it had.
func setStep(steps *[]Step, s Step) {
	i := slices.IndexFunc(*steps, func(x Step) bool { return x.ID == s.ID })
	if i < 0 {
		*steps = append(*steps, s)
		return
	}
	if s.Index == nil {
		s.Index = (*steps)[i].Index
	}
	(*steps)[i] = s
}

// Text returns the text of the answer: of V2, the texts of all blocks.
func (c *Client) Text() string {
	text := []string{c.Content}
	for i := range c.Blocks {
		text = append(text, c.Blocks[i].Text)
	}
	return strings.Join(text, "")
}
