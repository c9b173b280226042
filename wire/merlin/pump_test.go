package merlin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/merlin"
)

// clocked notes when each event was written, and what its content was.
type clocked struct {
	start time.Time
	list  []said
	fails error
}

func (c *clocked) Write(b []byte) (int, error) {
	r := merlin.NewReader(strings.NewReader(string(b)))
	for e, err := r.Next(); err == nil; e, err = r.Next() {
		what := e.Name
		if e.Message.Content != nil {
			what = *e.Message.Content
		}
		c.list = append(c.list, said{time.Since(c.start), what})
	}
	return len(b), c.fails
}

// at is a model's answer of which each piece comes at its time.
func at(start time.Time, pieces ...batch) iter.Seq2[chunk.Chunk, error] {
	return func(yield func(chunk.Chunk, error) bool) {
		for _, p := range pieces {
			time.Sleep(time.Until(start.Add(p.at)))
			for _, text := range p.events {
				if !yield(&chunk.TextDelta{Delta: text, PartID: "t"}, nil) {
					return
				}
			}
		}
	}
}

// A streamer paces V1 by what waits behind the piece that is being written, as a paced
// stream of a log is. Other events keep their place, and methods return when what they
// show is written.
func TestStreamerPaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &clocked{start: time.Now()}
		s := merlin.NewStreamer(w, &merlin.StreamerOptions{Options: merlin.Options{Version: merlin.V1}})
		got, err := s.Stream(t.Context(), at(w.start, batch{events: []string{"Hello wor"}}, batch{at: 200 * ms, events: []string{"åß∂", "cd"}}), merlin.StreamConfig{})
		check(t, err)
		check(t, s.AppendEvent("own", 1))
		check(t, s.End(nil))
		want := []said{{0, "INIT_MESSAGE_CONTENT"}, {0, "Hello"}, {15 * ms, " w"}, {30 * ms, "or"},
			{200 * ms, "åß"}, {210 * ms, "∂"}, {220 * ms, "cd"}, {235 * ms, "own"}, {235 * ms, "end"}}
		if strings.Join(got.Content, "") != "Hello woråß∂cd" || !reflect.DeepEqual(w.list, want) {
			t.Errorf("the caller has %q, the client %v\nwant %v", got.Content, w.list, want)
		}
	})
}

// A stream is read no further ahead than its table can tell the difference. When its
// context ends, what was read is written at once. A client that leaves ends it.
func TestStreamerPacesUntilItIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		w := &clocked{start: time.Now()}
		s := merlin.NewStreamer(w, &merlin.StreamerOptions{Options: merlin.Options{Version: merlin.V1},
			Pacing: []merlin.Pace{{Below: 3, Size: 1, Pause: time.Hour}, {Size: 1, Pause: time.Hour}}})
		read := 0
		pieces := func(yield func(chunk.Chunk, error) bool) {
			for ; yield(&chunk.TextDelta{Delta: fmt.Sprintf("piece %d. ", read), PartID: "t"}, nil); read++ {
			}
		}
		time.AfterFunc(time.Minute, stop)
		got, err := s.Stream(ctx, pieces, merlin.StreamConfig{})
		sent := ""
		for _, x := range w.list[1:] {
			sent += x.what
		}
		if !errors.Is(err, context.Canceled) || read > 6 || sent != strings.Join(got.Content, "") || time.Since(w.start) != time.Minute {
			t.Errorf("after %v: %v; %d pieces were read; the caller has %q, the client %q", time.Since(w.start), err, read, got.Content, sent)
		}

		left := &clocked{start: time.Now(), fails: io.ErrClosedPipe}
		s = merlin.NewStreamer(left, &merlin.StreamerOptions{Options: merlin.Options{Version: merlin.V1}})
		if _, err := s.Stream(t.Context(), pieces, merlin.StreamConfig{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("a client that left: %v", err)
		}
		if err := s.End(nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the end after that: %v", err)
		}
	})
}
