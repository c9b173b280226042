package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
)

// TestGate: an owner's append waits for the gate, a command's does not, and a
// repeat asks under the same number.
func TestGate(t *testing.T) {
	t.Parallel()
	asked := make(chan string)
	allow := make(chan int)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
		w.WriteHeader(<-allow)
	}))
	defer srv.Close()
	g := newGate(memstore.New(nil), srv.URL+"/")
	ctx := context.Background()
	rec := chunk.Record{Type: chunk.TypeTextDelta, Agent: "s", Data: []byte(`{"type":"text_delta"}`)}
	if _, err := g.Append(ctx, spool.Append{Session: "s", Records: []chunk.Record{rec}}); err != nil {
		t.Fatal(err)
	}
	lease, err := g.Claim(ctx, spool.Claim{Owner: "t", TTL: time.Hour, Session: "s"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	put := func(ordinal uint64) {
		_, err := g.Append(ctx, spool.Append{Session: "s", Epoch: lease.Epoch, Ordinal: ordinal, Records: []chunk.Record{rec, rec}})
		done <- err
	}
	for _, step := range []struct {
		ordinal uint64
		ask     string
		answer  int
	}{
		{1, "/s/1?types=text_delta%2Ctext_delta", 200},
		{2, "/s/2?types=text_delta%2Ctext_delta", 503},
		{2, "/s/2?types=text_delta%2Ctext_delta", 200},
		{3, "/s/3?types=text_delta%2Ctext_delta", 200},
	} {
		go put(step.ordinal)
		if got := <-asked; got != step.ask {
			t.Errorf("asked %s, want %s", got, step.ask)
		}
		select {
		case err := <-done:
			t.Fatalf("append %d did not wait: %v", step.ordinal, err)
		default:
		}
		allow <- step.answer
		if err := <-done; (err == nil) != (step.answer == 200) {
			t.Errorf("append %d: %v", step.ordinal, err)
		}
	}
	if h, err := g.Head(ctx, "s"); err != nil || h.Seq != 7 {
		t.Errorf("head %+v, %v", h, err)
	}
}
