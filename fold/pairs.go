package fold

import "github.com/spool-run/spool/chunk"

// pairing joins the records of one append that only mean something together: an
// edit and its user message, a resume_requested and its user message, a rollback
// and its resume_requested, and the history_replaced of a series. It holds what the
// records so far have announced.
type pairing struct {
	edit     *chunk.HistoryRewound  // waits for its user message
	resume   *chunk.ResumeRequested // waits for its user message
	restored string                 // the checkpoint that the last record went back to
	series   map[string]*replacing  // series that go on, by command id
}

// replacing is a series of history_replaced so far.
type replacing struct {
	*chunk.HistoryReplaced
	last joined // its last message
}

// next makes way for a record. What it does not complete is void, except for series,
// which others may interrupt. below says that the record is a child's.
func (p *pairing) next(t chunk.Type, below bool) {
	if t != chunk.TypeUserMessage {
		p.edit, p.resume = nil, nil
	}
	if below {
		p.edit = nil
	}
	if t != chunk.TypeResumeRequested {
		p.restored = ""
	}
}

// open reports whether a record has announced another that is not there yet.
func (p *pairing) open() bool {
	return p.edit != nil || p.resume != nil || p.restored != "" || len(p.series) > 0
}

// takeOpener returns the edit or the resume that a user message completes.
func (p *pairing) takeOpener() (edit *chunk.HistoryRewound, resume *chunk.ResumeRequested) {
	edit, resume = p.edit, p.resume
	p.edit, p.resume = nil, nil
	return edit, resume
}

// takeRestored returns the checkpoint that the record before went back to.
func (p *pairing) takeRestored() string {
	id := p.restored
	p.restored = ""
	return id
}

// join takes the next record of a series, and returns the whole series with its
// last one. A series that lacks a record counts for nothing.
func (p *pairing) join(c *chunk.HistoryReplaced) (whole *chunk.HistoryReplaced, complete bool) {
	so := p.series[c.CommandID]
	switch {
	case so != nil && c.Index <= so.Index:
		return nil, false // somebody sends it again
	case so == nil && c.Index == 0:
		so = &replacing{HistoryReplaced: c}
	case so == nil || c.Index != so.Index+1:
		delete(p.series, c.CommandID)
		return nil, false
	default:
		if c.Messages != nil {
			so.add(*c.Messages, c.GoesOn)
		}
		if c.State != nil {
			so.State = c.State
		}
		so.Index = c.Index
	}
	if c.More {
		if p.series == nil {
			p.series = map[string]*replacing{}
		}
		p.series[c.CommandID] = so
		return nil, false
	}
	delete(p.series, c.CommandID)
	return so.HistoryReplaced, true
}

// dropSeries forgets the series that go on: a run has begun.
func (p *pairing) dropSeries() { clear(p.series) }

// add appends the messages of the next record.
func (s *replacing) add(more []chunk.Message, goesOn bool) {
	if s.Messages == nil {
		s.Messages = &[]chunk.Message{}
	}
	list := *s.Messages
	if n := len(list); n > 0 && len(more) > 0 && list[n-1].ID == more[0].ID {
		s.last.parts = list[n-1].Parts
		s.last.add(more[0].Parts, goesOn)
		list[n-1].Parts, more = s.last.parts, more[1:]
	}
	if len(more) > 0 {
		s.last = joined{}
		list = append(list, more...)
	}
	s.Messages = &list
}
