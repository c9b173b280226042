package native_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire/native"
	"github.com/spool-run/spool/wire/wiretest"
)

func TestWire(t *testing.T) {
	t.Parallel()
	for framing, name := range []string{"bare", "event"} {
		t.Run(name, func(t *testing.T) {
			wiretest.Run(t, wiretest.Wire{
				New:    func(*fold.Turn) spool.Projector { return native.New(native.Framing(framing)) },
				Fold:   state,
				Truth:  truth,
				NoPlan: true,
			})
		})
	}
}

// fold collects the chunks that a client reads.
func state(stream []byte) (json.RawMessage, error) {
	r := native.NewReader(bytes.NewReader(stream))
	chunks := []json.RawMessage{}
	for {
		m, err := r.Next()
		if err == io.EOF {
			return json.Marshal(chunks)
		}
		if err != nil {
			return nil, err
		}
		if m.Kind != native.KindChunk {
			return nil, fmt.Errorf("a message of kind %d", m.Kind)
		}
		chunks = append(chunks, m.Chunk)
	}
}

// truth is the log itself.
func truth(log []chunk.Record, _ *fold.Turn) (json.RawMessage, error) {
	chunks := []json.RawMessage{}
	for _, r := range log {
		chunks = append(chunks, r.Data)
	}
	return json.Marshal(chunks)
}
