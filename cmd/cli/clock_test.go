package cli

import (
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// envClock is by how much the clock of a process that tests start is wrong.
const envClock = "SPOOL_TEST_CLOCK"

// setClock sets this process's clock wrong.
func setClock(by string) {
	if by == "" {
		return
	}
	d, err := time.ParseDuration(by)
	if err != nil {
		panic(err)
	}
	now = func() time.Time { return time.Now().Add(d) }
}

// Two processes share a file, and their clocks differ by an hour. What one of them starts
// the other stops, answers and, when the one is killed, goes on with.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			db := filepath.Join(t.TempDir(), "clocks.db")
			start := func(by time.Duration) (*spoolServer, *client.Client) {
				s := startSpool(t, spoolPath(t), []string{envClock + "=" + by.String()}, "serve", "--addr", "127.0.0.1:0",
					"--store", "sqlite:"+db, "--model", "scripted?background=0", "--demo-rate", "50", "--lease-ttl", "3s", "--heartbeat", "1s")
				c, err := client.New(s.url, nil)
				if err != nil {
					t.Fatal(err)
				}
				return s, c
			}
			first, here := start(0)
			_, there := start(skew)

			send := func(c *client.Client, session, text string) {
				t.Helper()
				if _, err := c.Session(session).Send(t.Context(), client.Message{ID: "u1", Text: text}); err != nil {
					t.Fatal(err)
				}
			}
			// follow reads a log until a record of this type, or to where it is quiet.
			follow := func(c *client.Client, session string, until chunk.Type) (last chunk.Chunk) {
				t.Helper()
				l := c.Session(session).Log(t.Context(), client.LogOptions{})
				defer l.Close()
				for {
					e, err := l.Next()
					if errors.Is(err, io.EOF) {
						return last
					}
					if err != nil {
						t.Fatal(err)
					}
					if last = e.Chunk; e.Type == until {
						return last
					}
				}
			}
			ends := func(c *client.Client, session string, want chunk.Outcome) {
				t.Helper()
				if f, ok := follow(c, session, chunk.TypeRunFinished).(*chunk.RunFinished); !ok || f.Outcome != want {
					t.Fatalf("%s ends with %+v, want %s", session, f, want)
				}
			}

			send(here, "stopped", "long")
			follow(there, "stopped", chunk.TypeTextDelta)
			if _, err := there.Session("stopped").Stop(t.Context(), client.StopOptions{}); err != nil {
				t.Fatal(err)
			}
			ends(here, "stopped", chunk.OutcomeStopped)

			for n, c := range []*client.Client{here, there} {
				session := []string{"asked-here", "asked-there"}[n]
				send(c, session, "approve")
				follow(here, session, chunk.TypeRunSuspended)
				snap, err := there.Session(session).Snapshot(t.Context(), client.SnapshotOptions{})
				if err != nil || len(snap.Pending()) != 1 {
					t.Fatalf("%+v, %v", snap, err)
				}
				if _, err := there.Session(session).Decide(t.Context(), snap.Pending()[0].ApprovalID, client.Decision{Approved: true}); err != nil {
					t.Fatal(err)
				}
				ends(here, session, chunk.OutcomeCompleted)
			}

			for _, session := range []string{"left-1", "left-2", "left-3", "left-4"} { // both processes own some
				send(here, session, "tools")
				follow(there, session, chunk.TypeToolStart)
			}
			first.kill()
			for _, session := range []string{"left-1", "left-2", "left-3", "left-4"} {
				ends(there, session, chunk.OutcomeCompleted)
			}
		})
	}
}
