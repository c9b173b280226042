package openai

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// body builds the request.
func (r *Responses) body(req *model.Request, id string) ([]byte, error) {
	o := &r.m.o
	b := map[string]any{"model": id, "input": input(req, r.m.host()), "stream": true}
	if req.Instructions != "" {
		b["instructions"] = req.Instructions
	}
	var tools []any
	for _, s := range req.Tools {
		f := map[string]any{"type": "function", "name": s.Name, "parameters": s.InputSchema, "strict": false}
		if len(s.InputSchema) == 0 {
			f["parameters"] = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		if s.Description != "" {
			f["description"] = s.Description
		}
		tools = append(tools, f)
	}
	for _, t := range o.Tools {
		tools = append(tools, t)
	}
	if len(tools) > 0 {
		b["tools"] = tools
	}
	if len(req.Output) > 0 {
		b["text"] = map[string]any{"format": map[string]any{"type": "json_schema", "name": "output", "schema": req.Output, "strict": o.StrictOutput}}
	}
	if req.Temperature != nil {
		b["temperature"] = *req.Temperature
	}
	if req.MaxTokens > 0 {
		b["max_output_tokens"] = req.MaxTokens
	}
	switch {
	case o.Background:
		b["background"], b["store"] = true, true
	case o.NoStore:
		b["store"], b["include"] = false, []string{"reasoning.encrypted_content"}
	}
	maps.Copy(b, o.Extra)
	return provider.Marshal(b)
}

// input is the conversation as items; host is who gets it.
func input(r *model.Request, host string) []any {
	items := []any{}
	for i := range r.Messages {
		m := &r.Messages[i]
		switch m.Role {
		case chunk.RoleSystem:
			if text := m.Text(); text != "" {
				items = append(items, map[string]any{"role": "system", "content": text})
			}
		case chunk.RoleUser:
			if content := inputContent(m.Parts); len(content) > 0 {
				items = append(items, map[string]any{"role": "user", "content": content})
			}
		case chunk.RoleAssistant:
			for step := range provider.Steps(m.Parts) {
				items = append(items, stepItems(step, host)...)
			}
		}
	}
	return items
}

// stepItems are what the model said and asked for, then the calls' outcomes.
func stepItems(parts []chunk.Part, host string) []any {
	var items, outcomes []any
	said := false // something that reasoning may stand before
	for i := range parts {
		p := &parts[i]
		switch p.Type {
		case chunk.PartText:
			if p.Text != "" {
				said = true
				items = append(items, map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": p.Text}}})
			}
		case chunk.PartReasoning:
			items = appendItem(items, keptOf(p, host).Item, "reasoning")
		case chunk.PartTool:
			t := p.Tool
			switch {
			case t == nil || t.State == chunk.ToolStreaming:
			case t.ProviderExecuted:
				said = true
				items = appendItem(items, t.Output, "_call")
			default:
				said = true
				id := provider.CallID(t.CallID)
				items = append(items, map[string]any{"type": "function_call", "call_id": id, "name": t.Name, "arguments": provider.Arguments(t)})
				outcomes = append(outcomes, map[string]any{"type": "function_call_output", "call_id": id, "output": provider.Outcome(t)})
			}
		}
	}
	if !said {
		return nil
	}
	return append(items, outcomes...)
}

// appendItem appends an item as it came, without what the API does not take back.
func appendItem(items []any, raw json.RawMessage, kind string) []any {
	var item map[string]any
	if len(raw) == 0 || json.Unmarshal(raw, &item) != nil {
		return items
	}
	if t, _ := item["type"].(string); !strings.HasSuffix(t, kind) || item["id"] == nil {
		return items // another provider's
	}
	if kind == "reasoning" {
		delete(item, "status")
	}
	maps.DeleteFunc(item, func(_ string, v any) bool { return v == nil })
	return append(items, item)
}

func inputContent(parts []chunk.Part) (content []any) {
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case chunk.PartText:
			if p.Text != "" {
				content = append(content, map[string]any{"type": "input_text", "text": p.Text})
			}
		case chunk.PartFile:
			content = append(content, inputFile(provider.FileOf(p)))
		}
	}
	return content
}

func inputFile(f provider.File) any {
	if f.Kind() == "image" {
		return map[string]any{"type": "input_image", "image_url": f.URL, "detail": "auto"}
	}
	if s, ok := f.Text(); ok {
		return map[string]any{"type": "input_text", "text": f.Name + ":\n" + s}
	}
	switch {
	case !f.IsURL:
		return map[string]any{"type": "input_file", "filename": f.Name, "file_data": f.URL}
	case f.Media == "application/pdf":
		return map[string]any{"type": "input_file", "file_url": f.URL}
	}
	return map[string]any{"type": "input_text", "text": f.Link()}
}
