package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// What a provider has said is out before the next of it is waited for.
func TestIngestFollows(t *testing.T) {
	for from, events := range map[string][]string{
		"openai-chat": {
			`data: {"choices":[{"index":0,"delta":{"content":"word 1"}}]}`,
			`data: {"choices":[{"index":0,"delta":{"content":"word 2"}}]}`,
			`data: {"choices":[{"index":0,"delta":{"content":"word 3"}}]}`},
		"openai-responses": {
			`data: {"type":"response.output_text.delta","output_index":0,"delta":"word 1"}`,
			`data: {"type":"response.output_text.delta","output_index":0,"delta":"word 2"}`,
			`data: {"type":"response.output_text.delta","output_index":0,"delta":"word 3"}`},
		"anthropic": {
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word 1"}}`,
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word 2"}}`,
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word 3"}}`},
	} {
		t.Run(from, func(t *testing.T) {
			in, feed := io.Pipe()
			read, out := io.Pipe()
			code := make(chan int, 1)
			go func() {
				var errs bytes.Buffer
				code <- spoolBinary.run([]string{"ingest", "--from", from}, streams{in, out, &errs})
				out.Close()
			}()
			lines := bufio.NewScanner(read)
			said := make(chan string)
			go func() { // a pipe holds nothing, and the filter speaks first
				for event := range said {
					_, _ = io.WriteString(feed, event+"\n\n") // the output shows whether it arrived
				}
				feed.Close()
			}()
			for n, event := range events {
				said <- event
				word := fmt.Sprintf(`"delta":"word %d"`, n+1)
				for lines.Scan() && !strings.Contains(lines.Text(), word) {
				}
				if !strings.Contains(lines.Text(), word) {
					t.Fatalf("the output ended without %s", word)
				}
			}
			close(said)
			last := ""
			for lines.Scan() {
				last = lines.Text()
			}
			if c := <-code; c != 0 || !strings.Contains(last, `"outcome":"failed"`) || !strings.Contains(last, "provider_truncated") {
				t.Errorf("exit code %d, last line %s", c, last)
			}
		})
	}
}

// Who has closed the output stops the filter.
func TestIngestStopsWithItsReader(t *testing.T) {
	in, feed := io.Pipe()
	read, out := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- spoolBinary.run([]string{"ingest", "--from", "openai-chat"}, streams{in, out, io.Discard})
		in.CloseWithError(errors.New("the filter has ended"))
	}()
	read.Close()
	for {
		if _, err := io.WriteString(feed, `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n"); err != nil {
			break
		}
	}
	if code := <-done; code != 1 {
		t.Errorf("exit code %d", code)
	}
}
