package budget

import "testing"

// What was used last is kept up to the limit, and what weighs too much alone while nothing
// else is used.
func TestLRU(t *testing.T) {
	l := LRU[string]{Limit: 100}
	kept := map[string]*Kept[string]{}
	use := func(v string, weight int64) {
		if kept[v] == nil {
			kept[v] = &Kept[string]{}
			l.Weigh(kept[v], weight)
		}
		l.Use(kept[v], v)
	}
	want := func(values ...string) {
		t.Helper()
		var weight int64
		got := map[string]bool{}
		for v, k := range kept {
			if k.place != nil {
				got[v], weight = true, weight+k.weight
			}
		}
		if len(got) != len(values) || weight != l.weight || l.order.Len() != len(values) {
			t.Fatalf("kept: %v with %d, counted %d, want %v", got, weight, l.weight, values)
		}
		for _, v := range values {
			if !got[v] {
				t.Fatalf("kept: %v, want %v", got, values)
			}
		}
	}
	use("a", 40)
	use("b", 40)
	use("c", 20)
	want("a", "b", "c")
	use("a", 0)
	use("d", 10)
	want("a", "c", "d")
	l.Weigh(kept["c"], 60)
	want("a", "d")
	l.Weigh(kept["b"], 90) // it is not kept
	want("a", "d")
	use("b", 0)
	want("b", "d")
	l.Weigh(kept["b"], 1000)
	want("b")
	use("d", 0)
	want("d")
	l.Clear()
	want()
	use("a", 0)
	want("a")
}
