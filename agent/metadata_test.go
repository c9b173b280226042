package agent_test

import (
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
)

func TestTokenMetadata(t *testing.T) {
	a := &agent.Agent{FinishMetadata: agent.TokenMetadata("gpt-x")}
	end := a.Finish(t.Context(), agent.RunInfo{Usage: chunk.Usage{InputTokens: 7, OutputTokens: 2, ReasoningTokens: 1}})
	if got, want := string(end.Metadata), `{"model":"gpt-x","inputTokens":7,"outputTokens":2,"totalTokens":9}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if end := a.Finish(t.Context(), agent.RunInfo{}); end.Metadata != nil {
		t.Errorf("a run that has used nothing shows %s", end.Metadata)
	}
}
