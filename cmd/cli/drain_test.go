package cli

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// A server gets SIGTERM in the middle of a long answer, which takes longer than its runs have
// to come to their next phase, while a second one waits on the same file. The second
// one ends the answer, and it is whole. If the provider produces it in the background, the
// run was handed over: nobody is told of a loss, and no recovery is counted. Otherwise the model
// is asked again, and the log says so.
func TestDrainInMidAnswer(t *testing.T) {
	t.Parallel()
	for name, background := range map[string]bool{"resumed": true, "asked again": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "drain.db")
			model := "scripted?background=0"
			if background {
				model = "scripted"
			}
			start := func(rate string) *spoolServer {
				return serveSpool(t, db, "--model", model, "--demo-rate", rate, "--drain-grace", "1ms")
			}
			first := start("10")
			here, err := client.New(first.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := here.Session("s").Send(t.Context(), client.Message{ID: "u1", Text: "long"}); err != nil {
				t.Fatal(err)
			}
			head := here.Session("s").Log(t.Context(), client.LogOptions{})
			for words := 0; words < 3; {
				e, err := head.Next()
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == chunk.TypeTextDelta {
					words++
				}
			}
			_ = head.Close()
			second := start("0") // it ends the answer at once
			first.end()

			there, err := client.New(second.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			// Another session is answered in peace, to compare with.
			if _, err := there.Session("peace").Send(t.Context(), client.Message{ID: "u1", Text: "long"}); err != nil {
				t.Fatal(err)
			}
			types, text := drained(t, there, "s")
			if _, want := drained(t, there, "peace"); text != want || text == "" {
				t.Errorf("the answer is %q, want %q", text, want)
			}
			log := strings.Join(types, " ")
			says := strings.Contains(log, string(chunk.TypeExecutorSuperseded)) && strings.Contains(log, string(chunk.TypeStepDiscarded))
			quiet := !strings.Contains(log, string(chunk.TypeExecutorSuperseded)) && !strings.Contains(log, string(chunk.TypeStepDiscarded)) &&
				strings.Count(log, string(chunk.TypeExecutorHandedOver)) == 1
			if background && !quiet || !background && !says {
				t.Errorf("the log is %s", log)
			}
			res, err := http.Get(second.url + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			metrics, err := io.ReadAll(res.Body)
			if counted := strings.Contains(string(metrics), "spool_runs_recovered_total{"); err != nil || counted == background {
				t.Errorf("a recovery is counted: %v, %v", counted, err)
			}
		})
	}
}

// drained returns the types of a session's records, once it is quiet, and the answer.
func drained(t *testing.T, c *client.Client, session string) (types []string, text string) {
	t.Helper()
	log := c.Session(session).Log(t.Context(), client.LogOptions{})
	defer log.Close()
	for {
		e, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, string(e.Type))
	}
	snap, err := c.Session(session).Snapshot(t.Context(), client.SnapshotOptions{})
	if err != nil || len(snap.Messages) != 2 {
		t.Fatalf("%+v, %v", snap, err)
	}
	for _, part := range snap.Messages[1].Parts {
		text += part.Text
	}
	return types, text
}
