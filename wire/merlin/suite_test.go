package merlin_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/wiretest"
)

var literal = merlin.Literal{End: true, Suppression: true, FirstCall: true, EmptyArguments: true,
	Citations: true, Union: true, Progress: true, Errors: true}

var profiles = []struct {
	name string
	o    merlin.Options
}{
	{"v2", merlin.Options{}},
	{"v1", merlin.Options{Version: merlin.V1}},
	{"v2 suppressed", merlin.Options{FirstIndex: 7, Suppress: func(agent string) bool { return agent == "researcher" }}},
	{"v2 literal", merlin.Options{Literal: literal, Suppress: func(string) bool { return true }}},
	{"v1 literal", merlin.Options{Version: merlin.V1, Literal: literal}},
}

func TestWire(t *testing.T) {
	t.Parallel()
	for _, p := range profiles {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			wiretest.Run(t, wiretest.Wire{
				Profile: served(t, &p.o),
				Stride:  matrix.Stride(t, 29),
				Fold:    func(stream []byte) (json.RawMessage, error) { return state(stream, &p.o) },
			})
		})
	}
}

// served is what a server with these options serves. A first index is no option of
// servers, but of streams that one program writes one after the other.
func served(t *testing.T, o *merlin.Options) wire.Profile {
	t.Helper()
	p := profileOf(t, merlin.Wire(o.Version, merlin.WireOptions{Suppress: o.Suppress, Literal: o.Literal}), "")
	if o.FirstIndex != 0 {
		p.Projector = func(s wire.Subject) spool.Projector { return merlin.NewProjector(s.Turn, o) }
	}
	return p
}

// state reads a stream as the strictest client does.
func state(stream []byte, o *merlin.Options) (json.RawMessage, error) {
	r := merlin.NewReader(bytes.NewReader(stream))
	var c merlin.Client
	for n := 0; ; n++ {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if c.Ended {
			return nil, errors.New("an event follows the end")
		}
		if o.Version == merlin.V1 && (n == 0) != (e.Kind == merlin.KindInit) {
			return nil, fmt.Errorf("event %d is %s", n, e.Name)
		}
		renames := o.Literal.Progress && e.Message.Type == merlin.TypeProgress
		if e.Kind == merlin.KindUnknown || e.Kind == merlin.KindMessage && o.Version == merlin.V1 && e.Message.Type != "" && !renames {
			return nil, fmt.Errorf("a %s of type %q", e.Name, e.Message.Type)
		}
		c.Apply(e)
		if err := strict(&c, &e, o); err != nil {
			return nil, err
		}
	}
	c.Ended = false // the server knows whether the end still holds
	for i := range c.Blocks {
		// A sub-agent whose words were taken back has said nothing.
		c.Blocks[i].Results = slices.DeleteFunc(c.Blocks[i].Results, func(r merlin.Result) bool { return r.Text == "" && !r.Failed })
	}
	return json.Marshal(c)
}

// strict checks what clients may rely on.
func strict(c *merlin.Client, e *merlin.Event, o *merlin.Options) error {
	if o.Version != merlin.V1 && e.Kind == merlin.KindProgress && !o.Literal.Progress {
		return errors.New("a V1 event in V2")
	}
	for i, b := range c.Blocks {
		kinds := 0
		for _, has := range []bool{b.Text != "", b.Reasoning != "" && b.Calls == nil, b.Calls != nil} {
			if has {
				kinds++
			}
		}
		switch {
		case kinds > 0 && b.Index < o.FirstIndex, i > 0 && b.Index <= c.Blocks[i-1].Index: // progress can be placed anywhere
			return fmt.Errorf("block %d has index %d", i, b.Index)
		case kinds > 1:
			return fmt.Errorf("block %d is of several kinds: %+v", i, b)
		}
		for _, r := range b.Results {
			if r.Index < 0 || r.Index >= len(b.Calls) {
				return fmt.Errorf("block %d has a result of call %d of %d", i, r.Index, len(b.Calls))
			}
		}
		for _, q := range b.Citations {
			if q.DocumentIndex >= len(c.Attachments) || !slices.Contains(c.Attachments[q.DocumentIndex].CitedText, q.CitedText) {
				return fmt.Errorf("the quotation %+v is of nothing in %+v", q, c.Attachments)
			}
		}
		for j, s := range b.Steps {
			if s.Index == nil || *s.Index != j {
				return fmt.Errorf("step %d of block %d has index %v", j, i, s.Index)
			}
		}
	}
	return nil
}
