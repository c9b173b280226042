package aisdk

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

const (
	octets    = "application/octet-stream"
	done      = "[DONE]"
	doneFrame = "data: " + done + "\n\n"
)

func orElse(s, fallback string) string {
	if s != "" {
		return s
	}
	return fallback
}

// transient writes the data frame of a chunk that is shown and forgotten: all
// that says how a run goes on, and the application's own transient events.
func (p *Projector) transient(c chunk.Chunk) {
	switch c := c.(type) {
	case *chunk.Custom:
		if c.Transient {
			p.w.open("data-"+c.EventName).opt("id", c.ID).raw("data", p.o.value(c.Data)).flag("transient", true).close()
		}
		return
	case *chunk.StepCommitted:
		short := *c
		short.Data = nil // the parts were sent as themselves
		p.writeTransient(&short)
		return
	case *chunk.RunSuspended:
		short := *c
		short.Data, short.Metadata = nil, nil
		p.writeTransient(&short)
		return
	case *chunk.SubAgentStart, *chunk.SubAgentEnd, *chunk.StatePatch, *chunk.RunInterrupted, *chunk.RunResumed,
		*chunk.RunPaused, *chunk.CheckpointCreated, *chunk.StepDiscarded, *chunk.StreamResync, *chunk.ExecutorSuperseded:
		p.writeTransient(c)
	}
}

// writeTransient writes data-{type} with the chunk's fields, all but its type.
func (p *Projector) writeTransient(c chunk.Chunk) {
	data, err := json.Marshal(c)
	if err != nil {
		return
	}
	name := "data-" + strings.ReplaceAll(string(c.ChunkType()), "_", "-")
	p.w.open(name).raw("data", data).flag("transient", true).close()
}

// reportError writes an error chunk. A recoverable one is a part of the message
// and was written as such; a fatal one is shown, and written as the error when the run
// fails: clients read nothing after an error frame, and the chunk ends nothing.
func (p *Projector) reportError(c *chunk.ErrorChunk) {
	switch {
	case p.o.LiteralErrors, p.noRuns && !c.Recoverable:
		p.failure = c
		p.w.open("error").str("errorText", c.Error).close()
	case !c.Recoverable:
		p.failure = c
		data, _ := json.Marshal(chunk.ErrorInfo{Error: c.Error, Code: c.Code})
		p.w.open("data-error").raw("data", data).flag("transient", true).close()
	}
}

func (p *Projector) writeSource(part *chunk.Part, n int) {
	id := sourceID(part, n)
	if url, document := sourceKind(part); document {
		p.w.open("source-document").str("sourceId", id).str("mediaType", orElse(part.MediaType, octets)).
			str("title", sourceTitle(part)).opt("filename", part.Filename)
	} else {
		p.w.open("source-url").str("sourceId", id).str("url", url).opt("title", part.Title)
	}
	p.w.rawOpt("providerMetadata", citedText(part)).close()
}

// sourceID returns a source's id, which clients require, by its ordinal if it has
// none.
func sourceID(part *chunk.Part, n int) string { return orElse(part.ID, "source-"+strconv.Itoa(n)) }

// sourceKind returns a source's URL, or that it is a document.
func sourceKind(part *chunk.Part) (url string, document bool) {
	return part.URL, part.MediaType != "" || part.URL == ""
}

func sourceTitle(part *chunk.Part) string {
	return orElse(part.Title, orElse(part.Filename, part.URL))
}

// citedText carries what the frame has no field for.
func citedText(part *chunk.Part) json.RawMessage {
	if part.Text == "" {
		return nil
	}
	return append(jsonenc.AppendString([]byte(`{"spool":{"citedText":`), part.Text), "}}"...)
}

// Ends. Closing what is open and the marks were written with the message.

func (p *Projector) suspend(c *chunk.RunSuspended) {
	p.paused, p.kind, p.pending = true, c.Kind, c.ToolCallIDs
	reason := "tool-calls"
	if c.Kind == "interrupted" {
		reason = "other"
	}
	n := len(p.w.frames)
	p.end(n, reason, c.Metadata)
}

func (p *Projector) finish(c *chunk.RunFinished) {
	n := len(p.w.frames)
	reason := "other"
	switch c.Outcome {
	case chunk.OutcomeCompleted:
		if reason = c.FinishReason; !validReason(reason) {
			reason = "stop"
		}
	case chunk.OutcomeStopped:
		p.w.open("abort").close()
	case chunk.OutcomeLimit:
		reason = "length"
	case chunk.OutcomeFailed:
		reason = "error"
		if !p.noRuns || p.failure == nil || p.failure.Fatal { // else it was told at once
			p.w.open("error").str("errorText", p.failureText(c)).close()
		}
	}
	p.end(n, reason, c.Metadata)
}

func (p *Projector) failureText(c *chunk.RunFinished) string {
	text := c.Error
	if text == "" && p.failure != nil {
		text = p.failure.Error
	}
	return orElse(text, orElse(c.Code, "the run failed"))
}

func validReason(reason string) bool {
	switch reason {
	case "stop", "length", "content-filter", "tool-calls", "error", "other":
		return true
	}
	return false
}

// end writes the frames that say that nothing follows, and remembers them and
// those since n for plans.
func (p *Projector) end(n int, reason string, metadata json.RawMessage) {
	p.w.open("finish").str("finishReason", reason).rawOpt("messageMetadata", metadata).close()
	p.w.frames = append(p.w.frames, spool.Frame{Data: []byte(doneFrame), Uncounted: true})
	for i := n; i < len(p.w.frames); i++ {
		p.w.frames[i].Terminal = true
	}
	p.terminal = append([]spool.Frame(nil), p.w.frames[n:]...)
}
