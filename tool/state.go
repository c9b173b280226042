package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/wI2L/jsondiff"

	"github.com/spool-run/spool/chunk"
)

// Diff returns the RFC 6902 operations (add, remove and replace only) that make
// after from before. Elements appended to an array are added at "/-", so that
// calls which append at the same time do not undo each other. A nil before is
// taken for an empty object, as a session's state is.
func Diff(before, after json.RawMessage) ([]chunk.PatchOperation, error) {
	if len(before) == 0 {
		before = json.RawMessage("{}")
	}
	patch, err := jsondiff.CompareJSON(before, after, jsondiff.UnmarshalFunc(unmarshal))
	if err != nil {
		return nil, fmt.Errorf("tool: state: %w", err)
	}
	var doc any
	if err := unmarshal(before, &doc); err != nil {
		return nil, err
	}
	ops := make([]chunk.PatchOperation, 0, len(patch))
	for _, op := range patch {
		o := chunk.PatchOperation{Op: op.Type, Path: op.Path}
		switch op.Type {
		case jsondiff.OperationAdd, jsondiff.OperationReplace:
			value, err := json.Marshal(op.Value)
			if err != nil {
				return nil, err
			}
			o.Value = value
		case jsondiff.OperationRemove:
		default:
			return nil, fmt.Errorf("tool: state: unexpected operation %q", op.Type)
		}
		switch {
		case op.Path == "": // the whole document: appliers agree on replace only
			o.Op = jsondiff.OperationReplace
		case op.Type == jsondiff.OperationAdd:
			o.Path = appendPath(doc, op.Path)
		}
		ops = append(ops, o)
	}
	return ops, nil
}

// appendPath replaces the path's index by "-" if it is at or beyond the end of the
// array in doc.
func appendPath(doc any, path string) string {
	parent, last := path[:max(strings.LastIndexByte(path, '/'), 0)], path[strings.LastIndexByte(path, '/')+1:]
	n, err := strconv.Atoi(last)
	if err != nil {
		return path
	}
	if list, ok := lookUp(doc, parent).([]any); ok && n >= len(list) {
		return parent + "/-"
	}
	return path
}

func lookUp(doc any, pointer string) any {
	if pointer == "" {
		return doc
	}
	for _, key := range strings.Split(pointer[1:], "/") {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		switch v := doc.(type) {
		case map[string]any:
			doc = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			doc = v[i]
		default:
			return nil
		}
	}
	return doc
}

// mergeJSON makes the change from before to after in state. Before may be a part of
// state.
func mergeJSON(state, before, after json.RawMessage) (json.RawMessage, error) {
	if isNull(state) {
		return after, nil
	}
	var s, b, a any
	for _, d := range []struct {
		raw json.RawMessage
		v   *any
	}{{state, &s}, {before, &b}, {after, &a}} {
		if err := unmarshal(d.raw, d.v); err != nil {
			return nil, err
		}
	}
	return json.Marshal(merge(s, b, a))
}

func merge(state, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return state
	}
	switch after := after.(type) {
	case map[string]any:
		s, ok := state.(map[string]any)
		b, had := before.(map[string]any)
		if !ok || !had {
			return after
		}
		for k := range b {
			if _, stays := after[k]; !stays {
				delete(s, k)
			}
		}
		for k, v := range after {
			old, known := b[k]
			_, there := s[k]
			switch {
			case known && reflect.DeepEqual(old, v):
			case known && there:
				s[k] = merge(s[k], old, v)
			default:
				s[k] = v
			}
		}
		return s
	case []any:
		s, ok := state.([]any)
		b, had := before.([]any)
		if !ok || !had || len(s) != len(b) || len(after) < len(b) {
			return after
		}
		for i := range b {
			s[i] = merge(s[i], b[i], after[i])
		}
		return append(s, after[len(b):]...)
	}
	return after
}

// unmarshal keeps numbers as they are written.
func unmarshal(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

func isNull(raw json.RawMessage) bool {
	trimmed := bytes.TrimSpace(raw)
	return len(trimmed) == 0 || string(trimmed) == "null"
}
