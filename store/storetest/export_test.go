package storetest

import "time"

// SetWatchdog sets after what time a check that hangs fails.
func SetWatchdog(d time.Duration) { watchdog = d }
