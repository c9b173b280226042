//go:build nodes

package redisstream_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/server/frontend"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/stream/redisstream"
)

// open is a process of its own, as far as the server knows.
func open(t *testing.T, server *engines.Server, o *redisstream.Options) (*redisstream.StreamManager, *redisstream.StateStore) {
	t.Helper()
	streams, err := redisstream.NewStreamManager("redis://"+server.Addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := streams.Close(); err != nil {
			t.Error(err)
		}
	})
	return streams, streams.StateStore()
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A producer in one process streams; readers in others resume at stored sequences, follow, and
// see how it ends.
func TestStreamInRedis(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	ctx := t.Context()
	o := &redisstream.Options{Prefix: "myapp:streams:", TTL: 24 * time.Hour, BlockTimeout: 5 * time.Second}
	writes, _ := open(t, server, o)
	reads, state := open(t, server, o)
	const id = "session-1"

	if info, err := reads.GetStreamInfo(ctx, id); info != nil || err != nil {
		t.Fatalf("an unknown stream: %+v, %v", info, err)
	}
	if r, err := reads.CreateResumableReader(ctx, id, 0); r != nil || err != nil {
		t.Fatalf("a reader of an unknown stream: %v, %v", r, err)
	}
	w := must[*stream.Writer](t)(writes.CreateWriter(ctx, id, "run-123", "writer"))
	for _, s := range []string{"Hello", ", "} {
		if err := w.Write(ctx, &chunk.TextDelta{Delta: s}); err != nil {
			t.Fatal(err)
		}
	}
	info := must[*stream.Info](t)(reads.GetStreamInfo(ctx, id))
	if info.Status != chunk.StatusActive || info.LatestSequence != info.TotalChunks {
		t.Fatalf("%+v", info)
	}

	reader := must[*stream.ResumableReader](t)(reads.CreateResumableReader(ctx, id, info.LatestSequence-1))
	if reader.CurrentSequence() != info.LatestSequence-1 || reader.TotalChunks() != info.TotalChunks {
		t.Fatalf("a reader at %d of %d chunks: %+v", reader.CurrentSequence(), reader.TotalChunks(), info)
	}
	first := must[stream.StoredChunk](t)(reader.Next(ctx))
	if d, ok := first.Chunk.(*chunk.TextDelta); !ok || d.Delta != ", " || first.Sequence != info.LatestSequence || reader.CurrentSequence() != first.Sequence {
		t.Fatalf("%+v at %d", first, reader.CurrentSequence())
	}
	live := make(chan stream.StoredChunk) // one that blocks gets what is written then
	failed := make(chan error, 1)
	go func() {
		defer close(live)
		for {
			c, err := reader.Next(ctx)
			if err != nil {
				failed <- err
				return
			}
			live <- c
		}
	}()
	if err := w.Write(ctx, &chunk.TextDelta{Delta: "world"}); err != nil {
		t.Fatal(err)
	}
	if c := <-live; c.Sequence != first.Sequence+1 {
		t.Fatalf("%+v after %d", c, first.Sequence)
	}
	if err := errors.Join(w.Close(), writes.EndStream(ctx, id, []byte(`{"ok":true}`))); err != nil {
		t.Fatal(err)
	}
	at := first.Sequence + 1
	for c := range live {
		if at++; c.Sequence != at {
			t.Fatalf("%d, want %d", c.Sequence, at)
		}
	}
	if err := <-failed; err != io.EOF || reader.End() == nil || reader.End().Status != chunk.StatusEnded || string(reader.End().Message.FinalOutput) != `{"ok":true}` {
		t.Fatalf("%v, %+v", err, reader.End())
	}
	text := must[string](t)(stream.CollectText(reads.CreateReader(ctx, id)))
	run := must[*stream.SessionRun](t)(state.GetCurrentRun(ctx, id))
	chunks := must[[]stream.StoredChunk](t)(reads.GetChunksFromSequence(ctx, id, run.StartSequence))
	if text != "Hello, world" || uint64(len(chunks)) != at || run.Status != chunk.StatusEnded {
		t.Fatalf("%q, %d chunks of %d, %+v", text, len(chunks), at, run)
	}
	if page := must[stream.MessagePage](t)(state.GetMessages(ctx, id, 0, 50)); len(page.Messages) != 1 || page.HasMore {
		t.Fatalf("%+v", page)
	}
}

// Streams fail, pause and go on in any process, and those of another prefix are not there.
func TestStreamStatesInRedis(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	ctx := t.Context()
	one, state := open(t, server, nil)
	two, _ := open(t, server, nil)
	other, otherState := open(t, server, &redisstream.Options{Prefix: "other"})
	w := must[*stream.Writer](t)(one.CreateWriter(ctx, "s", "s", "writer"))
	if err := errors.Join(w.Write(ctx, &chunk.TextDelta{Delta: "a"}), two.PauseStream(ctx, "s")); err != nil {
		t.Fatal(err)
	}
	if info := must[*stream.Info](t)(one.GetStreamInfo(ctx, "s")); info.Status != chunk.StatusPaused {
		t.Fatalf("%+v", info)
	}
	if err := w.Write(ctx, &chunk.TextDelta{Delta: "b"}); !errors.Is(err, spool.ErrClosed) && !errors.Is(err, spool.ErrSuperseded) {
		t.Fatalf("a write to a paused stream: %v", err)
	}
	if err := errors.Join(two.ResumeStream(ctx, "s"), two.FailStream(ctx, "s", "Something went wrong")); err != nil {
		t.Fatal(err)
	}
	if info := must[*stream.Info](t)(one.GetStreamInfo(ctx, "s")); info.Status != chunk.StatusFailed || info.Error != "Something went wrong" {
		t.Fatalf("%+v", info)
	}
	if r, err := one.CreateResumableReader(ctx, "s", 0); r != nil || err != nil {
		t.Fatalf("a reader of a failed stream: %v, %v", r, err)
	}
	if info, err := other.GetStreamInfo(ctx, "s"); info != nil || err != nil {
		t.Fatalf("under another prefix: %+v, %v", info, err)
	}
	if exists, err := otherState.SessionExists(ctx, "s"); exists || err != nil {
		t.Fatalf("under another prefix: %v, %v", exists, err)
	}
	if err := errors.Join(state.DeleteSession(ctx, "s"), state.DeleteSession(ctx, "s")); err != nil {
		t.Fatal(err)
	}
	if info, err := two.GetStreamInfo(ctx, "s"); info != nil || err != nil {
		t.Fatalf("after it was deleted: %+v, %v", info, err)
	}
}

// Any process of a prefix cleans up behind the streams of all.
func TestCleanUpInRedis(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	ctx := t.Context()
	w, _ := open(t, server, &redisstream.Options{TTL: -1})
	for i := range 3 {
		out := must[*stream.Writer](t)(w.CreateWriter(ctx, fmt.Sprint("s", i), "", "writer"))
		if err := errors.Join(out.Write(ctx, &chunk.TextDelta{Delta: "a"}), w.EndStream(ctx, fmt.Sprint("s", i), nil)); err != nil {
			t.Fatal(err)
		}
	}
	open(t, server, &redisstream.Options{TTL: 10 * time.Millisecond, StateTTL: 10 * time.Millisecond})
	for i := range 3 {
		id, seen := fmt.Sprint("s", i), spool.Head{}
		for must[*stream.Info](t)(w.GetStreamInfo(ctx, id)) != nil {
			h, _, err := w.Logs().Store().Wait(ctx, id, seen)
			if err != nil && !errors.Is(err, spool.ErrNotFound) {
				t.Fatal(err)
			}
			seen = h
		}
	}
}

// A frontend handler takes the stream manager and the state store as they are.
func TestFrontendOnRedis(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	streams, _ := open(t, server, nil)
	state, err := redisstream.NewStateStore("redis://"+server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	h := must[*frontend.Handler](t)(frontend.New(frontend.Options{Streams: streams.Manager, State: state.StateStore, RunsElsewhere: true}))
	w := must[*stream.Writer](t)(streams.CreateWriter(t.Context(), "s", "s", "writer"))
	if err := errors.Join(w.Write(t.Context(), &chunk.TextDelta{Delta: "Hello"}), streams.EndStream(t.Context(), "s", nil)); err != nil {
		t.Fatal(err)
	}
	page, err := h.GetMessages(t.Context(), "s", frontend.MessagesOptions{Limit: 50})
	if err != nil || len(page.Messages) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if exists, err := state.SessionExists(t.Context(), "s"); !exists || err != nil {
		t.Fatalf("the state store: %v, %v", exists, err)
	}
}
