package wiretest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// checkFailures: the error of a failed run stands in the log before the run's end, and
// both tell of it. A turn shows it once: frames and plan are those of a log without that
// record, as earlier versions wrote it.
func checkFailures(s *subject) error {
	if s.ofLog() {
		return nil
	}
	frames := func(records []chunk.Record) ([]byte, error) {
		r, err := s.project(records, false)
		if err != nil {
			return nil, err
		}
		var all []byte
		for _, f := range slices.Concat(append(r.frames, r.plans[len(r.plans)-1])...) {
			all = append(all, f.Data...)
		}
		return all, nil
	}
	bare, err := frames(s.records)
	if err != nil {
		return err
	}
	with, err := frames(withErrors(s.records))
	if err == nil && !bytes.Equal(bare, with) {
		err = fmt.Errorf("a failure is shown differently when its error is in the log:\n%s\nwithout it:\n%s", with, bare)
	}
	return err
}

// withErrors puts the error of each failed run before the run's end. It has the
// sequence of that end, so that all other records keep theirs.
func withErrors(log []chunk.Record) []chunk.Record {
	var with []chunk.Record
	for _, r := range log {
		c, err := chunk.Decode(r.Data)
		if end, ok := c.(*chunk.RunFinished); err == nil && ok && end.Outcome == chunk.OutcomeFailed {
			failure := &chunk.ErrorChunk{Base: end.Base, Error: end.Error, Code: end.Code, Recoverable: end.Recoverable, Fatal: true}
			if data, err := chunk.Append(nil, failure); err == nil {
				with = append(with, chunk.Record{Seq: r.Seq, Type: chunk.TypeError, Agent: r.Agent, Time: r.Time, Data: data})
			}
		}
		with = append(with, r)
	}
	return with
}

// talkative shows each error that it is given.
type talkative struct{ spool.Projector }

func (p talkative) Apply(dst []spool.Frame, r chunk.Record) ([]spool.Frame, error) {
	dst, err := p.Projector.Apply(dst, r)
	if r.Type == chunk.TypeError {
		dst = append(dst, spool.Frame{Data: []byte("event: error\n\n"), Seq: r.Seq})
	}
	return dst, err
}
