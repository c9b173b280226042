package fold

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// Save encodes the fold for a [spool.SavedFold]. It fails while a run is open, because
// what the open step holds is not in the encoding.
func (f *Fold) Save() ([]byte, error) {
	if f.busy() {
		return nil, errors.New("spool: a fold with an open run cannot be saved")
	}
	return json.Marshal(f)
}

// busy reports whether the fold, or a child's, knows more than its JSON.
func (f *Fold) busy() bool {
	return f.open.run != nil || f.pairs.open() || slices.ContainsFunc(f.Children, (*Fold).busy)
}

// Load decodes what [Fold.Save] wrote.
func Load(data []byte) (*Fold, error) {
	f := New("")
	if err := json.Unmarshal(data, f); err != nil {
		return nil, err
	}
	f.restore()
	return f, nil
}

// restore fills in what the JSON does not hold.
func (f *Fold) restore() {
	f.staging.committed = f.State
	for _, c := range f.Children {
		c.parent = f
		c.restore()
	}
	if turn := f.LastTurn(); turn != nil {
		f.current = NewMessageFold(f.Session)
		if m := f.Message(turn.MessageID); m != nil {
			f.current.resume(m)
		}
	}
}

// resume goes on with a saved message.
func (m *MessageFold) resume(saved *chunk.Message) {
	m.message, m.streamed = saved, make([]bool, len(saved.Parts))
	m.stepAt = -1
	for i, p := range saved.Parts {
		if p.Type == chunk.PartStep {
			m.stepAt = i
		}
	}
}
