package fold

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// staging is the custom state while a step changes it: how it was before, and the
// patches since. A commit keeps them.
type staging struct {
	committed json.RawMessage
	patches   []chunk.StatePatch // nil outside a run
}

// Staged returns the state as the last step left it, and the patches that the
// open step has made to it.
func (f *Fold) Staged() (committed json.RawMessage, patches []chunk.StatePatch) {
	return f.staging.committed, slices.Clone(f.staging.patches)
}

// statePatch applies a patch to the state, to be kept when its step is committed.
// A patch that does not apply changes nothing, here as at every reader.
func (f *Fold) statePatch(_ chunk.Record, c *chunk.StatePatch) {
	state, err := chunk.PatchState(f.State, c.Patches)
	switch {
	case err != nil:
	case f.open.run == nil:
		f.State, f.staging.committed = state, state
	default:
		f.State = state
		f.staging.patches = append(f.staging.patches, *c)
	}
}

// unstage goes back to the committed state and applies the patches to keep.
func (f *Fold) unstage(keep func(chunk.StatePatch) bool) {
	f.staging.patches = slices.DeleteFunc(f.staging.patches, func(p chunk.StatePatch) bool { return !keep(p) })
	f.State = f.staging.committed
	for _, p := range f.staging.patches {
		f.State = chunk.ReplayState(f.State, p.Patches)
	}
}

// keepState makes a state the committed one.
func (f *Fold) keepState(state json.RawMessage) {
	f.State, f.staging = state, staging{committed: state}
}
