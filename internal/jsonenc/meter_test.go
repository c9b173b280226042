package jsonenc

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// values counts the values in decoded JSON, and how deep they are nested.
func values(v any) (n, depth int) {
	inside := func(v any) {
		m, d := values(v)
		n, depth = n+m, max(depth, d+1)
	}
	switch v := v.(type) {
	case []any:
		depth = 1
		for _, e := range v {
			inside(e)
		}
	case map[string]any:
		depth = 1
		for _, e := range v {
			inside(e)
		}
	}
	return n + 1, depth
}

func anyJSON() *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Just[any](nil), rapid.Just[any](true), rapid.Map(rapid.IntRange(-9, 9), func(n int) any { return n }),
		rapid.Map(rapid.StringOf(rapid.SampledFrom([]rune("a\"\\[]{}, \n\u2028é"))), func(s string) any { return s }))
	gen := leaf
	for range 4 {
		inner := gen
		gen = rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(v []any) any { return v }),
			rapid.Map(rapid.MapOfN(rapid.StringOf(rapid.SampledFrom([]rune("k,:[{\"\\"))), inner, 0, 4), func(m map[string]any) any { return m }))
	}
	return gen
}

func TestMeter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := anyJSON().Draw(t, "value")
		text, _ := json.Marshal(v)
		if rapid.Bool().Draw(t, "indented") {
			var b bytes.Buffer
			_ = json.Indent(&b, text, " ", "\t")
			text = b.Bytes()
		}
		n, depth := values(v)
		var m Meter
		for rest := text; len(rest) > 0; {
			k := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			m.Add(rest[:k])
			rest = rest[k:]
		}
		if m.Depth != depth || m.Values < n-1 || m.Values > 2*n {
			t.Fatalf("%s: %d values, depth %d; it has %d, and depth %d", text, m.Values, m.Depth, n, depth)
		}
	})
}

func TestElements(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(anyJSON(), 0, 5).Draw(t, "list")
		text, _ := json.Marshal(list)
		if rapid.Bool().Draw(t, "indented") {
			var b bytes.Buffer
			_ = json.Indent(&b, text, " ", "\t")
			text = b.Bytes()
		}
		var want []json.RawMessage
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		var got []json.RawMessage
		for e := range Elements(text) {
			got = append(got, bytes.TrimSpace(e))
		}
		if len(got) != len(want) {
			t.Fatalf("%s has %d elements, got %q", text, len(want), got)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("element %d of %s is %q", i, text, got[i])
			}
		}
	})
}
