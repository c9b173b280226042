package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"time"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	openaisdk "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/openai"
)

const deltas = 20_000

// ingest compares the model clients with the providers' own: the same recorded
// answer, from memory, through each side's public client.
func ingest(runs int) error {
	fmt.Println("\n| 20,000 deltas from memory | Spool MB/s | official SDK MB/s | ratio (range) | allocations per event | SDK's |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, p := range []struct {
		name     string
		body     []byte
		ours     func(*http.Client) (int, error)
		official func(*http.Client) (int, error)
	}{
		{"chat completions", chatStream(), readModel(func(h *http.Client) model.Model {
			return openai.New(&openai.Options{APIKey: "k", Model: "m", HTTPClient: h})
		}), officialChat},
		{"Responses", responsesStream(), readModel(func(h *http.Client) model.Model {
			return openai.NewResponses(&openai.Options{APIKey: "k", Model: "m", HTTPClient: h})
		}), officialResponses},
		{"Anthropic messages", messagesStream(), readModel(func(h *http.Client) model.Model {
			return anthropic.New(&anthropic.Options{APIKey: "k", Model: "m", HTTPClient: h})
		}), officialMessages},
	} {
		var ours, official, ratios []float64
		var allocs, theirs float64
		for n := range runs + 1 {
			o, a, err := timed(p.body, p.ours)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			s, b, err := timed(p.body, p.official)
			if err != nil {
				return fmt.Errorf("%s, official SDK: %w", p.name, err)
			}
			if n > 0 { // the first pair warms up
				ours, official, ratios = append(ours, o), append(official, s), append(ratios, o/s)
				allocs, theirs = a, b
			}
		}
		fmt.Printf("| %s | %.0f | %.1f | %s | %.2f | %.0f |\n", p.name, median(ours), median(official), span(ratios), allocs, theirs)
	}
	return nil
}

// timed reads a body once and returns MB/s and allocations per event.
func timed(body []byte, read func(*http.Client) (int, error)) (rate, allocs float64, err error) {
	client := &http.Client{Transport: canned(body)}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := time.Now()
	n, err := read(client)
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	if err == nil && n != deltas*len(word) {
		err = fmt.Errorf("%d bytes of text, not %d", n, deltas*len(word))
	}
	return float64(len(body)) / 1e6 / took.Seconds(), float64(after.Mallocs-before.Mallocs) / deltas, err
}

// canned answers every request with the same bytes.
type canned []byte

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: -1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(c))}, nil
}

func readModel(open func(*http.Client) model.Model) func(*http.Client) (int, error) {
	return func(h *http.Client) (n int, err error) {
		r := &model.Request{Messages: []chunk.Message{{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "go"}}}}}
		for part, err := range open(h).Stream(context.Background(), r) {
			if err != nil {
				return n, err
			}
			if text, ok := part.(model.TextDelta); ok {
				n += len(text.Delta)
			}
		}
		return n, nil
	}
}

func officialChat(h *http.Client) (n int, err error) {
	client := openaisdk.NewClient(openaioption.WithHTTPClient(h), openaioption.WithAPIKey("k"))
	stream := client.Chat.Completions.NewStreaming(context.Background(), openaisdk.ChatCompletionNewParams{
		Model: "m", Messages: []openaisdk.ChatCompletionMessageParamUnion{openaisdk.UserMessage("go")}})
	defer stream.Close()
	for stream.Next() {
		if item := stream.Current(); len(item.Choices) > 0 {
			n += len(item.Choices[0].Delta.Content)
		}
	}
	return n, stream.Err()
}

func officialResponses(h *http.Client) (n int, err error) {
	client := openaisdk.NewClient(openaioption.WithHTTPClient(h), openaioption.WithAPIKey("k"))
	stream := client.Responses.NewStreaming(context.Background(), responses.ResponseNewParams{
		Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openaisdk.String("go")}})
	defer stream.Close()
	for stream.Next() {
		if e, ok := stream.Current().AsAny().(responses.ResponseTextDeltaEvent); ok {
			n += len(e.Delta)
		}
	}
	return n, stream.Err()
}

func officialMessages(h *http.Client) (n int, err error) {
	client := anthropicsdk.NewClient(anthropicoption.WithHTTPClient(h), anthropicoption.WithAPIKey("k"))
	stream := client.Messages.NewStreaming(context.Background(), anthropicsdk.MessageNewParams{
		Model: "m", MaxTokens: 1024, Messages: []anthropicsdk.MessageParam{anthropicsdk.NewUserMessage(anthropicsdk.NewTextBlock("go"))}})
	defer stream.Close()
	for stream.Next() {
		if e, ok := stream.Current().AsAny().(anthropicsdk.ContentBlockDeltaEvent); ok {
			if d, ok := e.Delta.AsAny().(anthropicsdk.TextDelta); ok {
				n += len(d.Text)
			}
		}
	}
	return n, stream.Err()
}

const word = " the next"

// The streams are as the providers send them.

func chatStream() []byte {
	item := func(delta, reason string) string {
		return `data: {"id":"chatcmpl-CaQxw2f1mUb8XyzExample","object":"chat.completion.chunk","created":1763730000,"model":"gpt-5.1-2025-11-13","service_tier":"default","system_fingerprint":null,` +
			`"choices":[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + reason + `}],"usage":null,"obfuscation":"kR3x9"}` + "\n\n"
	}
	return []byte(item(`{"role":"assistant","content":"","refusal":null}`, "null") +
		strings.Repeat(item(`{"content":"`+word+`"}`, "null"), deltas) + item(`{}`, `"stop"`) + "data: [DONE]\n\n")
}

func responsesStream() []byte {
	var b strings.Builder
	event := func(kind, format string, args ...any) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":\"%s\","+format+"}\n\n", append([]any{kind, kind}, args...)...)
	}
	const response = `"response":{"id":"resp_1","object":"response","created_at":1763730000,"status":"%s","model":"gpt-5.1","output":[]}`
	event("response.created", `"sequence_number":0,`+response, "in_progress")
	event("response.output_item.added", `"sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"}`)
	event("response.content_part.added", `"sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}`)
	for i := range deltas {
		event("response.output_text.delta", `"sequence_number":%d,"item_id":"msg_0a1b2c3d4e5f60718293a4b5c6d7e8f90123456789abcdef","output_index":0,"content_index":0,"delta":"`+word+`","logprobs":[],"obfuscation":"kR3x9"`, i+3)
	}
	event("response.completed", `"sequence_number":%d,`+response, deltas+3, "completed")
	return []byte(b.String())
}

func messagesStream() []byte {
	event := func(kind, rest string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"" + rest + "}\n\n"
	}
	return []byte(event("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1}}`) +
		event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`) +
		strings.Repeat(event("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"`+word+`"}`), deltas) +
		event("content_block_stop", `,"index":0`) +
		event("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}`) + event("message_stop", ""))
}
