package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
)

func TestDescribe(t *testing.T) {
	cause := errors.New("dial redis://admin:hunter2@10.0.0.7: refused")
	for name, tt := range map[string]struct {
		err  error
		want spool.ErrorInfo
	}{
		"model": {fmt.Errorf("step 2: %w", &model.Error{Code: model.CodeOverloaded, Message: "the provider is busy", Retryable: true, Err: cause}),
			spool.ErrorInfo{Error: "the provider is busy", Code: "provider_overloaded", Recoverable: true}},
		"a model that tells": {&model.Error{Code: "provider_mine", Message: "no answer to Bearer abcdef0123456789"},
			spool.ErrorInfo{Error: "no answer to [redacted]", Code: "provider_mine"}},
		"spool":   {spool.ErrUnavailable.With("s", cause), spool.ErrorInfo{Error: "the store cannot be reached", Code: "unavailable", Recoverable: true}},
		"tool":    {agent.ErrToolFatal.With("s", errors.New("no licence")), spool.ErrorInfo{Error: "a tool ended the run: no licence", Code: "tool_fatal"}},
		"hook":    {agent.ErrHookFailed.With("s", cause), spool.ErrorInfo{Error: "a hook ended the run", Code: "hook_failed"}},
		"foreign": {cause, spool.ErrorInfo{Error: "the agent failed", Code: "agent_failed"}},
		"network": {&net.DNSError{Err: "no such host", Name: "internal.example", Server: "10.0.0.1"}, spool.ErrorInfo{Error: "the agent failed", Code: "agent_failed"}},
		"context": {context.DeadlineExceeded, spool.ErrorInfo{Error: "the agent failed", Code: "agent_failed"}},
	} {
		if got := agent.Describe(tt.err); got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
