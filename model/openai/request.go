package openai

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

type message struct {
	Role             string            `json:"role"`
	Content          any               `json:"content"` // string, []piece or null
	ReasoningContent *string           `json:"reasoning_content,omitempty"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details,omitempty"`
	ReasoningText    string            `json:"reasoning_text,omitempty"`
	ReasoningOpaque  string            `json:"reasoning_opaque,omitempty"`
	ToolCalls        []toolCall        `json:"tool_calls,omitempty"`
	ToolCallID       string            `json:"tool_call_id,omitempty"`
}

type piece struct {
	Type     string         `json:"type"`
	Text     string         `json:"text,omitempty"`
	ImageURL map[string]any `json:"image_url,omitempty"`
	Audio    map[string]any `json:"input_audio,omitempty"`
	File     map[string]any `json:"file,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	keepsake
}

// body builds the request.
func (m *Model) body(r *model.Request, id string) ([]byte, error) {
	b := map[string]any{
		"model":    id,
		"messages": messages(r, m.host()),
		"stream":   true,
	}
	if !m.o.NoStreamOptions {
		b["stream_options"] = map[string]any{"include_usage": true}
	}
	if len(r.Tools) > 0 {
		b["tools"] = tools(r.Tools)
	}
	if len(r.Output) > 0 {
		schema := map[string]any{"name": "output", "schema": r.Output}
		if m.o.StrictOutput {
			schema["strict"] = true
		}
		b["response_format"] = map[string]any{"type": "json_schema", "json_schema": schema}
	}
	if r.Temperature != nil {
		b["temperature"] = *r.Temperature
	}
	if r.MaxTokens > 0 {
		b[m.maxTokens()] = r.MaxTokens
	}
	maps.Copy(b, m.o.Extra)
	return provider.Marshal(b)
}

// maxTokens names the limit's member. OpenAI renamed it; most others did not.
func (m *Model) maxTokens() string {
	if host := m.host(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

func tools(specs []model.ToolSpec) []any {
	var list []any
	for _, s := range specs {
		f := map[string]any{"name": s.Name, "parameters": s.InputSchema}
		if len(s.InputSchema) == 0 {
			f["parameters"] = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		if s.Description != "" {
			f["description"] = s.Description
		}
		list = append(list, map[string]any{"type": "function", "function": f})
	}
	return list
}

// messages is the conversation; host is who gets it.
func messages(r *model.Request, host string) []message {
	list := []message{}
	if r.Instructions != "" {
		list = append(list, message{Role: "system", Content: r.Instructions})
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		switch m.Role {
		case chunk.RoleSystem:
			if text := m.Text(); text != "" {
				list = append(list, message{Role: "system", Content: text})
			}
		case chunk.RoleUser:
			if content := userContent(m.Parts); content != nil {
				list = append(list, message{Role: "user", Content: content})
			}
		case chunk.RoleAssistant:
			thoughtful := wantsReasoning(m.Parts, host)
			for step := range provider.Steps(m.Parts) {
				list = append(list, assistant(step, thoughtful, host)...)
			}
		}
	}
	return list
}

// wantsReasoning reports whether the provider wants the reasoning_content of a
// turn's messages in all requests to come: it does if there were calls in the turn,
// and must not get it otherwise.
func wantsReasoning(parts []chunk.Part, host string) bool {
	called, thought := false, false
	for i := range parts {
		p := &parts[i]
		called = called || p.Type == chunk.PartTool
		thought = thought || p.Type == chunk.PartReasoning && keptOf(p, host).Field == "reasoning_content"
	}
	return called && thought
}

// keptOf reads what a reasoning part keeps for an endpoint.
func keptOf(p *chunk.Part, host string) kept {
	var meta struct {
		OpenAI kept `json:"openai"`
	}
	if len(p.ProviderMetadata) == 0 || provider.Decode(p.ProviderMetadata, &meta) != nil || !goesTo(meta.OpenAI.From, host) {
		return kept{}
	}
	return meta.OpenAI
}

// goesTo reports whether what came from an endpoint may go to host.
func goesTo(from, host string) bool { return from == "" || from == host }

// assistant builds the messages of one step: what the model said and asked for,
// then each call's outcome. Every call has one, or providers refuse the history.
func assistant(parts []chunk.Part, thoughtful bool, host string) []message {
	said := message{Role: "assistant"}
	var (
		text     strings.Builder
		thoughts string
		outcomes []message
	)
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case chunk.PartText:
			text.WriteString(p.Text)
		case chunk.PartReasoning:
			k := keptOf(p, host)
			said.ReasoningDetails = append(said.ReasoningDetails, k.Details...)
			switch k.Field {
			case "reasoning_content":
				thoughts += p.Text
			case "reasoning_text":
				said.ReasoningText, said.ReasoningOpaque = said.ReasoningText+p.Text, k.Opaque
			}
		case chunk.PartTool:
			t := p.Tool
			if t == nil || t.ProviderExecuted || t.State == chunk.ToolStreaming {
				continue
			}
			c := callOf(p, host)
			said.ToolCalls = append(said.ToolCalls, c)
			outcomes = append(outcomes, message{Role: "tool", ToolCallID: c.ID, Content: provider.Outcome(t)})
		}
	}
	if text.Len() > 0 {
		said.Content = text.String()
	} else if len(said.ToolCalls) == 0 {
		return nil
	}
	if thoughtful {
		said.ReasoningContent = &thoughts
	}
	return append([]message{said}, outcomes...)
}

// callOf is a call, with what its provider wants back.
func callOf(p *chunk.Part, host string) toolCall {
	t := p.Tool
	c := toolCall{ID: provider.CallID(t.CallID), Type: "function"}
	c.Function.Name, c.Function.Arguments = t.Name, provider.Arguments(t)
	var meta struct {
		OpenAI keptCall `json:"openai"`
	}
	if len(p.ProviderMetadata) > 0 && provider.Decode(p.ProviderMetadata, &meta) == nil && goesTo(meta.OpenAI.From, host) {
		c.keepsake = meta.OpenAI.keepsake
		if meta.OpenAI.ID != "" {
			c.ID = meta.OpenAI.ID
		}
	}
	return c
}

// userContent returns a string, or pieces if there is more than text.
func userContent(parts []chunk.Part) any {
	var pieces []piece
	var text strings.Builder
	only := true
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case chunk.PartText:
			if p.Text != "" {
				text.WriteString(p.Text)
				pieces = append(pieces, piece{Type: "text", Text: p.Text})
			}
		case chunk.PartFile:
			only = false
			pieces = append(pieces, filePiece(p))
		}
	}
	switch {
	case len(pieces) == 0:
		return nil
	case only:
		return text.String()
	}
	return pieces
}

func filePiece(p *chunk.Part) piece {
	f := provider.FileOf(p)
	_, format, _ := strings.Cut(f.Media, "/")
	switch {
	case f.Kind() == "image":
		return piece{Type: "image_url", ImageURL: map[string]any{"url": f.URL}}
	case f.Kind() == "audio" && !f.IsURL:
		if format == "mpeg" {
			format = "mp3"
		}
		return piece{Type: "input_audio", Audio: map[string]any{"data": f.Data, "format": strings.TrimPrefix(format, "x-")}}
	}
	if text, ok := f.Text(); ok {
		return piece{Type: "text", Text: f.Name + ":\n" + text}
	}
	if !f.IsURL {
		return piece{Type: "file", File: map[string]any{"filename": f.Name, "file_data": f.URL}}
	}
	return piece{Type: "text", Text: f.Link()}
}
