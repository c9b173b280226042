package merlin

import (
	"context"
	"fmt"

	"github.com/spool-run/spool/chunk"
)

type contextKey struct{}

// NewContext returns a context of a request that carries its streamer, for the tools and
// agents that work on its answer.
func NewContext(ctx context.Context, s *Streamer) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// FromContext returns the streamer that a context carries, or nil.
func FromContext(ctx context.Context) *Streamer {
	s, _ := ctx.Value(contextKey{}).(*Streamer)
	return s
}

// State is what an orchestrator knows when it calls a model: where the answer stands, and
// for whom it calls.
type State struct {
	ContentIndex    int  // where the stream goes; of a sub-agent, the block that has its call
	ToolResultIndex int  // of a sub-agent: the index of its call in that block
	SubAgent        bool // the model speaks for a sub-agent
	Show            bool // what the sub-agent says is shown
}

// Config returns how the stream of a model is shown.
func (st State) Config() StreamConfig {
	c := StreamConfig{ContentIndex: st.ContentIndex}
	if st.SubAgent {
		c.ToolResultIndex, c.Suppress = &st.ToolResultIndex, !st.Show
	}
	return c
}

// InitialContentIndex returns the content index at which an agent begins: of V2, the
// answer's, or that of its event manager if it is higher. V1 has none: 0.
func InitialContentIndex(v Version, answer, events int) int {
	if v == V1 {
		return 0
	}
	return max(answer, events)
}

// ContentIndex returns the content index that the next block of the answer will have.
func (s *Streamer) ContentIndex() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.indexOf("", "")
}

// SetContentIndex raises the content index of the next block. It returns the index that
// the block will have: one that is lower than [Streamer.ContentIndex] is not taken.
func (s *Streamer) SetContentIndex(index int) (next int, err error) {
	s.mu.Lock()
	defer s.unlock(&err)
	if err := s.init(); err != nil {
		return 0, err
	}
	s.skipTo(index)
	return s.indexOf("", ""), nil
}

// CallIndex returns where a call is shown: the content index of its block, and its index
// in that block, as [State] has them. A call that is not shown is [ErrUnknownCall].
func (s *Streamer) CallIndex(callID string) (content, toolResult int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[callID] != "" {
		for i, b := range s.p.scene().blocks {
			if at := b.call(callID); at >= 0 {
				return s.p.index(i), at, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("%w: %q", ErrUnknownCall, callID)
}

// callAt returns the id of the call at a place.
func (s *Streamer) callAt(content, toolResult int) (string, error) {
	for i, b := range s.p.scene().blocks {
		if s.p.index(i) == content && toolResult >= 0 && toolResult < len(b.calls) {
			return b.calls[toolResult].id, nil
		}
	}
	return "", fmt.Errorf("%w: index %d of block %d", ErrUnknownCall, toolResult, content)
}

// AddDocuments attaches links that the model was given during the answer, behind those
// that are attached already. Citations count them, too.
func (s *Streamer) AddDocuments(list ...Attachment) (err error) {
	s.mu.Lock()
	defer s.unlock(&err)
	if err := s.init(); err != nil {
		return err
	}
	for _, a := range list {
		s.steps++
		c := &chunk.Citation{SourceID: fmt.Sprintf("given-%d", s.steps), URL: a.URL, Title: a.Title}
		if err := s.feed(c); err != nil {
			return err
		}
	}
	return nil
}

// Attachments returns the attachments of the answer, with what is quoted from them.
func (s *Streamer) Attachments() []Attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p.fold == nil {
		return s.p.given.clone().list
	}
	sc := s.p.scene()
	d, _ := s.p.cited(sc.sources)
	return append(d.list, sc.files...)
}
