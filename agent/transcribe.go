package agent

import (
	"context"
	"fmt"
	"iter"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
)

// Transcript is what came of a model's stream.
type Transcript struct {
	FinishReason string // stop, length, tool-calls, content-filter, other
	Usage        chunk.Usage
	Pending      []string // ids of the calls that the model waits for
}

// Transcribe writes a model's stream into the log as the first step's model
// phase of the run that info names, with the chunks that [Agent.Step] would
// write, and closes the phase. It runs no tools and retries nothing. After an
// error the phase is open.
func Transcribe(ctx context.Context, log Log, info RunInfo, stream iter.Seq2[model.Part, error]) (Transcript, error) {
	s := &step{agent: &Agent{MaxAnswer: -1}, run: &Run{Info: info, Log: log, callIDs: map[string]bool{}}, number: 1}
	s.id = fmt.Sprintf("%s-s%d", info.RunID, s.number)
	if err := s.append(ctx, &chunk.StepStarted{StepID: s.id}); err != nil {
		return Transcript{}, err
	}
	t := &transcript{step: s, ids: map[string]*call{}}
	err := t.stream(ctx, stream)
	if err == nil {
		err = s.closeModelPhase(ctx)
	}
	result := Transcript{FinishReason: s.finish, Usage: s.usage}
	for _, c := range s.calls {
		if !c.providerExecuted {
			result.Pending = append(result.Pending, c.id)
		}
	}
	return result, err
}
