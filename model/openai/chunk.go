package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// A chunk as providers send it. Members that are known to come in several shapes
// stay raw; a member of a wrong type is left out, not an error.
type chunk struct {
	Object    string          `json:"object"`
	Type      string          `json:"type"`
	Choices   []choice        `json:"choices"`
	Usage     *usage          `json:"usage"`
	Error     json.RawMessage `json:"error"`
	Detail    json.RawMessage `json:"detail"`
	Message   json.RawMessage `json:"message"`
	Citations []string        `json:"citations"`
	XGroq     *struct {
		Usage *usage          `json:"usage"`
		Error json.RawMessage `json:"error"`
	} `json:"x_groq"`
}

type choice struct {
	Index        *int            `json:"index"`
	Delta        *delta          `json:"delta"`
	Message      *delta          `json:"message"` // a whole answer, or a summary of it
	Text         string          `json:"text"`
	FinishReason string          `json:"finish_reason"`
	Error        json.RawMessage `json:"error"`
}

type delta struct {
	Content          json.RawMessage   `json:"content"`
	Refusal          string            `json:"refusal"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        string            `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []toolDelta       `json:"tool_calls"`
	FunctionCall     *functionDelta    `json:"function_call"`
	Annotations      []annotation      `json:"annotations"`
	Images           []image           `json:"images"`
}

type toolDelta struct {
	Index    *int          `json:"index"`
	ID       string        `json:"id"`
	Function functionDelta `json:"function"`
}

type functionDelta struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type annotation struct {
	Type string `json:"type"`
	URL  struct {
		URL     string `json:"url"`
		Title   string `json:"title"`
		Content string `json:"content"`
	} `json:"url_citation"`
}

type image struct {
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	PromptDetails    struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	PromptCacheHit int64 `json:"prompt_cache_hit_tokens"`
}

// decode reads a value and forgives members of a wrong type.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}

// content takes the content member apart: a string, or a list of typed pieces.
func (d *delta) content() (text, reasoning string) {
	text, ok := str(d.Content)
	if ok || isNull(d.Content) {
		return text, ""
	}
	var pieces []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if decode(d.Content, &pieces) != nil {
		return "", ""
	}
	for _, p := range pieces {
		if p.Type != "thinking" {
			text += p.Text
			continue
		}
		if s, ok := str(p.Thinking); ok {
			reasoning += s
			continue
		}
		inner := delta{Content: p.Thinking}
		s, _ := inner.content()
		reasoning += s
	}
	return text, reasoning
}

// arguments returns argument text. Some providers send the object itself.
func (f *functionDelta) arguments() string {
	if s, ok := str(f.Arguments); ok || isNull(f.Arguments) {
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, f.Arguments) != nil {
		return ""
	}
	return b.String()
}

func str(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(raw, &s) == nil
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || raw[0] == 'n'
}

// said reports whether an error member says that there is one.
func said(raw json.RawMessage) bool {
	switch strings.TrimSpace(string(raw)) {
	case "", "null", "false", `""`, "{}", "[]":
		return false
	}
	return true
}
