package agent

import "context"

// tokenCount is what [TokenMetadata] shows.
type tokenCount struct {
	Model        string `json:"model,omitempty"`
	InputTokens  int64  `json:"inputTokens"`
	OutputTokens int64  `json:"outputTokens"`
	TotalTokens  int64  `json:"totalTokens"`
}

// TokenMetadata is an [Agent.FinishMetadata] that shows which model has answered
// and what the run has used: model, inputTokens, outputTokens and totalTokens. A
// run of which nobody said what it used shows nothing.
func TokenMetadata(model string) func(context.Context, RunInfo) any {
	return func(_ context.Context, r RunInfo) any {
		u := r.Usage
		if u.InputTokens == 0 && u.OutputTokens == 0 {
			return nil
		}
		return tokenCount{model, u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens}
	}
}
