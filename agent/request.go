package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
)

// request builds the model call from the fold: the log is the only memory.
func (s *step) request(ctx context.Context) (*model.Request, error) {
	a, r := s.agent, s.run
	req := &model.Request{
		Instructions: a.Instructions,
		MaxTokens:    a.MaxTokens,
		Temperature:  a.Temperature,
		Session:      r.Info.Session,
		RunID:        r.Info.RunID,
		Step:         s.number,
	}
	for _, t := range s.allTools() {
		spec := t.Spec()
		req.Tools = append(req.Tools, model.ToolSpec{Name: spec.Name, Description: spec.Description, InputSchema: spec.Input})
	}
	if a.Output != nil {
		req.Output = a.Output.schema.JSON()
	}
	var err error
	if req.Messages, err = s.history(ctx); err != nil {
		return nil, err
	}
	if r.correction != "" {
		req.Messages = append(req.Messages, chunk.Message{
			ID:    s.id + "-correction",
			Role:  chunk.RoleUser,
			Parts: []chunk.Part{{Type: chunk.PartText, Text: r.correction}},
		})
		r.correction = ""
	}
	return req, nil
}

// history returns the session's messages, and notes which call ids are taken and
// whether another process has begun the step.
func (s *step) history(ctx context.Context) (messages []chunk.Message, err error) {
	r := s.run
	if err := r.Log.Flush(ctx); err != nil {
		return nil, err
	}
	if r.callIDs == nil {
		r.callIDs = map[string]bool{}
	}
	err = r.Log.View(ctx, func(f *fold.Fold) error {
		for _, id := range f.Retired {
			r.callIDs[id] = true
		}
		if f.Phase() == fold.PhaseModel {
			s.begun, s.id = true, f.Step().ID
		}
		for _, m := range f.Messages {
			if len(m.Parts) > 0 {
				messages = append(messages, m.Clone())
			}
		}
		return nil
	})
	for i := 0; err == nil && i < len(messages); i++ {
		err = r.complete(ctx, &messages[i])
	}
	return messages, err
}

// complete puts a message's large values in the places of their references, and
// notes the ids of its calls.
func (r *Run) complete(ctx context.Context, m *chunk.Message) (err error) {
	resolve := func(v json.RawMessage) (json.RawMessage, error) { return r.Log.Blob(ctx, v) }
	for i := range m.Parts {
		if m.Parts[i], err = m.Parts[i].Whole(resolve); err != nil {
			return fmt.Errorf("agent: a large part of message %s: %w", m.ID, err)
		}
		t := m.Parts[i].Tool
		if t == nil {
			continue
		}
		r.callIDs[t.CallID] = true
		for _, value := range []*json.RawMessage{&t.Input, &t.Output} {
			if len(*value) == 0 {
				continue
			}
			if *value, err = resolve(*value); err != nil {
				return fmt.Errorf("agent: a large value of call %s: %w", t.CallID, err)
			}
		}
	}
	return nil
}
