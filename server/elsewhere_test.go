package server_test

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire/native"
)

// A reader whose process has not heard of what another one has written since is not
// told that the log has ended.
func TestNoStaleEnd(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "m1", "all of it")
	var later atomic.Int64
	elsewhere := spool.NewLogs(k.store, &spool.Options{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	defer elsewhere.Close()
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
	later.Store(int64(time.Minute)) // so long it took to send what was there
	if out, err := res.Stream.Next(t.Context()); errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %q while a run is open", out)
	}
}
