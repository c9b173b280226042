package redisstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
)

const day = 24 * time.Hour

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    Options
		ttl  time.Duration
		want runner.Retention
	}{
		"the defaults":            {Options{}, 7 * day, runner.Retention{Age: day, Records: 10_000, Grace: 10 * time.Minute, Every: 10 * time.Minute}},
		"an hour":                 {Options{TTL: time.Hour, StateTTL: 2 * time.Hour}, 2 * time.Hour, runner.Retention{Age: time.Hour, Records: 10_000, Grace: 10 * time.Minute, Every: 10 * time.Minute}},
		"longer than the state":   {Options{TTL: 30 * day}, 30 * day, runner.Retention{Age: 30 * day, Records: 10_000, Grace: 10 * time.Minute, Every: 10 * time.Minute}},
		"a minute and ten":        {Options{TTL: time.Minute, MaxLength: 10}, 7 * day, runner.Retention{Age: time.Minute, Records: 10, Grace: 15 * time.Second, Every: 15 * time.Second}},
		"for ever, of any length": {Options{TTL: -1, MaxLength: -1}, 0, runner.Retention{Age: -1, Records: -1, Grace: 10 * time.Minute, Every: 10 * time.Minute}},
		"the state for ever":      {Options{StateTTL: -1}, 0, runner.Retention{Age: day, Records: 10_000, Grace: 10 * time.Minute, Every: 10 * time.Minute}},
	} {
		limits, retention := c.o.limits()
		if limits != (spool.Limits{TTL: c.ttl}) || retention != c.want {
			t.Errorf("%s: %+v, %+v; want %v, %+v", name, limits, retention, c.ttl, c.want)
		}
	}
}

func TestWrongURL(t *testing.T) {
	t.Parallel()
	if _, err := NewStreamManager("redis://", nil); !errors.Is(err, chunk.ErrInvalid) && !errors.Is(err, spool.ErrUnavailable) {
		t.Errorf("a stream manager of no server: %v", err)
	}
	if _, err := NewStateStore("redis://127.0.0.1:1?prefix={x}", nil); !errors.Is(err, chunk.ErrInvalid) {
		t.Errorf("a state store with a wrong prefix: %v", err)
	}
}

// in runs a test on a store in memory, in virtual time.
func in(t *testing.T, o Options, test func(t *testing.T, m *StreamManager)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		m := newConnection(store, o).manager()
		test(t, m)
		if err := errors.Join(m.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
}

// say streams a turn of so many deltas, and ends it.
func say(t *testing.T, m *stream.Manager, id string, n int) {
	t.Helper()
	write(t, m, id, n)
	if err := m.EndStream(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, m *stream.Manager, id string, n int) {
	t.Helper()
	w, err := m.CreateWriter(t.Context(), id, id, "writer")
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := w.Write(t.Context(), &chunk.TextDelta{Delta: "x"}); err != nil {
			t.Fatal(err)
		}
	}
}

// deltas is how many single deltas are left of a stream, and messages how many messages.
func deltas(t *testing.T, m *stream.Manager, id string) (n int) {
	t.Helper()
	all, err := m.GetAllChunks(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if chunk.Is(c.Chunk, chunk.TypeTextDelta) {
			n++
		}
	}
	return n
}

func messages(t *testing.T, s *StateStore, id string) int {
	t.Helper()
	page, err := s.GetMessages(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Messages)
}

// A stream's deltas go after its TTL, and the session after that of its state.
func TestTTL(t *testing.T) {
	in(t, Options{TTL: time.Hour, StateTTL: day}, func(t *testing.T, m *StreamManager) {
		state := m.StateStore()
		say(t, m.Manager, "s", 5)
		time.Sleep(time.Hour - time.Minute)
		if n := deltas(t, m.Manager, "s"); n != 5 {
			t.Errorf("before its TTL the stream has %d deltas", n)
		}
		time.Sleep(time.Hour)
		if n := deltas(t, m.Manager, "s"); n != 0 {
			t.Errorf("after its TTL the stream has %d deltas", n)
		}
		if n := messages(t, state, "s"); n != 1 {
			t.Errorf("after the stream's TTL the session has %d messages", n)
		}
		time.Sleep(day)
		if info, err := m.GetStreamInfo(t.Context(), "s"); info != nil || err != nil {
			t.Errorf("after the TTL of its state: %+v, %v", info, err)
		}
	})
}

// The latest chunks of a stream are kept, and all of a turn that is open.
func TestMaxLength(t *testing.T) {
	in(t, Options{MaxLength: 30}, func(t *testing.T, m *StreamManager) {
		say(t, m.Manager, "s", 40)
		write(t, m.Manager, "open", 100)
		time.Sleep(time.Hour)
		say(t, m.Manager, "s", 20)
		time.Sleep(time.Hour)
		if n := deltas(t, m.Manager, "s"); n != 20 {
			t.Errorf("%d deltas are left, want those of the latest turn", n)
		}
		if n := messages(t, m.StateStore(), "s"); n != 2 {
			t.Errorf("%d messages are left, want 2", n)
		}
		if n := deltas(t, m.Manager, "open"); n != 100 {
			t.Errorf("an open turn has %d deltas, want all", n)
		}
	})
}
