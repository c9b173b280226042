package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

type message struct {
	Role             string            `json:"role"`
	Content          any               `json:"content"` // string, []piece or null
	ReasoningContent string            `json:"reasoning_content,omitempty"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details,omitempty"`
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
}

// body builds the request.
func (m *Model) body(r *model.Request, id string) ([]byte, error) {
	b := map[string]any{
		"model":    id,
		"messages": messages(r),
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
	if u, err := url.Parse(m.client.BaseURL); err == nil {
		if host := u.Hostname(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
			return "max_completion_tokens"
		}
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

func messages(r *model.Request) []message {
	list := []message{}
	if r.Instructions != "" {
		list = append(list, message{Role: "system", Content: r.Instructions})
	}
	turn := 0 // where the current turn's answer begins
	for i := range r.Messages {
		if r.Messages[i].Role == spool.RoleUser {
			turn = i
		}
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		switch m.Role {
		case spool.RoleSystem:
			if text := m.Text(); text != "" {
				list = append(list, message{Role: "system", Content: text})
			}
		case spool.RoleUser:
			if content := userContent(m.Parts); content != nil {
				list = append(list, message{Role: "user", Content: content})
			}
		case spool.RoleAssistant:
			for step := range steps(m.Parts) {
				list = append(list, assistant(step, i > turn)...)
			}
		}
	}
	return list
}

// steps cuts an assistant message at its step boundaries, and where text follows
// tool calls, which one message cannot say.
func steps(parts []spool.Part) func(yield func([]spool.Part) bool) {
	return func(yield func([]spool.Part) bool) {
		from, called := 0, false
		for i := range parts {
			switch parts[i].Type {
			case spool.PartTool:
				called = true
				continue
			case spool.PartText, spool.PartReasoning:
				if !called {
					continue
				}
			case spool.PartStep:
			default:
				continue
			}
			if i > from && !yield(parts[from:i]) {
				return
			}
			from, called = i, false
		}
		if from < len(parts) {
			yield(parts[from:])
		}
	}
}

// assistant builds the messages of one step: what the model said and asked for,
// then each call's outcome. Every call has one, or providers refuse the history.
func assistant(parts []spool.Part, current bool) []message {
	said := message{Role: "assistant"}
	var (
		text     strings.Builder
		outcomes []message
	)
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case spool.PartText:
			text.WriteString(p.Text)
		case spool.PartReasoning:
			said.remember(p, current)
		case spool.PartTool:
			t := p.Tool
			if t == nil || t.ProviderExecuted || t.State == spool.ToolStreaming {
				continue
			}
			c := toolCall{ID: callID(t.CallID), Type: "function"}
			c.Function.Name, c.Function.Arguments = t.Name, arguments(t)
			said.ToolCalls = append(said.ToolCalls, c)
			outcomes = append(outcomes, message{Role: "tool", ToolCallID: c.ID, Content: outcome(t)})
		}
	}
	if text.Len() > 0 {
		said.Content = text.String()
	} else if len(said.ToolCalls) == 0 {
		return nil
	}
	if len(said.ToolCalls) == 0 {
		said.ReasoningContent = "" // wanted beside tool calls, refused elsewhere
	}
	return append([]message{said}, outcomes...)
}

// remember takes what a reasoning part says must be sent back.
func (m *message) remember(p *spool.Part, current bool) {
	var meta struct {
		OpenAI struct {
			Details []json.RawMessage `json:"reasoning_details"`
			Field   string            `json:"field"`
		} `json:"openai"`
	}
	if len(p.ProviderMetadata) == 0 || provider.Decode(p.ProviderMetadata, &meta) != nil {
		return
	}
	m.ReasoningDetails = append(m.ReasoningDetails, meta.OpenAI.Details...)
	if meta.OpenAI.Field == "reasoning_content" && current {
		m.ReasoningContent += p.Text
	}
}

// arguments returns a call's argument text, always a JSON object: endpoints parse
// it. What was not one is wrapped, so that the model sees what it wrote.
func arguments(t *spool.ToolPart) string {
	text := strings.TrimSpace(string(t.Input))
	if text == "" || text == "null" {
		text = strings.TrimSpace(t.InputText)
	}
	if text == "" {
		return "{}"
	}
	var b bytes.Buffer
	if text[0] == '{' && json.Compact(&b, []byte(text)) == nil {
		return b.String()
	}
	data, err := provider.Marshal(map[string]string{"invalid_arguments": text})
	if err != nil {
		return "{}"
	}
	return string(data)
}

func outcome(t *spool.ToolPart) string {
	switch {
	case t.State == spool.ToolFailed:
		return "Error: " + t.Error
	case t.State == spool.ToolDenied && t.Approval != nil && t.Approval.Reason != "":
		return "The user denied this call: " + t.Approval.Reason
	case t.State == spool.ToolDenied:
		return "The user denied this call."
	case len(t.Output) == 0 && t.State != spool.ToolCompleted:
		return "This call has no result."
	}
	if s, ok := provider.Str(t.Output); ok {
		return s
	}
	if len(t.Output) == 0 {
		return "null"
	}
	return string(t.Output)
}

// callID returns an id that endpoints take: 40 letters, digits, - and _ at most.
func callID(id string) string {
	plain := strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) < 0
	if plain && id != "" && len(id) <= 40 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// userContent returns a string, or pieces if there is more than text.
func userContent(parts []spool.Part) any {
	var pieces []piece
	var text strings.Builder
	only := true
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case spool.PartText:
			if p.Text != "" {
				text.WriteString(p.Text)
				pieces = append(pieces, piece{Type: "text", Text: p.Text})
			}
		case spool.PartFile:
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

func filePiece(p *spool.Part) piece {
	head, data, isData := strings.Cut(p.URL, ",")
	isData = isData && strings.HasPrefix(head, "data:")
	base64ed := isData && strings.HasSuffix(head, ";base64")
	media, name := p.MediaType, p.Filename
	if media == "" && isData {
		media, _, _ = strings.Cut(strings.TrimPrefix(head, "data:"), ";")
	}
	if name == "" {
		name = "file"
	}
	kind, format, _ := strings.Cut(media, "/")
	switch {
	case kind == "image":
		return piece{Type: "image_url", ImageURL: map[string]any{"url": p.URL}}
	case kind == "audio" && base64ed:
		if format == "mpeg" {
			format = "mp3"
		}
		return piece{Type: "input_audio", Audio: map[string]any{"data": data, "format": strings.TrimPrefix(format, "x-")}}
	case (kind == "text" || format == "json") && isData:
		text, err := url.PathUnescape(data)
		if base64ed {
			var b []byte
			b, err = base64.StdEncoding.DecodeString(data)
			text = string(b)
		}
		if err == nil {
			return piece{Type: "text", Text: name + ":\n" + text}
		}
	case isData:
		return piece{Type: "file", File: map[string]any{"filename": name, "file_data": p.URL}}
	}
	return piece{Type: "text", Text: "[" + name + "](" + p.URL + ")"}
}
