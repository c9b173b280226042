package contract_test

import (
	"testing"
	"time"

	"github.com/spool-run/spool/store/contract"
)

// A store's clock goes on where the clock below it steps back, and where it hears of a
// later time.
func TestClockNeverGoesBack(t *testing.T) {
	wall := time.UnixMilli(1_000_000)
	c := contract.NewClock(func() time.Time { return wall })
	want := func(what string, got, want int64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	want("at first", c.Now(), 1_000_000)
	wall = wall.Add(time.Second)
	want("a second later", c.Now(), 1_001_000)
	wall = wall.Add(-time.Hour)
	want("after a step back", c.Now(), 1_001_000)
	wall = wall.Add(time.Second)
	want("a second after it", c.Now(), 1_002_000)
	want("when it hears of a later time", c.After(2_000_000), 2_000_000)
	want("when it hears of an earlier time", c.After(1_500_000), 2_000_000)
	wall = wall.Add(time.Second)
	want("a second after that", c.Now(), 2_001_000)
	wall = wall.Add(2 * time.Hour)
	want("after a step forward", c.Now(), 2_001_000+2*time.Hour.Milliseconds())
}
