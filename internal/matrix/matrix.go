// Package matrix is for tests that try every point of something: every append to
// die at, every cut to attach at. The race detector makes them ten times slower,
// and what it looks for hardly differs from one point to the next. So with it such
// a test tries some of the points, or none; scripts/test runs it once more without, on
// all.
package matrix

import (
	"iter"
	"testing"
)

// Thinned is what a test logs that leaves out points. scripts/thinned.mjs looks
// for it.
const Thinned = "matrix: thinned under -race"

// Points yields the points of 0…n-1 that a test tries: all of them; with the race
// detector the first, the last, and every stride-th between them.
func Points(t testing.TB, n, stride int) iter.Seq[int] {
	t.Helper()
	if Race && stride > 1 && n > 2 {
		t.Log(Thinned)
	}
	return points(n, stride, Race)
}

// Stride returns 1, or with the race detector n: for tests that do not know
// beforehand how many points there are.
func Stride(t testing.TB, n int) int {
	t.Helper()
	if !Race {
		return 1
	}
	t.Log(Thinned)
	return n
}

// WithoutRace skips the whole test with the race detector: it takes long, and other
// tests run the same code with it.
func WithoutRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip(Thinned)
	}
}

func points(n, stride int, thin bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if (!thin || i%stride == 0 || i == n-1) && !yield(i) {
				return
			}
		}
	}
}
