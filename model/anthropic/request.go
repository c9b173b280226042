package anthropic

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// piece is a content block of a request.
type piece = map[string]any

type entry struct {
	Role    string  `json:"role"`
	Content []piece `json:"content"`
}

// body builds the request.
func (m *Model) body(r *model.Request, id string) ([]byte, error) {
	most := m.o.MaxTokens
	if r.MaxTokens > 0 {
		most = r.MaxTokens
	}
	if most <= 0 {
		most = defaultMaxTokens
	}
	system, entries := history(r)
	if len(r.Output) > 0 && !m.o.NativeOutput {
		system = append(system, piece{"type": "text", "text": "Your final answer must be nothing but JSON that satisfies this JSON Schema:\n" + string(r.Output)})
	}
	tools := m.tools(r.Tools)
	if m.o.Cache != "" {
		m.mark(system, tools, entries)
	}
	b := map[string]any{"model": id, "messages": entries, "stream": true, "max_tokens": most}
	if len(system) > 0 {
		b["system"] = system
	}
	if len(tools) > 0 {
		b["tools"] = tools
	}
	if len(r.Output) > 0 && m.o.NativeOutput {
		b["output_config"] = map[string]any{"format": map[string]any{"type": "json_schema", "schema": r.Output}}
	}
	switch {
	case m.o.ThinkingBudget > 0: // which leaves no choice of temperature
		b["thinking"] = map[string]any{"type": "enabled", "budget_tokens": m.o.ThinkingBudget}
		b["max_tokens"] = most + m.o.ThinkingBudget
	case r.Temperature != nil:
		b["temperature"] = *r.Temperature
	}
	maps.Copy(b, m.o.Extra)
	return provider.Marshal(b)
}

func (m *Model) tools(specs []model.ToolSpec) (list []piece) {
	for _, s := range specs {
		t := piece{"name": s.Name, "input_schema": s.InputSchema}
		if len(s.InputSchema) == 0 {
			t["input_schema"] = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		if s.Description != "" {
			t["description"] = s.Description
		}
		list = append(list, t)
	}
	for _, t := range m.o.Tools {
		list = append(list, maps.Clone(t))
	}
	return list
}

// mark puts cache markers behind what the next request begins with as well: the tools,
// the instructions, and the last two of the user's entries. The API allows four.
func (m *Model) mark(system, tools []piece, entries []entry) {
	marker := map[string]any{"type": "ephemeral"}
	if m.o.Cache != "5m" {
		marker["ttl"] = m.o.Cache
	}
	last := func(list []piece) {
		if len(list) > 0 {
			list[len(list)-1]["cache_control"] = marker
		}
	}
	last(tools)
	last(system)
	for i, n := len(entries)-1, 0; i >= 0 && n < 2; i-- {
		if entries[i].Role == "user" {
			last(entries[i].Content)
			n++
		}
	}
}

// history is the conversation as the API takes it: the user's entries alternate with
// the assistant's, and each call's outcome stands at the beginning of the user's
// next one.
func history(r *model.Request) (system []piece, entries []entry) {
	if r.Instructions != "" {
		system = append(system, text(r.Instructions))
	}
	add := func(role string, content ...piece) {
		switch n := len(entries); {
		case len(content) == 0:
		case n > 0 && entries[n-1].Role == role:
			entries[n-1].Content = append(entries[n-1].Content, content...)
		default:
			entries = append(entries, entry{role, content})
		}
	}
	entries = []entry{}
	for i := range r.Messages {
		m := &r.Messages[i]
		switch m.Role {
		case chunk.RoleSystem:
			if s := m.Text(); strings.TrimSpace(s) != "" {
				system = append(system, text(s))
			}
		case chunk.RoleUser:
			add("user", user(m.Parts)...)
		case chunk.RoleAssistant:
			for step := range provider.Steps(m.Parts) {
				said, outcomes := assistant(step)
				add("assistant", said...)
				add("user", outcomes...)
			}
		}
	}
	return system, entries
}

func text(s string) piece { return piece{"type": "text", "text": s} }

// assistant builds what the model said in a step, in its order, and what became
// of its calls.
func assistant(parts []chunk.Part) (said, outcomes []piece) {
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case chunk.PartText:
			if strings.TrimSpace(p.Text) != "" { // which the API refuses
				said = append(said, text(p.Text))
			}
		case chunk.PartReasoning:
			if b := thought(p); b != nil {
				said = append(said, b)
			}
		case chunk.PartTool:
			t := p.Tool
			switch {
			case t == nil || t.State == chunk.ToolStreaming:
			case t.ProviderExecuted:
				said = append(said, executed(t)...)
			default:
				id := provider.CallID(t.CallID)
				said = append(said, piece{"type": "tool_use", "id": id, "name": t.Name, "input": json.RawMessage(provider.Arguments(t))})
				result := piece{"type": "tool_result", "tool_use_id": id, "content": provider.Outcome(t)}
				if t.State == chunk.ToolFailed || t.State == chunk.ToolDenied {
					result["is_error"] = true
				}
				outcomes = append(outcomes, result)
			}
		}
	}
	return said, outcomes
}

// thought is a reasoning part as it came, if it came from this API. The API takes no
// reasoning without its signature.
func thought(p *chunk.Part) piece {
	var meta struct {
		Anthropic struct {
			Signature    string `json:"signature"`
			RedactedData string `json:"redactedData"`
		} `json:"anthropic"`
	}
	if len(p.ProviderMetadata) == 0 || provider.Decode(p.ProviderMetadata, &meta) != nil {
		return nil
	}
	switch {
	case meta.Anthropic.RedactedData != "":
		return piece{"type": "redacted_thinking", "data": meta.Anthropic.RedactedData}
	case meta.Anthropic.Signature != "":
		return piece{"type": "thinking", "thinking": p.Text, "signature": meta.Anthropic.Signature}
	}
	return nil
}

// executed is a call that the provider ran, with its outcome as it came. One
// without an outcome is what the provider goes on with.
func executed(t *chunk.ToolPart) []piece {
	use := piece{"type": "server_tool_use", "id": t.CallID, "name": t.Name, "input": json.RawMessage(provider.Arguments(t))}
	var result piece
	if json.Unmarshal(t.Output, &result) != nil || result["tool_use_id"] == nil {
		if strings.HasPrefix(t.CallID, "srvtoolu_") {
			return []piece{use}
		}
		return nil // another provider's
	}
	if result["type"] == "mcp_tool_result" {
		use["type"] = "mcp_tool_use"
		use["server_name"] = result["server_name"]
		delete(result, "server_name")
	}
	result["tool_use_id"] = t.CallID
	return []piece{use, result}
}

func user(parts []chunk.Part) (content []piece) {
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case chunk.PartText:
			if strings.TrimSpace(p.Text) != "" {
				content = append(content, text(p.Text))
			}
		case chunk.PartFile:
			content = append(content, filePiece(provider.FileOf(p)))
		}
	}
	return content
}

func filePiece(f provider.File) piece {
	source := map[string]any{"type": "url", "url": f.URL}
	if !f.IsURL {
		source = map[string]any{"type": "base64", "media_type": f.Media, "data": f.Data}
	}
	switch {
	case f.Kind() == "image":
		return piece{"type": "image", "source": source}
	case f.Media == "application/pdf":
		return piece{"type": "document", "title": f.Name, "source": source}
	}
	if s, ok := f.Text(); ok && s != "" {
		return piece{"type": "document", "title": f.Name, "source": map[string]any{"type": "text", "media_type": "text/plain", "data": s}}
	}
	return text(f.Link())
}
