package contract

import "context"

// Level says how serious a [Finding] is.
type Level string

const (
	OK      Level = "ok"
	Warning Level = "warning" // it works, but not as well or as safely as it could
	Problem Level = "problem" // it does not work, or loses what was promised
)

// Finding is what an examination of a store says about one subject.
type Finding struct {
	Check string `json:"check"` // the subject: reach, write, clock, durability, …
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"` // what to change
}

// Checker is the role of stores that can examine their engine: its version, how durable
// its settings make a write, what its user may do. Package doctor asks for it, beside what
// it finds out about every store.
type Checker interface {
	Check(ctx context.Context) []Finding
}
