package wait

import "time"

// Backoff is how long to wait after so many failures in a row.
func Backoff(failures int) time.Duration {
	return min(10*time.Millisecond<<min(failures, 7), time.Second)
}
