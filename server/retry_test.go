package server_test

import (
	"io"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/server"
)

// Each stream that a client can reconnect to says another time after which it should, from
// one second to four. The stream of a POST says none.
func TestRetryIsSpread(t *testing.T) {
	t.Parallel()
	drawn := []int{0, int(1500 * time.Millisecond), int(3*time.Second) - 1}
	var bounds []int
	k := newKit(t, &server.Options{Jitter: func(n int) int {
		bounds = append(bounds, n)
		return drawn[len(bounds)-1]
	}})
	k.turn("s", "u1", "hello")
	retry := func(method, path, body string) time.Duration {
		t.Helper()
		r := sse.NewReader(k.do(method, path, body).Body, nil)
		for {
			if _, err := r.Next(); err == io.EOF {
				return r.Retry()
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, path := range []string{"/stream/s", "/api/chat/s/stream", "/merlin/v2/s"} {
		if got, want := retry("GET", path, ""), []time.Duration{1000, 2500, 3999}[i]*time.Millisecond; got != want {
			t.Errorf("%s says %v, want %v", path, got, want)
		}
	}
	if got := retry("POST", "/api/chat/s", userBody("s", "u1", "question u1")); got != 0 {
		t.Errorf("a POST says %v", got)
	}
	if len(bounds) != 3 {
		t.Errorf("drawn %d times", len(bounds))
	}
}
