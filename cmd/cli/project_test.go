package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// spool project has written what a chunk becomes before it waits for the next, so
// that it can follow a session; of turns that follow each other it shows each.
func TestProjectFollows(t *testing.T) {
	for wire, shows := range map[string]string{"native": "word %d", "aisdk": `"delta":"word %d"`, "merlin-v2": "word %d"} {
		t.Run(wire, func(t *testing.T) {
			in, feed := io.Pipe()
			read, out := io.Pipe()
			code := make(chan int, 1)
			go func() {
				var errs bytes.Buffer
				code <- spoolBinary.run([]string{"project", "--wire", wire}, streams{in, out, &errs})
				out.Close()
			}()
			said := make(chan string)
			go func() { // a pipe holds nothing, and the filter speaks first
				for chunks := range said {
					_, _ = io.WriteString(feed, chunks) // the output shows whether it arrived
				}
				feed.Close()
			}()
			lines := bufio.NewScanner(read)
			for n := range 3 {
				said <- fmt.Sprintf(`{"type":"run_started","agentId":"s","runId":"r%[1]d","turnId":"t%[1]d","messageId":"m%[1]d","mode":"start"}
{"type":"step_started","agentId":"s","runId":"r%[1]d","stepId":"r%[1]d-s1","step":1}
{"type":"text_delta","agentId":"s","runId":"r%[1]d","step":1,"delta":"word %[1]d"}
`, n)
				word := fmt.Sprintf(shows, n)
				for lines.Scan() && !strings.Contains(lines.Text(), word) {
				}
				if !strings.Contains(lines.Text(), word) {
					t.Fatalf("the output ended without %s", word)
				}
				said <- fmt.Sprintf(`{"type":"run_finished","agentId":"s","runId":"r%d","outcome":"completed","finishReason":"stop"}
`, n)
			}
			close(said)
			for lines.Scan() {
			}
			if got := <-code; got != 0 {
				t.Errorf("exit code %d", got)
			}
		})
	}
}
