//go:build !race

package matrix

// Race says whether the race detector is on.
const Race = false
