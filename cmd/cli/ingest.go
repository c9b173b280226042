package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
)

type ingestCmd struct {
	From string `enum:"openai-chat,openai-responses,anthropic" required:"" help:"The provider's protocol: openai-chat, openai-responses or anthropic."`
	Fold bool   `help:"Print the whole answer as one JSON object instead of its chunks."`
}

// Run is a filter. It turns a provider's bytes into the chunks of a run with one step,
// or into a summary of the answer.
func (c *ingestCmd) Run(ctx context.Context, std streams) error {
	out := bufio.NewWriter(std.out)
	in := &source{src: std.in, out: out}
	parts := ingesters[c.From](in, nil)
	if c.Fold {
		data, err := json.Marshal(foldParts(parts))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", data)
	} else if err := transcribe(ctx, out, parts); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if in.err != nil {
		return fmt.Errorf("read the stream: %w", in.err)
	}
	return nil
}

// source remembers why it could not be read to its end. It flushes the output before it
// waits for more input: a fast input makes large writes, and a slow one is written
// event by event.
type source struct {
	src io.Reader
	out *bufio.Writer
	err error
}

func (s *source) Read(p []byte) (int, error) {
	if err := s.out.Flush(); err != nil {
		return 0, err // the reader of the output has closed it
	}
	n, err := s.src.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// transcribe writes a run whose model phase is the parts.
func transcribe(ctx context.Context, out *bufio.Writer, parts iter.Seq2[model.Part, error]) error {
	info := agent.RunInfo{Session: "ingest", RunID: "run-1", TurnID: "turn-1", MessageID: "message-1", Mode: chunk.ModeStart}
	log := &lineLog{out: out, fold: fold.New(info.Session)}
	a := &agent.Agent{Name: "ingest"}
	if err := log.Append(ctx, a.Start(ctx, info, nil)); err != nil {
		return err
	}
	t, err := agent.Transcribe(ctx, log, info, parts)
	if log.err != nil {
		return log.err
	}
	info.Usage = t.Usage
	if err != nil {
		said := agent.Describe(err)
		info.Outcome, info.FinishReason = chunk.OutcomeFailed, "error"
		end := a.Finish(ctx, info)
		end.Error, end.Code, end.Recoverable = said.Error, said.Code, said.Recoverable
		return log.Append(ctx, log.fold.Owed().Settle(end)...)
	}
	if len(t.Pending) > 0 {
		// The calls are not run here; the reader of the chunks may run them.
		return log.Append(ctx, &chunk.RunSuspended{Base: chunk.Base{RunID: info.RunID, Step: 1}, Kind: chunk.SuspendedClientTool,
			ToolCallIDs: t.Pending, StepID: info.RunID + "-s1"})
	}
	info.Outcome, info.FinishReason = chunk.OutcomeCompleted, t.FinishReason
	return log.Append(ctx, append(log.fold.Owed().CloseStep(""), a.Finish(ctx, info))...)
}

// lineLog is an agent's log that writes chunks as lines.
type lineLog struct {
	out  *bufio.Writer
	fold *fold.Fold
	err  error
}

var _ agent.Log = (*lineLog)(nil)

func (l *lineLog) Append(_ context.Context, chunks ...chunk.Chunk) error {
	for _, c := range fold.Split(chunks) {
		b := c.ChunkBase()
		b.AgentID, b.AgentType = l.fold.Session, "ingest"
		data, err := chunk.Append(nil, c)
		if err == nil {
			_, err = l.out.Write(append(data, '\n'))
		}
		if err == nil {
			// The chunk is decoded from the written line, so that the fold sees the
			// same as readers.
			err = l.fold.Apply(chunk.Record{Seq: l.fold.Seq + 1, Type: c.ChunkType(), Agent: b.AgentID, Class: chunk.ClassOf(c), Data: data})
		}
		if err != nil {
			l.err = err
			return err
		}
	}
	return nil
}

func (l *lineLog) Flush(context.Context) error { return l.out.Flush() }

func (l *lineLog) View(_ context.Context, fn func(*fold.Fold) error) error { return fn(l.fold) }

func (l *lineLog) Blob(_ context.Context, ref json.RawMessage) (json.RawMessage, error) {
	return ref, nil
}

// folded is the answer of a provider's stream.
type folded struct {
	Text         string       `json:"text"`
	Reasoning    string       `json:"reasoning"`
	ToolCalls    []*toolCall  `json:"toolCalls"`
	FinishReason *string      `json:"finishReason"` // in the provider's words
	Usage        *chunk.Usage `json:"usage"`
	Error        *failure     `json:"error"`
	Status       string       `json:"status"` // complete, error, truncated

	Sources []sourceInfo `json:"sources,omitempty"`
	Files   []file       `json:"files,omitempty"`
}

type toolCall struct {
	ID               string          `json:"id"`
	Name             string          `json:"name"`
	Arguments        string          `json:"arguments"` // the provider's text
	ProviderExecuted bool            `json:"providerExecuted,omitempty"`
	Result           json.RawMessage `json:"result,omitempty"` // of a call that the provider executed
	Error            string          `json:"error,omitempty"`

	args []byte
}

type sourceInfo struct {
	URL       string `json:"url,omitempty"`
	Title     string `json:"title,omitempty"`
	CitedText string `json:"citedText,omitempty"`
}

type file struct {
	URL       string `json:"url"`
	MediaType string `json:"mediaType"`
}

type failure struct {
	Message   string `json:"message"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

func foldParts(parts iter.Seq2[model.Part, error]) *folded {
	a := &folded{ToolCalls: []*toolCall{}, Status: "complete"}
	calls := map[string]*toolCall{}
	shown := map[string]bool{} // reasoning blocks that had deltas
	var text, reasoning []byte
	for part, err := range parts {
		if err != nil {
			a.fail(err)
			continue
		}
		switch p := part.(type) {
		case model.TextDelta:
			text = append(text, p.Delta...)
		case model.ReasoningDelta:
			reasoning = append(reasoning, p.Delta...)
			shown[p.ID] = true
		case model.ReasoningEnd:
			if !shown[p.ID] {
				reasoning = append(reasoning, p.Text...)
			}
		case model.ToolCallStart:
			calls[p.ID] = &toolCall{ID: p.ID, Name: p.Name, ProviderExecuted: p.ProviderExecuted}
			a.ToolCalls = append(a.ToolCalls, calls[p.ID])
		case model.ToolCallDelta:
			calls[p.ID].args = append(calls[p.ID].args, p.Delta...)
		case model.ToolCallEnd:
			calls[p.ID].args = []byte(p.Arguments)
		case model.ToolResult:
			if c := calls[p.ID]; c != nil {
				c.Result, c.Error = p.Result, p.Error
			}
		case model.Source:
			a.Sources = append(a.Sources, sourceInfo{p.URL, p.Title, p.CitedText})
		case model.File:
			a.Files = append(a.Files, file{p.URL, p.MediaType})
		case model.Restart:
			*a = folded{ToolCalls: []*toolCall{}, Status: "complete"}
			clear(calls)
			clear(shown)
			text, reasoning = nil, nil
		case model.UsageUpdate:
			a.Usage = &p.Usage
		case model.Finish:
			if p.Raw != "" {
				a.FinishReason = &p.Raw
			}
		}
	}
	a.Text, a.Reasoning = string(text), string(reasoning)
	for _, c := range a.ToolCalls {
		c.Arguments = string(c.args)
	}
	return a
}

func (a *folded) fail(err error) {
	a.Status = "error"
	a.Error = &failure{Message: err.Error()}
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return
	}
	*a.Error = failure{e.Message, e.Code, e.Retryable}
	if e.Code == model.CodeTruncated {
		a.Status = "truncated"
	}
	if e.Finish != "" {
		a.FinishReason = &e.Finish
	}
}
