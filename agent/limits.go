package agent

import (
	"unicode/utf8"

	"github.com/spool-run/spool/chunk"
)

// What others say must fit into a record, or a run could not be ended.
const (
	maxErrorBytes    = chunk.MaxResultErrorBytes
	maxMetadataBytes = chunk.MaxInlineBytes
)

// clip shortens an error text that is too long, at a rune's border.
func clip(text string) string {
	if len(text) <= maxErrorBytes {
		return text
	}
	n := maxErrorBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// Limit is the error of a run that has used up what it may use: it ends with the
// outcome limit, and what it said so far is the answer. A hook may return one of
// its own.
type Limit struct{ Code string } // snake_case

func (l *Limit) Error() string { return "agent: the run has reached a limit: " + l.Code }

// Is reports whether target is a limit of the same code.
func (l *Limit) Is(target error) bool {
	t, ok := target.(*Limit)
	return ok && t.Code == l.Code
}

// The limits of an agent: the codes with which a run ends that reaches one.
var (
	LimitSteps    = &Limit{"max_steps"}    // [Agent.MaxSteps]
	LimitAnswer   = &Limit{"max_answer"}   // [Agent.MaxAnswer]
	LimitTokens   = &Limit{"max_tokens"}   // [Agent.TokenBudget]
	LimitStepTime = &Limit{"step_timeout"} // [Agent.StepTimeout]
	LimitRunTime  = &Limit{"run_timeout"}  // [Agent.RunTimeout]
)

// limit returns which limit keeps the run from another step, or nil.
func (s *step) limit() *Limit {
	if s.number >= s.agent.maxSteps() {
		return LimitSteps
	}
	return s.run.limit()
}

// limit returns the limit of the run, or of one above it, that it has used up.
func (r *Run) limit() *Limit {
	for ; r != nil; r = r.parent {
		if r.budget > 0 && r.used.Load() >= r.budget {
			return LimitTokens
		}
	}
	return nil
}

// spend counts what a model call has used, for the runs above, too.
func (r *Run) spend(u chunk.Usage) {
	r.Info.Usage = r.Info.Usage.Add(u)
	for ; r != nil; r = r.parent {
		r.used.Add(tokens(u))
	}
}

// tokens are those that count in a budget.
func tokens(u chunk.Usage) int64 { return u.InputTokens + u.OutputTokens }

// reached is how a run ends that has reached a limit.
func (l *Limit) reached() Result {
	return Result{Done: true, Outcome: chunk.OutcomeLimit, FinishReason: "length", Code: l.Code}
}
