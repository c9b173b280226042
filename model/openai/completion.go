package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// A chunk as providers send it. Members that are known to come in several shapes
// stay raw; a member of a wrong type is left out, not an error.
type completion struct {
	Object    string          `json:"object"`
	Type      string          `json:"type"`
	Choices   []choice        `json:"choices"`
	Usage     *usage          `json:"usage"`
	Error     json.RawMessage `json:"error"`
	Detail    json.RawMessage `json:"detail"`
	Message   json.RawMessage `json:"message"`
	Msg       json.RawMessage `json:"msg"`
	Errors    json.RawMessage `json:"errors"`
	Citations []string        `json:"citations"`
	XGroq     *struct {
		Usage *usage          `json:"usage"`
		Error json.RawMessage `json:"error"`
	} `json:"x_groq"`
	BaseResp struct { // MiniMax
		Code    int    `json:"status_code"`
		Message string `json:"status_msg"`
	} `json:"base_resp"`
}

type choice struct {
	Index        *int            `json:"index"`
	Delta        *delta          `json:"delta"`
	Message      *delta          `json:"message"` // a whole answer, or a summary of it
	Text         json.RawMessage `json:"text"`
	FinishReason string          `json:"finish_reason"`
	Usage        *usage          `json:"usage"` // Moonshot
	Error        json.RawMessage `json:"error"`
}

type delta struct {
	Content          json.RawMessage   `json:"content"`
	Refusal          json.RawMessage   `json:"refusal"`
	ReasoningContent json.RawMessage   `json:"reasoning_content"`
	Reasoning        json.RawMessage   `json:"reasoning"`
	ReasoningText    json.RawMessage   `json:"reasoning_text"` // GitHub Copilot
	ReasoningOpaque  string            `json:"reasoning_opaque"`
	Thinking         json.RawMessage   `json:"thinking"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        toolDeltas        `json:"tool_calls"`
	FunctionCall     *functionDelta    `json:"function_call"`
	Annotations      []annotation      `json:"annotations"`
	Index            *index            `json:"index"`    // of the block, from gateways to models that write in blocks
	Citation         *citation         `json:"citation"` // from them, too
	Images           []image           `json:"images"`
	Audio            *spoken           `json:"audio"`
	Extra            struct {
		Google struct {
			Thought bool `json:"thought"` // the content is one
		} `json:"google"`
	} `json:"extra_content"`
}

// spoken is a piece of an answer in sound.
type spoken struct {
	Data       string  `json:"data"` // base64, each piece by itself
	Transcript snippet `json:"transcript"`
}

// snippet is a piece of text, which may begin or end inside a character.
type snippet string

func (s *snippet) UnmarshalJSON(raw []byte) error {
	text, _ := provider.Raw(raw)
	*s = snippet(text)
	return nil
}

// sound collects the bytes of a spoken answer.
type sound []byte

func (s *sound) add(piece string) {
	data, err := base64.StdEncoding.DecodeString(piece)
	if err == nil {
		*s = append(*s, data...)
	}
}

// url returns the sound as a data URL, "" if there is none. Streams carry bare samples,
// to which it adds a header.
func (s sound) url() string {
	if len(s) == 0 {
		return ""
	}
	media := "audio/pcm"
	if kind := http.DetectContentType(s); strings.HasPrefix(kind, "audio/") {
		media = kind
	}
	return "data:" + media + ";base64," + base64.StdEncoding.EncodeToString(s)
}

// toolDeltas come as a list, or as a single one.
type toolDeltas []toolDelta

func (d *toolDeltas) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '{' {
		*d = make([]toolDelta, 1)
		return provider.Decode(raw, &(*d)[0])
	}
	return provider.Decode(raw, (*[]toolDelta)(d))
}

type toolDelta struct {
	Index    *index        `json:"index"`
	ID       name          `json:"id"`
	Function functionDelta `json:"function"`
	Custom   struct {
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	} `json:"custom"` // a call whose arguments are free text
	// The same without the wrapping.
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`

	keepsake
}

// keepsake is what a provider sends with a tool call and wants back with it: signatures
// of the reasoning behind the call. Without them it refuses the next request.
type keepsake struct {
	ExtraContent   json.RawMessage `json:"extra_content,omitempty"`            // Google
	ProviderFields json.RawMessage `json:"provider_specific_fields,omitempty"` // LiteLLM
	Signature      json.RawMessage `json:"thought_signature,omitempty"`
	CamelSignature json.RawMessage `json:"thoughtSignature,omitempty"`
}

// add takes what a further delta brings.
func (k *keepsake) add(more *keepsake) {
	for _, m := range []struct{ into, from *json.RawMessage }{
		{&k.ExtraContent, &more.ExtraContent}, {&k.ProviderFields, &more.ProviderFields},
		{&k.Signature, &more.Signature}, {&k.CamelSignature, &more.CamelSignature},
	} {
		if provider.Said(*m.from) {
			*m.into = bytes.Clone(*m.from)
		}
	}
}

// unwrapped returns the delta's function, from whichever member has it.
func (d *toolDelta) unwrapped() *functionDelta {
	switch {
	case d.Function.Name != "" || !provider.IsNull(d.Function.Arguments):
		return &d.Function
	case d.Custom.Name != "" || !provider.IsNull(d.Custom.Input):
		return &functionDelta{d.Custom.Name, d.Custom.Input}
	}
	return &functionDelta{d.Name, d.Arguments}
}

// index is a number, which some write as text.
type index int

func (i *index) UnmarshalJSON(raw []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<30 {
		return &json.UnmarshalTypeError{Value: "value", Type: reflect.TypeFor[index]()}
	}
	*i = index(f)
	return nil
}

// name is text, or a number that stands for it.
type name string

func (n *name) UnmarshalJSON(raw []byte) error {
	if s, ok := provider.Str(raw); ok {
		*n = name(s)
	} else if raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' {
		*n = name(raw)
	}
	return nil
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

// citation is a quotation, of a page or of a document of the request.
type citation struct {
	URL           string `json:"url"`
	Title         string `json:"title"`
	DocumentTitle string `json:"document_title"`
	DocumentIndex *index `json:"document_index"`
	CitedText     string `json:"cited_text"`
}

func (c *citation) source() model.Source {
	s := model.Source{URL: c.URL, Title: c.Title, CitedText: c.CitedText}
	if s.URL == "" {
		s.MediaType = "text/plain"
		if s.Title == "" {
			s.Title = c.DocumentTitle
		}
		at := 0
		if c.DocumentIndex != nil && *c.DocumentIndex >= 0 {
			at = int(*c.DocumentIndex)
			s.Document = &at
		}
		if s.Title == "" && s.CitedText != "" {
			s.Title = "Document " + strconv.Itoa(at+1)
		}
	}
	return s
}

type image struct {
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
}

// usage has the names of several providers for the same numbers.
type usage struct {
	PromptTokens     provider.Count `json:"prompt_tokens"`
	InputTokens      provider.Count `json:"input_tokens"`
	CompletionTokens provider.Count `json:"completion_tokens"`
	OutputTokens     provider.Count `json:"output_tokens"`
	PromptDetails    struct {
		CachedTokens provider.Count `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens provider.Count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	PromptCacheHit  provider.Count `json:"prompt_cache_hit_tokens"`
	CachedTokens    provider.Count `json:"cached_tokens"`
	ReasoningTokens provider.Count `json:"reasoning_tokens"`
}

// content takes the content member apart: a string, or a list of typed pieces.
func (d *delta) content() (text, reasoning string, files []string) {
	p := plain{}
	p.add(d.Content, false)
	return p.text.String(), p.reasoning.String(), p.files
}

// thought is the text of a reasoning member, whatever its shape.
func thought(raw json.RawMessage) string {
	if s, ok := provider.Raw(raw); ok {
		return s
	}
	p := plain{}
	p.add(raw, true)
	return p.reasoning.String()
}

// plain collects what a content member says.
type plain struct {
	text, reasoning strings.Builder
	files           []string
	depth           int
}

func (p *plain) add(raw json.RawMessage, thinking bool) {
	if s, ok := provider.Raw(raw); ok {
		if thinking {
			p.reasoning.WriteString(s)
		} else {
			p.text.WriteString(s)
		}
		return
	}
	if provider.IsNull(raw) || p.depth > 8 {
		return
	}
	p.depth++
	defer func() { p.depth-- }()
	if raw[0] == '[' {
		var pieces []json.RawMessage
		if provider.Decode(raw, &pieces) == nil {
			for _, r := range pieces {
				p.add(r, thinking)
			}
		}
		return
	}
	var piece struct {
		Type      string          `json:"type"`
		Text      json.RawMessage `json:"text"`
		Thinking  json.RawMessage `json:"thinking"`
		Reasoning json.RawMessage `json:"reasoning"`
		Summary   json.RawMessage `json:"summary"`
		Content   json.RawMessage `json:"content"`
		Refusal   json.RawMessage `json:"refusal"`
		ImageURL  struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if raw[0] != '{' || provider.Decode(raw, &piece) != nil {
		return
	}
	thinking = thinking || strings.Contains(piece.Type, "think") || strings.Contains(piece.Type, "reason")
	p.add(piece.Thinking, true)
	p.add(piece.Reasoning, true)
	for _, r := range []json.RawMessage{piece.Text, piece.Content, piece.Refusal} {
		p.add(r, thinking)
	}
	if thinking {
		p.add(piece.Summary, true)
	}
	if piece.ImageURL.URL != "" {
		p.files = append(p.files, piece.ImageURL.URL)
	}
}

// arguments returns argument text. Some providers send the object itself.
func (f *functionDelta) arguments() string {
	if s, ok := provider.Raw(f.Arguments); ok || provider.IsNull(f.Arguments) {
		return s
	}
	var b bytes.Buffer
	if json.Compact(&b, f.Arguments) != nil {
		return ""
	}
	return b.String()
}
