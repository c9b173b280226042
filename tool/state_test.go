package tool

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/spool-run/spool/chunk"
)

func TestDiffOperations(t *testing.T) {
	for _, tt := range []struct{ name, before, after, want string }{
		{"append", `{"l":[1]}`, `{"l":[1,2,3]}`, `[{"op":"add","path":"/l/-","value":2},{"op":"add","path":"/l/-","value":3}]`},
		{"append to empty", `{"l":[]}`, `{"l":[1]}`, `[{"op":"add","path":"/l/-","value":1}]`},
		{"no state yet", ``, `{"a":1}`, `[{"op":"add","path":"/a","value":1}]`},
		{"null state", `null`, `{"a":1}`, `[{"op":"replace","path":"","value":{"a":1}}]`},
		{"replace and remove", `{"a":1,"b":2}`, `{"a":3}`, `[{"op":"replace","path":"/a","value":3},{"op":"remove","path":"/b"}]`},
		{"numeric key of an object", `{"a":{}}`, `{"a":{"0":1}}`, `[{"op":"add","path":"/a/0","value":1}]`},
		{"large numbers stay exact", `{}`, `{"n":9007199254740993}`, `[{"op":"add","path":"/n","value":9007199254740993}]`},
		{"escaped key", `{"a/b":[1]}`, `{"a/b":[1,2]}`, `[{"op":"add","path":"/a~1b/-","value":2}]`},
		{"a falsy value", `{"a":1}`, `{"a":null}`, `[{"op":"replace","path":"/a","value":null}]`},
		{"nothing", `{"a":1}`, `{ "a": 1 }`, `[]`},
		{"another kind of root", `{"a":1}`, `[1]`, `[{"op":"replace","path":"","value":[1]}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ops, err := Diff(json.RawMessage(tt.before), json.RawMessage(tt.after))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := json.Marshal(ops)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var patched, after any
			raw, err := chunk.PatchState(json.RawMessage(tt.before), ops)
			if err != nil {
				t.Fatal(err)
			}
			_ = json.Unmarshal(raw, &patched)
			_ = json.Unmarshal([]byte(tt.after), &after)
			if !reflect.DeepEqual(patched, after) {
				t.Errorf("applied: %s", raw)
			}
		})
	}
}

func TestDiffApplies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		before, _ := json.Marshal(map[string]any{"s": randomValue(rng, 3), "l": randomList(rng, 2)})
		after, _ := json.Marshal(map[string]any{"s": randomValue(rng, 3), "l": randomList(rng, 2)})
		ops, err := Diff(before, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			if op.Op != "add" && op.Op != "remove" && op.Op != "replace" {
				t.Fatalf("operation %q", op.Op)
			}
		}
		var got, want any
		patched, err := chunk.PatchState(before, ops)
		if err != nil {
			t.Fatalf("apply %s to %s: %v", mustJSON(ops), before, err)
		}
		_ = json.Unmarshal(patched, &got)
		_ = json.Unmarshal(after, &want)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n%s\nbecame %s, not %s", before, mustJSON(ops), got, after)
		}
	}
}

func randomValue(rng *rand.Rand, depth int) any {
	switch n := rng.IntN(6); {
	case n == 0 || depth == 0:
		return rng.IntN(3)
	case n == 1:
		return nil
	case n < 4:
		return randomList(rng, depth-1)
	default:
		m := map[string]any{}
		for range rng.IntN(4) {
			m[string(rune('a'+rng.IntN(3)))] = randomValue(rng, depth-1)
		}
		return m
	}
}

func randomList(rng *rand.Rand, depth int) []any {
	l := []any{}
	for range rng.IntN(5) {
		l = append(l, randomValue(rng, depth))
	}
	return l
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestUpdateStateKeepsWhatTheTypeDoesNotKnow(t *testing.T) {
	type item struct {
		City string `json:"city"`
	}
	type state struct {
		Items []item `json:"items,omitempty"`
		Count int    `json:"count"`
	}
	for _, tt := range []struct {
		name, before string
		fn           func(*state)
		want         string
	}{
		{"members", `{"other":{"x":1},"count":1}`, func(s *state) { s.Count++ }, `{"other":{"x":1},"count":2}`},
		{"elements", `{"items":[{"city":"Bern","note":"n"}],"count":0}`, func(s *state) { s.Items = append(s.Items, item{"Rome"}) },
			`{"items":[{"city":"Bern","note":"n"},{"city":"Rome"}],"count":0}`},
		{"a zero member is not written", `{"other":1}`, func(s *state) { s.Items = []item{{"Rome"}} }, `{"other":1,"items":[{"city":"Rome"}]}`},
		{"removal", `{"items":[{"city":"Bern"}],"x":1}`, func(s *state) { s.Items = nil }, `{"x":1}`},
		{"nothing before", ``, func(s *state) { s.Count = 1 }, `{"count":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := &discard{state: json.RawMessage(tt.before)}
			ctx := NewContext(t.Context(), Call{}, host)
			if err := UpdateState(ctx, func(s *state) error { tt.fn(s); return nil }); err != nil {
				t.Fatal(err)
			}
			var got, want any
			_ = json.Unmarshal(host.state, &got)
			_ = json.Unmarshal([]byte(tt.want), &want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %s, want %s", host.state, tt.want)
			}
		})
	}
}
