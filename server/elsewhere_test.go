package server_test

import (
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/native"
)

// steps is a clock that a test moves.
type steps struct {
	mu sync.Mutex
	at time.Time
}

func (s *steps) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *steps) forward(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

// A slow reader whose process has not heard of what another one has written since is not
// told that the log has ended.
func TestNoStaleEnd(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "m1", "all of it")
	clock := &steps{at: time.Now()}
	elsewhere := spool.NewLogs(k.store, &spool.Options{Now: clock.Now})
	t.Cleanup(func() { _ = elsewhere.Close() })
	res, err := chat.Handle(t.Context(), &chat.Deps{Logs: elsewhere}, chat.Params{Session: "s", Profile: native.Options{}.Profile()})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := res.Stream.Next(t.Context()); err != nil || len(out) == 0 {
		t.Fatalf("%q, %v", out, err)
	}
	k.say("s", "m2", "more")
	o := k.own("s")
	o.start("m2")
	clock.forward(time.Minute)
	if out, err := res.Stream.Next(t.Context()); errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %q while a run is open", out)
	}
}
