package server_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// Readers stay connected while the store is away: they get comments, and then what was
// written meanwhile or since. Requests for the state fail at once.
func TestReadersStayThroughAnOutage(t *testing.T) {
	for name, hangs := range map[string]bool{"fails": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			engine := memstore.New(nil)
			t.Cleanup(func() { _ = engine.Close() })
			there := spool.NewLogs(engine, nil) // of the owner, who reaches the store
			t.Cleanup(func() { _ = there.Close() })
			g, err := there.Log("s")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Command(t.Context(), spool.Row{}, &chunk.UserMessage{CommandID: "c", Message: chunk.Message{ID: "c", Role: chunk.RoleUser}}); err != nil {
				t.Fatal(err)
			}
			lease, err := there.Claim(t.Context(), spool.Claim{Owner: "o"})
			if err != nil {
				t.Fatal(err)
			}
			w := g.Writer(lease, spool.WriterOptions{RunID: "r"})
			defer w.Close()
			write := func(chunks ...chunk.Chunk) {
				if _, err := w.Commit(t.Context(), spool.Row{Status: chunk.StatusActive}, nil, chunks...); err != nil {
					t.Fatal(err)
				}
			}
			write(&chunk.RunStarted{TurnID: "c", MessageID: "m", Mode: chunk.ModeStart, Commands: []string{"c"}},
				&chunk.StepStarted{Base: chunk.Base{Step: 1}, StepID: "r-s1"}, &chunk.TextDelta{Base: chunk.Base{Step: 1}, Delta: "before"})

			store := storetest.NewOutage(engine)
			logs := spool.NewLogs(store, nil)
			t.Cleanup(func() { _ = logs.Close() })
			srv := httptest.NewServer(server.New(logs, &server.Options{Heartbeat: 20 * time.Millisecond}))
			t.Cleanup(srv.Close)
			t.Cleanup(srv.CloseClientConnections)
			get := func(path string) *http.Response {
				res, err := http.Get(srv.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = res.Body.Close() })
				return res
			}
			readers := map[string]*bufio.Scanner{}
			for _, path := range []string{"/stream/s", "/api/chat/s/stream", "/merlin/v2/s"} {
				readers[path] = bufio.NewScanner(get(path).Body)
			}
			expect := func(text string, times int) {
				for path, lines := range readers {
					for n := 0; n < times; {
						if !lines.Scan() {
							t.Fatalf("%s ended before %q: %v", path, text, lines.Err())
						}
						n += strings.Count(lines.Text(), text)
					}
				}
			}
			expect("before", 1)
			store.Begin(hangs)
			write(&chunk.TextDelta{Base: chunk.Base{Step: 1}, Delta: "meanwhile"})
			expect(": hb", 5)
			if !hangs {
				res := get("/api/chat/s/snapshot")
				var p server.Problem
				if err := json.NewDecoder(res.Body).Decode(&p); err != nil || res.StatusCode != http.StatusServiceUnavailable || p.Code != "unavailable" || p.Hint == "" {
					t.Errorf("the snapshot: %s %+v, %v", res.Status, p, err)
				}
			}
			store.End()
			expect("meanwhile", 1)
			write(&chunk.TextDelta{Base: chunk.Base{Step: 1}, Delta: "afterwards"})
			expect("afterwards", 1)
		})
	}
}
