package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// losing lets the server handle every request, and loses the answers that lose names by
// their number among all.
func losing(lose func(n int) bool) func(http.Handler) http.Handler {
	var count atomic.Int64
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				h.ServeHTTP(w, r)
				return
			}
			if !lose(int(count.Add(1))) {
				h.ServeHTTP(w, r)
				return
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
	}
}

// Whichever answers are lost, each chunk of a producer is stored once, and its run ends.
func TestProducerStoresOnce(t *testing.T) {
	t.Parallel()
	words := strings.SplitAfter("Sunny today, and a little wind from the west in the evening.", " ")
	for name, lose := range map[string]func(n int) bool{
		"none":      func(int) bool { return false },
		"each once": func(n int) bool { return n%2 == 0 },
		"most":      func(n int) bool { return n%5 != 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			k := newKit(t, nil, false)
			k.through(losing(lose))
			s := k.client(nil).Session("s")
			p, err := s.Claim(ctx, client.ClaimOptions{Agent: "forecaster"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Claim(ctx, client.ClaimOptions{}); !errors.Is(err, spool.ErrBusy) {
				t.Errorf("a second claim: %v", err)
			}
			for _, w := range words {
				if err := p.Append(ctx, &chunk.TextDelta{Delta: w}); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Append(ctx, &chunk.ToolStart{ToolCallID: "c", ToolName: "look", Arguments: json.RawMessage(`{}`)},
				&chunk.ToolEnd{ToolCallID: "c", ToolName: "look", Result: json.RawMessage(`7`), Success: true}); err != nil {
				t.Fatal(err)
			}
			if err := p.Keep(ctx); err != nil {
				t.Fatal(err)
			}
			many := make([]chunk.Chunk, 1500) // two appends
			for i := range many {
				many[i] = &chunk.TextDelta{Delta: "."}
			}
			if err := p.Append(ctx, many...); err != nil {
				t.Fatal(err)
			}
			if err := p.End(ctx, client.EndOptions{FinishReason: "length", Metadata: json.RawMessage(`{"a":1}`)}); err != nil {
				t.Fatal(err)
			}
			if n := p.Seq(); n != uint64(len(words)+2+1500+1) {
				t.Errorf("counted %d", n)
			}
			k.through(nil)
			end, list := k.ended(s)
			if want := strings.Join(words, "") + strings.Repeat(".", 1500); textOf(list) != want || end.Status != chunk.StatusEnded {
				t.Errorf("%+v\ngot  %s\nwant %s", end, textOf(list), want)
			}
			last := list[len(list)-1].Chunk.(*chunk.RunFinished)
			if last.FinishReason != "length" || string(last.Metadata) != `{"a":1}` || last.AgentType != "forecaster" {
				t.Errorf("%+v", last)
			}
			if err := p.Append(ctx, &chunk.TextDelta{Delta: "late"}); chunk.CodeOf(err) != "producer_fenced" {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// A caller that gives up in the middle of an append loses and doubles nothing: the
// chunks come before those of the next append. What the server refuses is dropped.
func TestProducerKeepsWhatIsOpen(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := newKit(t, nil, false)
	s := k.client(nil).Session("s")
	p, err := s.Claim(ctx, client.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range []bool{true, false} {
		giveUp, cancel := context.WithCancel(ctx)
		k.through(func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if stored {
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				cancel()
				<-r.Context().Done()
			})
		})
		if err := p.Append(giveUp, &chunk.TextDelta{Delta: "one "}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		k.through(nil)
		if err := p.Append(ctx, &chunk.TextDelta{Delta: "two "}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Append(ctx, &chunk.UserMessage{}); chunk.CodeOf(err) != "chunk_not_allowed" {
		t.Errorf("a command: %v", err)
	}
	// Another process goes on where this one is.
	p = s.Producer(p.Claim(), p.Seq())
	if err := p.Append(ctx, &chunk.TextDelta{Delta: "three"}); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	again, err := s.Claim(ctx, client.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.Claim().MessageID != p.Claim().MessageID {
		t.Errorf("the second run's message is %s, want %s", again.Claim().MessageID, p.Claim().MessageID)
	}
	if err := again.Fail(ctx, client.FailOptions{Error: "no more paper", Code: "paper", Recoverable: true}); err != nil {
		t.Fatal(err)
	}
	end, list := k.ended(s)
	if textOf(list) != "one two one two three" || end.Status != chunk.StatusFailed || end.Error != "no more paper" {
		t.Errorf("%+v %q", end, textOf(list))
	}
	i := slices.IndexFunc(list, func(e client.Entry) bool {
		return e.Type == chunk.TypeRunFinished && e.Chunk.(*chunk.RunFinished).Code == "paper"
	})
	if i < 0 {
		t.Error("the failure's code is not in the log")
	}
}

// KeepAlive ends with ctx, or when the claim is over.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil, false)
	s := k.client(nil).Session("s")
	p, err := s.Claim(t.Context(), client.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	short := p.Claim()
	short.TTL = 1
	q := s.Producer(short, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var kept atomic.Int64
	k.through(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if kept.Add(1) == 3 {
				cancel()
			}
			h.ServeHTTP(w, r)
		})
	})
	if err := q.KeepAlive(ctx); err != nil || kept.Load() < 3 {
		t.Errorf("%v after %d", err, kept.Load())
	}
	k.through(nil)
	if err := p.End(t.Context(), client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := q.KeepAlive(t.Context()); chunk.CodeOf(err) != "producer_fenced" {
		t.Errorf("after the end: %v", err)
	}
}
