package merlin

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// logTag marks what a [Streamer] logs.
const logTag = "ERROR/STREAMER"

// Stream writes a model's answer as it comes, and returns it when it has ended. It
// takes text, reasoning, calls, progress, citations, files and usage, and ignores
// other chunks. A call without a name is logged and left out.
//
// Streams may run at the same time. In V2 each has blocks of its own. V1 has one
// content, in which one stream is written after the other, in the order in which they
// began.
//
// When the stream fails, Stream returns the error and what came before, without its
// calls, which may be incomplete. The answer is not ended by that: the caller calls
// End, or Stream again. Nothing more is read when ctx ends or the client is gone.
func (s *Streamer) Stream(ctx context.Context, chunks iter.Seq2[chunk.Chunk, error], c StreamConfig) (StreamedChunks, error) {
	v, err := s.open(c)
	if err == nil {
		defer context.AfterFunc(ctx, func() { s.hurry(v) })()
		err = s.read(ctx, v, chunks)
	}
	out, closed := s.close(v)
	if err == nil {
		err = closed
	}
	if err != nil {
		out.ToolCalls = nil
		s.log("a stream broke", "err", err)
	}
	return out, err
}

// read takes the chunks of a stream.
func (s *Streamer) read(ctx context.Context, v *modelStream, chunks iter.Seq2[chunk.Chunk, error]) error {
	for event, err := range chunks {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = s.take(v, event)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hurry has what is left of a stream that was stopped written without pauses.
func (s *Streamer) hurry(v *modelStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paced != nil && v.shown && !v.sub {
		s.paced.hurry()
	}
}

// log tells the logger, if there is one, what went wrong.
func (s *Streamer) log(message string, args ...any) {
	if s.o.Logger != nil {
		s.o.Logger.Error(message, append(args, "tag", logTag)...)
	}
}

// modelStream is one call of [Streamer.Stream].
type modelStream struct {
	base      chunk.Base
	collected *Projector // of this stream alone
	sub       bool       // it is a sub-agent's
	hidden    bool       // it is suppressed; the projector suppresses sub-agents by itself
	nameless  map[string]bool

	// Of V1, where own streams are shown one after the other:
	waiting []chunk.Record
	from    int // number of pieces of the content before its own
	shown   bool
	closed  bool
}

// open begins a stream.
func (s *Streamer) open(c StreamConfig) (*modelStream, error) {
	events := 0
	if c.Events != nil {
		events, _ = c.Events.Index()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.p.o
	v := &modelStream{base: chunk.Base{AgentID: streamed, RunID: streamed}, sub: c.AsResultOf != "", hidden: c.Suppress, nameless: map[string]bool{}}
	if err := s.init(); err != nil {
		v.collected = NewProjector(streamed, &o)
		return v, err
	}
	err := s.locate(v, &c)
	if !v.sub && !v.hidden {
		s.skipTo(InitialContentIndex(o.Version, c.ContentIndex, events))
	}
	o.FirstIndex = s.p.index(len(s.p.scene().blocks))
	v.collected = NewProjector(streamed, &o)
	v.collected.given, _ = s.p.cited(s.p.scene().sources)
	waits := false
	switch {
	case err != nil:
	case v.sub:
		err = s.openSub(v, c.AsResultOf)
	case v.hidden && !o.Literal.revealsThoughts(): // nothing of it is shown
	default:
		s.own = append(s.own, v)
		if waits = len(s.own) > 1 && o.Version == V1; !waits && len(s.own) > 1 {
			v.base.AgentID = s.speaker()
			s.p.join(v.base.AgentID)
		}
	}
	if err == nil {
		err = v.begin()
	}
	if err != nil || waits {
		return v, err
	}
	return v, s.show(v)
}

// begin begins what the caller gets.
func (v *modelStream) begin() error {
	r, err := record(&chunk.RunStarted{Base: v.base, TurnID: streamed, MessageID: streamed, Mode: "start"})
	if err != nil {
		return err
	}
	return v.collect(r, 1)
}

// collect folds a record for the caller.
func (v *modelStream) collect(r chunk.Record, seq uint64) error {
	r.Seq = seq
	_, err := v.collected.Apply(nil, r)
	return err
}

// locate finds the call that a stream answers, if it is given by its place.
func (s *Streamer) locate(v *modelStream, c *StreamConfig) (err error) {
	if c.AsResultOf == "" && c.ToolResultIndex != nil {
		v.sub = true
		c.AsResultOf, err = s.callAt(c.ContentIndex, *c.ToolResultIndex)
	}
	return err
}

// openSub begins a stream of a sub-agent. A further stream for the same call continues
// where the one before ended.
func (s *Streamer) openSub(v *modelStream, callID string) error {
	if _, known := s.calls[callID]; !known {
		return fmt.Errorf("%w: %q", ErrUnknownCall, callID)
	}
	v.base.AgentID = s.kids[callID]
	if v.base.AgentID == "" {
		v.base.AgentID = s.speaker()
		s.kids[callID] = v.base.AgentID
		s.p.adopt(s.p.byCall, &chunk.SubAgentStart{SubAgentType: "agent", SubSessionID: v.base.AgentID, CallID: callID})
	}
	return nil
}

// speaker returns an agent id for another stream.
func (s *Streamer) speaker() string {
	s.speakers++
	return fmt.Sprintf("%s.%d", streamed, s.speakers)
}

// show begins to show a stream, with what waits of it.
func (s *Streamer) show(v *modelStream) error {
	if v.shown {
		return nil
	}
	v.shown = true
	if content, ok := s.p.view.(*viewV1); ok {
		v.from = len(content.pieces)
	}
	s.steps++
	err := s.feed(&chunk.StepStarted{Base: v.base, StepID: fmt.Sprint(s.steps)})
	for _, r := range v.waiting {
		if err == nil {
			err = s.project(r)
		}
	}
	v.waiting = nil
	return err
}

// take projects a chunk of a stream.
func (s *Streamer) take(v *modelStream, event chunk.Chunk) error {
	b := event.ChunkBase()
	b.AgentID, b.RunID = v.base.AgentID, v.base.RunID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrEnded
	}
	shows := !v.hidden
	switch c := event.(type) {
	case *chunk.Thinking:
		shows = shows || s.p.o.Literal.revealsThoughts()
	case *chunk.TextDelta:
		shows = shows && c.Delta != ""
	case *chunk.Progress:
		shows = shows || v.sub
	case *chunk.Citation, *chunk.File, *chunk.UsageReport:
	default:
		id, name, ok := called(event)
		if !ok || s.leaveOut(v, id, name) {
			return nil
		}
		// A sub-agent's calls are its own affair: what it says after them is shown in
		// the same result.
		shows = shows && !v.sub
		if shows {
			s.calls[id] = b.AgentID
		} else if _, known := s.calls[id]; !known {
			s.calls[id] = ""
		}
	}
	r, err := record(event)
	if err == nil {
		err = v.collect(r, s.seq+2)
	}
	switch {
	case err != nil:
		return err
	case !shows:
		return s.err
	case !v.shown:
		v.waiting = append(v.waiting, r)
		return s.err
	}
	err = s.project(r)
	if s.paced != nil {
		s.paced.wait(s.paced.most) // read no further ahead than the pace depends on
	}
	return err
}

// called returns the id and the name of the call that a chunk is about, and whether it
// is about one. Only the first chunk of a call must have the name.
func called(c chunk.Chunk) (id, name string, ok bool) {
	switch c := c.(type) {
	case *chunk.ToolArgStreamStart:
		return c.ToolCallID, c.ToolName, true
	case *chunk.ToolArgStreamDelta:
		return c.ToolCallID, "", true
	case *chunk.ToolArgStreamEnd:
		return c.ToolCallID, c.ToolName, true
	case *chunk.ToolStart:
		return c.ToolCallID, c.ToolName, true
	case *chunk.ToolEnd:
		return c.ToolCallID, c.ToolName, true
	case *chunk.ToolInputError:
		return c.ToolCallID, c.ToolName, true
	}
	return "", "", false
}

// leaveOut reports whether a chunk belongs to a call that never had a name, and logs
// the first such chunk of each.
func (s *Streamer) leaveOut(v *modelStream, id, name string) bool {
	_, known := s.calls[id]
	if name != "" || known {
		return false
	}
	if !v.nameless[id] {
		v.nameless[id] = true
		s.log("a piece of a call that did not begin is left out", "call", id)
	}
	return true
}

// close ends a stream and returns it when it is written. The content of V1 is what was
// sent, with the markers of its citations. A stream that still waits is shown later; the
// numbers of its markers may differ by then.
func (s *Streamer) close(v *modelStream) (out StreamedChunks, err error) {
	s.mu.Lock()
	defer s.unlock(&err)
	v.closed = true
	out = v.collected.Collected()
	if s.ended || s.err != nil || !slices.Contains(s.own, v) {
		return out, s.err
	}
	if content, ok := s.p.view.(*viewV1); ok {
		out.Content, err = s.closeContent(v, content, out.Content)
	} else {
		s.own = slices.DeleteFunc(s.own, func(o *modelStream) bool { return o == v })
	}
	return out, err
}

// closeContent ends an own stream of V1, and shows those that waited for its end. It
// returns the stream's content as it was sent; if it still waits, as it was collected.
func (s *Streamer) closeContent(v *modelStream, content *viewV1, collected []string) ([]string, error) {
	if v.shown {
		if err := s.mark(); err != nil {
			return collected, err
		}
		collected = collected[:0]
		for _, piece := range content.pieces[v.from:] {
			if piece.text != "" {
				collected = append(collected, piece.text)
			}
		}
	}
	for len(s.own) > 0 && s.own[0].closed {
		if err := s.showNext(); err != nil {
			return collected, err
		}
	}
	return collected, nil
}

// showNext shows the stream that waits behind the first one, which has ended.
func (s *Streamer) showNext() error {
	s.own = s.own[1:]
	if len(s.own) == 0 {
		return nil
	}
	if err := s.show(s.own[0]); err != nil || !s.own[0].closed {
		return err
	}
	return s.mark()
}

// mark writes the markers of V1 that are held back.
func (s *Streamer) mark() error {
	if s.p.o.Version != V1 {
		return nil
	}
	s.p.flushed = s.p.o.Literal.markedAtEnd(len(s.p.scene().sources))
	s.p.w.frames = nil
	s.p.sync()
	frames := s.p.w.frames
	s.p.w.frames = nil
	return s.write(frames)
}

// SendCitation shows a quotation from the attachment at an index, and returns its
// marker, which V1 has written. Nil is no citation and has no marker.
func (s *Streamer) SendCitation(c *Citation) (marked string, err error) {
	if c == nil {
		return "", nil
	}
	s.mu.Lock()
	defer s.unlock(&err)
	if err := s.init(); err != nil {
		return "", err
	}
	if d, _ := s.p.cited(s.p.scene().sources); c.DocumentIndex < 0 || c.DocumentIndex >= len(d.links) {
		return "", fmt.Errorf("%w: %d", ErrNoDocument, c.DocumentIndex)
	}
	base := chunk.Base{AgentID: streamed, RunID: streamed}
	s.steps++
	source := &chunk.Citation{Base: base, SourceID: fmt.Sprintf("sent-%d", s.steps), CitedText: c.CitedText, DocumentIndex: &c.DocumentIndex}
	if err = s.feed(source); err == nil {
		err = s.mark()
	}
	if err == nil && s.p.o.Version == V1 { // what follows is another text, behind the marker
		err = s.feed(&chunk.StepStarted{Base: base, StepID: fmt.Sprint(s.steps)})
	}
	sources := s.p.scene().sources
	_, quotes := s.p.attach(sources, nil)
	for i := range sources {
		if sources[i].id == source.SourceID {
			marked = marker(quotes[i])
		}
	}
	return marked, err
}
