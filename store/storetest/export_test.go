package storetest

import "time"

// SetWatchdog sets after what time a check that hangs fails.
func SetWatchdog(d time.Duration) { watchdog = d }

// SetStarved sets after how many appends of its owner a session's commands count as shut
// out.
func SetStarved(appends int) { starved = appends }
