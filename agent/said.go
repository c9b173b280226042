package agent

import (
	"errors"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// errDiverged says that the answer is not the one of which the log has a part.
var errDiverged = errors.New("agent: the provider's answer is not the one that was begun")

// said is what the log has of an answer that is heard again from its beginning.
// It takes what the log has off the chunks that the answer becomes, wherever
// their borders are: what is left is exactly what the log lacks.
type said struct {
	blocks  []saidBlock // text and reasoning, in their order
	at      int         // the block under comparison; -1 before the first
	growing bool        // it is open in the answer
	calls   map[string]*saidCall
	sources map[string]string // by id
	cited   map[string]bool   // sources heard again
	files   []string
	filed   int
}

type saidBlock struct {
	kind     chunk.PartType
	id, text string
	open     bool // in the log
	heard    int  // bytes of the text
}

type saidCall struct {
	name  string
	args  string
	ended bool // the arguments are complete
	done  bool // there is an outcome
	begun bool // it was heard again
	heard int  // bytes of the arguments
}

// newSaid takes the parts of an open model phase.
func newSaid(parts []chunk.Part) *said {
	b := &said{at: -1, calls: map[string]*saidCall{}, sources: map[string]string{}, cited: map[string]bool{}}
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case chunk.PartText, chunk.PartReasoning:
			b.blocks = append(b.blocks, saidBlock{kind: p.Type, id: p.ID, text: p.Text, open: p.Open})
		case chunk.PartTool:
			b.calls[p.Tool.CallID] = &saidCall{name: p.Tool.Name, args: p.Tool.InputText,
				ended: p.Tool.State != chunk.ToolStreaming, done: p.Tool.State.Done()}
		case chunk.PartSource:
			b.sources[p.ID] = p.URL
		case chunk.PartFile:
			b.files = append(b.files, p.MediaType)
		}
	}
	return b
}

// again starts the comparison over.
func (b *said) again() {
	b.at, b.growing, b.filed = -1, false, 0
	for i := range b.blocks {
		b.blocks[i].heard = 0
	}
	for _, c := range b.calls {
		c.begun, c.heard = false, 0
	}
	clear(b.cited)
}

// lacks takes off the answer's next chunk what the log has of it, and reports
// whether anything is left. Chunks of other kinds than an answer's are left alone.
func (b *said) lacks(c chunk.Chunk) (bool, error) {
	switch c := c.(type) {
	case *chunk.TextDelta:
		return b.lacksText(chunk.PartText, c.PartID, &c.Delta)
	case *chunk.Thinking:
		if !c.IsComplete {
			return b.lacksText(chunk.PartReasoning, c.PartID, &c.Content)
		}
		return b.lacksReasoningEnd(c)
	case *chunk.ToolArgStreamStart:
		return b.lacksCall(c)
	case *chunk.ToolArgStreamDelta:
		return b.lacksArguments(c)
	case *chunk.ToolArgStreamEnd:
		return b.lacksCallEnd(c)
	case *chunk.ToolEnd:
		return b.lacksOutcome(c), nil
	case *chunk.Citation:
		return b.lacksSource(c)
	case *chunk.File:
		return b.lacksFile(c)
	}
	return true, nil
}

// lacksText compares a piece of text or reasoning, and takes off what is known.
func (b *said) lacksText(kind chunk.PartType, id string, text *string) (bool, error) {
	block, err := b.block(kind, id)
	if block == nil || err != nil {
		return *text != "", err
	}
	unsaid, err := without(block.text, &block.heard, *text)
	if unsaid != "" && !block.open {
		err = errDiverged // it would open another block
	}
	*text = unsaid
	return unsaid != "", err
}

// lacksReasoningEnd compares the end of a block of reasoning, with the text that it
// may bring.
func (b *said) lacksReasoningEnd(c *chunk.Thinking) (bool, error) {
	block, err := b.block(chunk.PartReasoning, c.PartID)
	b.growing = false
	if block == nil || err != nil {
		return true, err
	}
	// The transcript closes a block with the text that was not streamed.
	if block.heard <= len(block.text) {
		whole := block.text[:block.heard] + c.Content
		unsaid, ok := strings.CutPrefix(whole, block.text)
		if !ok || unsaid != "" && !block.open {
			return false, errDiverged
		}
		if c.Content = whole; unsaid == "" {
			c.Content = ""
		}
		block.heard = len(whole)
	}
	return block.open, nil
}

func (b *said) lacksCall(c *chunk.ToolArgStreamStart) (bool, error) {
	b.growing = false
	call := b.calls[c.ToolCallID]
	if call == nil {
		b.close()
		return true, nil
	}
	call.begun = true
	if call.name != c.ToolName {
		return false, errDiverged
	}
	return false, nil
}

// lacksArguments compares a piece of a call's arguments, and takes off what is
// known.
func (b *said) lacksArguments(c *chunk.ToolArgStreamDelta) (bool, error) {
	call := b.calls[c.ToolCallID]
	if call == nil {
		return true, nil
	}
	if call.ended {
		return false, nil
	}
	unsaid, err := without(call.args, &call.heard, c.Delta)
	c.Delta = unsaid
	return unsaid != "", err
}

func (b *said) lacksCallEnd(c *chunk.ToolArgStreamEnd) (bool, error) {
	call := b.calls[c.ToolCallID]
	switch {
	case call == nil:
	case call.ended:
		return false, nil
	case call.heard < len(call.args):
		return false, errDiverged
	}
	return true, nil
}

func (b *said) lacksOutcome(c *chunk.ToolEnd) bool {
	b.growing = false
	if call := b.calls[c.ToolCallID]; call != nil && call.done {
		return false
	}
	b.close()
	return true
}

func (b *said) lacksSource(c *chunk.Citation) (bool, error) {
	url, known := b.sources[c.SourceID]
	if !known {
		return true, nil
	}
	b.cited[c.SourceID] = true
	if url != c.URL {
		return false, errDiverged
	}
	return false, nil
}

// lacksFile compares a file. Files have no ids: their order and their media types
// count.
func (b *said) lacksFile(c *chunk.File) (bool, error) {
	if b.filed >= len(b.files) {
		return true, nil
	}
	b.filed++
	if b.files[b.filed-1] != c.MediaType {
		return false, errDiverged
	}
	return false, nil
}

// without takes off a text what is stored of it. heard counts how many bytes the
// texts so far had.
func without(stored string, heard *int, text string) (unsaid string, err error) {
	known := stored[min(*heard, len(stored)):]
	*heard += len(text)
	if strings.HasPrefix(known, text) {
		return "", nil
	}
	unsaid, ok := strings.CutPrefix(text, known)
	if !ok {
		return "", errDiverged
	}
	return unsaid, nil
}

// close notes that the log's open block is closed by what is appended now.
func (b *said) close() {
	if n := len(b.blocks); n > 0 {
		b.blocks[n-1].open = false
	}
}

// block comes to the block that a chunk belongs to, as the log's fold does, and
// returns it, or nil if the log does not have it.
func (b *said) block(kind chunk.PartType, id string) (*saidBlock, error) {
	if b.growing && b.at < len(b.blocks) {
		if block := &b.blocks[b.at]; block.kind == kind && block.id == id {
			return block, nil
		}
	}
	if !b.growing || b.at < len(b.blocks) {
		if b.at >= 0 && b.at < len(b.blocks) && b.blocks[b.at].heard < len(b.blocks[b.at].text) {
			return nil, errDiverged
		}
		b.at, b.growing = b.at+1, true
	}
	if b.at >= len(b.blocks) {
		return nil, nil
	}
	block := &b.blocks[b.at]
	if block.kind != kind || block.id != id {
		return nil, errDiverged
	}
	return block, nil
}

// end checks that the answer, now that it is over, has said all that the log has.
func (b *said) end() error {
	for i := range b.blocks {
		if block := &b.blocks[i]; i > b.at || block.heard < len(block.text) {
			return errDiverged
		}
	}
	for _, call := range b.calls {
		if !call.begun {
			return errDiverged
		}
	}
	if len(b.cited) < len(b.sources) || b.filed < len(b.files) {
		return errDiverged
	}
	return nil
}
