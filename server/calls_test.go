package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// counting counts what is asked of a store. Waits and saved folds do not count:
// the ones are what an idle reader costs, the others replace reads.
type counting struct {
	*memstore.Store
	mu    sync.Mutex
	calls []string
}

func (c *counting) note(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

// take returns the calls since it was asked last.
func (c *counting) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (c *counting) Head(ctx context.Context, session string) (spool.Head, error) {
	c.note("head")
	return c.Store.Head(ctx, session)
}

func (c *counting) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	c.note("read")
	return c.Store.Read(ctx, session, after, max)
}

func (c *counting) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	c.note("read kept")
	return c.Store.ReadKept(ctx, session, q)
}

func (c *counting) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	c.note("append")
	return c.Store.Append(ctx, a)
}

func (c *counting) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	c.note("row")
	return c.Store.Session(ctx, session)
}

// One attach asks the store once where the log stands. On a database every call is
// a round trip.
func TestAttachAsksTheStoreOnce(t *testing.T) {
	t.Parallel()
	ann := &server.Options{Principal: func(*http.Request) (string, error) { return "ann", nil }}
	k := newKit(t, ann)
	k.turn("s", "m1", "one", "two")
	k.turn("s", "m2", "three", "four")
	k.turn("trimmed", "m1", "one", "two")
	k.turn("trimmed", "m2", "three", "four")
	if h, err := k.store.Head(t.Context(), "trimmed"); err != nil {
		t.Fatal(err)
	} else if err := k.store.Trim(t.Context(), "trimmed", h.Seq-2, 0); err != nil {
		t.Fatal(err)
	}
	k.say("live", "m1", "question")
	live := k.own("live")
	live.start("m1")
	live.text("so far")

	// Each stream is read to where it stands still: its end, or the words so far.
	const end, soFar = "", "so far"
	views := []struct {
		name, path, header string
		until              string
		cold, warm         int
	}{
		{"native from the start", "/stream/s", "", end, 2, 1},
		{"native after a cursor", "/stream/s?after=3", "", end, 3, 1},
		{"native, trimmed", "/stream/trimmed?follow=session", "Last-Event-ID: 1", end, 1, 1},
		{"native, live", "/stream/live", "", soFar, 2, 1},
		{"replay", "/api/chat/s", "", end, 2, 1},
		{"replay, live", "/api/chat/live", "", soFar, 2, 1},
		{"replay, trimmed", "/api/chat/trimmed", "", end, 4, 1},
		{"page load", "/api/chat/live", "X-Resume-From-Sequence: 1", soFar, 2, 1},
		{"cursor", "/api/chat/s?after=3", "", end, 2, 1},
		{"cursor, inside a replay", "/api/chat/live", "Last-Event-ID: p1-4", soFar, 2, 1},
		{"counted", "/api/chat/s?startIndex=0", "", end, 2, 1},
		{"merlin", "/merlin/v2/s", "", end, 2, 1},
		{"merlin, live", "/merlin/v1/live", "", soFar, 2, 1},
		{"a child that is not there", "/stream/s.1", "", end, 2, 1},
	}
	for i := range 2 * len(views) {
		v, o, name := views[i/2], (*server.Options)(nil), views[i/2].name
		if i%2 > 0 { // whose session it is costs nothing
			o, name = ann, name+", by its owner"
		}
		t.Run(name, func(t *testing.T) {
			store := &counting{Store: k.store}
			logs := spool.NewLogs(store, nil)
			defer logs.Close()
			beside := k.over(logs, o)
			ask := func() []string {
				name, value, _ := strings.Cut(v.header, ": ")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, beside.http.URL+v.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if name != "" {
					req.Header.Set(name, value)
				}
				res, err := beside.http.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				var got []byte
				for buf := make([]byte, 4096); v.until == end || !strings.Contains(string(got), v.until); {
					n, err := res.Body.Read(buf)
					if got = append(got, buf[:n]...); err != nil {
						break
					}
				}
				if v.until != end && !strings.Contains(string(got), v.until) {
					t.Fatalf("the stream ends with %q", got)
				}
				return store.take()
			}
			if calls := ask(); len(calls) > v.cold {
				t.Errorf("a cold attach costs %v, want at most %d calls", calls, v.cold)
			}
			if calls := ask(); len(calls) > v.warm {
				t.Errorf("a warm one costs %v, want at most %d", calls, v.warm)
			}
		})
	}
}
