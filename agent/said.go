package agent

import (
	"errors"
	"strings"

	"github.com/spool-run/spool/chunk"
)

// errDiverged: the answer is not the one that the log has a part of.
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

// rest returns what the log lacks of the answer's next chunk, or nil.
func (b *said) rest(event chunk.Chunk) (chunk.Chunk, error) {
	switch c := event.(type) {
	case *chunk.TextDelta:
		rest, err := b.grow(chunk.PartText, c.PartID, c.Delta)
		if rest == "" || err != nil {
			return nil, err
		}
		c.Delta = rest
	case *chunk.Thinking:
		return b.thinking(c)
	case *chunk.ToolArgStreamStart:
		b.growing = false
		if call := b.calls[c.ToolCallID]; call != nil {
			call.begun = true
			if call.name != c.ToolName {
				return nil, errDiverged
			}
			return nil, nil
		}
		b.close()
	case *chunk.ToolArgStreamDelta:
		call := b.calls[c.ToolCallID]
		if call == nil {
			break
		}
		if call.ended {
			return nil, nil
		}
		rest, err := without(call.args, &call.heard, c.Delta)
		if rest == "" || err != nil {
			return nil, err
		}
		c.Delta = rest
	case *chunk.ToolArgStreamEnd:
		call := b.calls[c.ToolCallID]
		switch {
		case call == nil:
		case call.ended:
			return nil, nil
		case call.heard < len(call.args):
			return nil, errDiverged
		}
	case *chunk.ToolEnd:
		b.growing = false
		if call := b.calls[c.ToolCallID]; call != nil && call.done {
			return nil, nil
		}
		b.close()
	case *chunk.Citation:
		if url, ok := b.sources[c.SourceID]; ok {
			b.cited[c.SourceID] = true
			if url != c.URL {
				return nil, errDiverged
			}
			return nil, nil
		}
	case *chunk.File:
		if b.filed < len(b.files) {
			b.filed++
			if b.files[b.filed-1] != c.MediaType {
				return nil, errDiverged
			}
			return nil, nil
		}
	}
	return event, nil
}

// without returns what text adds to what is in the log, of which heard bytes were
// heard.
func without(stored string, heard *int, text string) (rest string, err error) {
	known := stored[min(*heard, len(stored)):]
	*heard += len(text)
	if strings.HasPrefix(known, text) {
		return "", nil
	}
	rest, ok := strings.CutPrefix(text, known)
	if !ok {
		return "", errDiverged
	}
	return rest, nil
}

// close notes that the log's open block is closed by what is appended now.
func (b *said) close() {
	if n := len(b.blocks); n > 0 {
		b.blocks[n-1].open = false
	}
}

// turn comes to the block that a chunk belongs to, as the log's fold does, and
// returns it, or nil if the log does not have it.
func (b *said) turn(kind chunk.PartType, id string) (*saidBlock, error) {
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

func (b *said) grow(kind chunk.PartType, id, text string) (rest string, err error) {
	block, err := b.turn(kind, id)
	if block == nil || err != nil {
		return text, err
	}
	if rest, err = without(block.text, &block.heard, text); rest != "" && !block.open {
		err = errDiverged // it would open another block
	}
	return rest, err
}

func (b *said) thinking(c *chunk.Thinking) (chunk.Chunk, error) {
	if !c.IsComplete {
		rest, err := b.grow(chunk.PartReasoning, c.PartID, c.Content)
		if rest == "" || err != nil {
			return nil, err
		}
		c.Content = rest
		return c, nil
	}
	block, err := b.turn(chunk.PartReasoning, c.PartID)
	b.growing = false
	if block == nil || err != nil {
		return c, err
	}
	// What the transcript closes a block with is its rest.
	if block.heard <= len(block.text) {
		whole := block.text[:block.heard] + c.Content
		rest, ok := strings.CutPrefix(whole, block.text)
		if !ok {
			return nil, errDiverged
		}
		c.Content = whole
		if rest == "" {
			c.Content = ""
		}
		block.heard = len(whole)
		if !block.open && rest != "" {
			return nil, errDiverged
		}
	}
	if !block.open {
		return nil, nil
	}
	return c, nil
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
