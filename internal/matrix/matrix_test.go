package matrix

import (
	"slices"
	"testing"
)

func TestPoints(t *testing.T) {
	for _, tt := range []struct {
		n, stride int
		want      []int
	}{
		{0, 3, nil}, {1, 3, []int{0}}, {2, 3, []int{0, 1}}, {4, 3, []int{0, 3}}, {9, 3, []int{0, 3, 6, 8}}, {3, 1, []int{0, 1, 2}},
	} {
		if got := slices.Collect(points(tt.n, tt.stride, true)); !slices.Equal(got, tt.want) {
			t.Errorf("of %d each %d: %v", tt.n, tt.stride, got)
		}
		if got := slices.Collect(points(tt.n, tt.stride, false)); len(got) != tt.n {
			t.Errorf("all of %d: %v", tt.n, got)
		}
	}
	for range points(5, 1, false) {
		break // and not a step further
	}
}
