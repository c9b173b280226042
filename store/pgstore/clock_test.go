package pgstore

import "testing"

// The clock goes on from where it was when the server's steps back. Answers that arrive in
// another order than they were asked for do not move it.
func TestClockNeverGoesBack(t *testing.T) {
	var c ticker
	ask := func(wall, floor, want int64) {
		t.Helper()
		if got := c.at(wall, floor); got != want {
			t.Errorf("at %d, after %d: %d, want %d", wall, floor, got, want)
		}
	}
	early := c.floor()
	ask(1000, c.floor(), 1000)
	ask(990, early, 990) // was asked before
	ask(1010, c.floor(), 1010)
	ask(10, c.floor(), 1010)
	ask(20, c.floor(), 1020)
	ask(30, 5000, 5000) // another process has given out more
	ask(40, c.floor(), 5010)
}
