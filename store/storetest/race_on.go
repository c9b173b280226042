//go:build race

package storetest

// raceDetector says whether this was built with -race.
const raceDetector = true
