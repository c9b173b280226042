package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// FuzzPosition: no position, however it comes, is answered with anything but the
// four outcomes of a chat stream.
func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", "0", "3", "p2-4", "p99-4", "7.2", "-1", "99999999999999999999", "1e3", " 3", "3\x00", "p-", "４"} {
		f.Add(s, s, s, "0")
	}
	f.Add("", "", "", "-3")
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	f.Cleanup(func() { _ = logs.Close() })
	ctx := context.Background()
	g, err := logs.Log("s")
	if err != nil {
		f.Fatal(err)
	}
	if _, err := g.Command(ctx, spool.Row{}, &chunk.UserMessage{CommandID: "u1", Message: chunk.Message{ID: "u1", Role: chunk.RoleUser}}); err != nil {
		f.Fatal(err)
	}
	lease, err := logs.Claim(ctx, spool.Claim{Owner: "fuzz", TTL: time.Hour, Session: "s", Force: true})
	if err != nil {
		f.Fatal(err)
	}
	w := g.Writer(lease, spool.WriterOptions{RunID: "r"})
	if _, err := w.Commit(ctx, spool.Row{Status: chunk.StatusEnded}, &spool.Settle{Seen: 1},
		&chunk.RunStarted{TurnID: "u1", MessageID: "m", Commands: []string{"u1"}},
		&chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop"}); err != nil {
		f.Fatal(err)
	}
	srv := server.New(logs, nil)
	f.Fuzz(func(t *testing.T, after, last, resume, index string) {
		for _, target := range []string{
			"/api/chat/s/stream", "/api/chat/s?after=" + url.QueryEscape(after),
			"/api/chat/s?startIndex=" + url.QueryEscape(index), "/stream/s?after=" + url.QueryEscape(after),
		} {
			r := httptest.NewRequest("GET", target, nil)
			r.Header["Last-Event-Id"] = []string{last}
			r.Header["X-Resume-From-Sequence"] = []string{resume}
			rec := httptest.NewRecorder()
			srv.ServeHTTP(rec, r)
			switch rec.Code {
			case http.StatusOK, http.StatusNoContent, http.StatusBadRequest, http.StatusConflict:
			default:
				t.Fatalf("GET %s (%q, %q): %d %s", target, last, resume, rec.Code, rec.Body)
			}
		}
	})
}
