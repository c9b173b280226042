package aisdk

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestWithoutPrototypes(t *testing.T) {
	for in, want := range map[string]string{
		``:                                    ``,
		`"__proto__"`:                         `"__proto__"`,
		`{"a":"constructor", "b": [1.50]}`:    `{"a":"constructor", "b": [1.50]}`,
		`{"__proto__":{"x":1}}`:               `{}`,
		`{"__proto__":1,"a":2}`:               `{"a":2}`,
		`{"a":1 , "__proto__" : [{}], "b":2}`: `{"a":1, "b":2}`,
		`{ "__proto__":1, "__proto__":2 , "a": 1e400}`:        `{ "a": 1e400}`,
		`{"\u005f_pro\u0074o__":{},"a":"\ud800"}`:             `{"a":"\ud800"}`,
		`{"__proto__":{"__proto__":{"a":1}}}`:                 `{}`,
		`[{"a":{"__proto__":1}},[{"__proto__":1}]]`:           `[{"a":{}},[{}]]`,
		`{"constructor":{"prototype":{"x":1},"y":2}}`:         `{"constructor":{"y":2}}`,
		`{"constructor":{"a":{"prototype":1}},"prototype":1}`: `{"constructor":{"a":{"prototype":1}},"prototype":1}`,
		`{"constructor":["prototype",{"prototype":1}]}`:       `{"constructor":["prototype",{"prototype":1}]}`,
		`{"constructor" : null, "a":1}`:                       `{ "a":1}`,
		`{"constructor":"null"}`:                              `{"constructor":"null"}`,
		`{"constructor":{"constructor":{"prototype":1}}}`:     `{"constructor":{"constructor":{}}}`,
		`{"__proto__":1`: `{"__proto__":1`,
	} {
		if got := string(withoutPrototypes(json.RawMessage(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// The bytes that are left are the JSON of a value without these members.
func TestWithoutPrototypesOfAnyValue(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "__proto__", "constructor", "prototype"})
	value := rapid.Custom(func(t *rapid.T) any { return drawValue(t, names, 4) })
	rapid.Check(t, func(t *rapid.T) {
		v := value.Draw(t, "value")
		in, err := json.MarshalIndent(v, "", rapid.SampledFrom([]string{"", " "}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		out := withoutPrototypes(in)
		var got any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s became %s: %v", in, out, err)
		}
		if want := prunedValue(v, false); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s became %s", in, out)
		}
		if hasPrototypes(out) {
			t.Fatalf("%s still has some", out)
		}
	})
}

func drawValue(t *rapid.T, names *rapid.Generator[string], depth int) any {
	switch n := rapid.IntRange(0, 5).Draw(t, "kind"); {
	case n == 0:
		return nil
	case n == 1 || depth == 0:
		return rapid.SampledFrom([]string{"null", "__proto__", `"{`, "constructor"}).Draw(t, "text")
	case n == 2:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			list = append(list, drawValue(t, names, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		object[names.Draw(t, "name")] = drawValue(t, names, depth-1)
	}
	return object
}

func prunedValue(v any, ofConstructor bool) any {
	switch v := v.(type) {
	case []any:
		list := []any{}
		for _, e := range v {
			list = append(list, prunedValue(e, false))
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for name, e := range v {
			if name == "__proto__" || ofConstructor && name == "prototype" || name == "constructor" && e == nil {
				continue
			}
			object[name] = prunedValue(e, name == "constructor")
		}
		return object
	}
	return v
}
