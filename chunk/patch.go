package chunk

import (
	"encoding/json"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/spool-run/spool/internal/jsonenc"
)

var patchOptions = func() *jsonpatch.ApplyOptions {
	o := jsonpatch.NewApplyOptions()
	o.EscapeHTML = true // as encoding/json writes it everywhere else
	o.AccumulatedCopySizeLimit = MaxRecordBytes
	return o
}()

var replayOptions = func() *jsonpatch.ApplyOptions {
	o := *patchOptions
	o.EnsurePathExistsOnAdd = true
	return &o
}()

func decodePatch(operations []PatchOperation) (jsonpatch.Patch, error) {
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, ErrInvalid.With("", err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, ErrInvalid.Because("the patch is not RFC 6902").With("", err)
	}
	return patch, nil
}

// PatchState applies RFC 6902 operations to a JSON document, all of them or none. A
// nil document is {}.
func PatchState(state json.RawMessage, operations []PatchOperation) (json.RawMessage, error) {
	return patchState(state, operations, patchOptions)
}

// ReplayState applies patches to a state that lacks other patches, which were made
// between them and have been taken back. If one of those had made the object that a
// value goes into, the object is made again. A patch that still does not apply is left
// out.
func ReplayState(state json.RawMessage, patches ...[]PatchOperation) json.RawMessage {
	for _, operations := range patches {
		if next, err := patchState(state, operations, replayOptions); err == nil {
			state = next
		}
	}
	return state
}

func patchState(state json.RawMessage, operations []PatchOperation, o *jsonpatch.ApplyOptions) (json.RawMessage, error) {
	if len(state) == 0 {
		state = json.RawMessage("{}")
	}
	patch, err := decodePatch(operations)
	if err != nil {
		return nil, err
	}
	patched, err := patch.ApplyWithOptions(state, o)
	if err != nil {
		return nil, ErrInvalid.Because("the patch does not apply").With("", err)
	}
	if !jsonenc.Shallow(patched) {
		return nil, ErrInvalid.Because("the patched document " + tooDeep)
	}
	return patched, nil
}
