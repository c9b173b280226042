package spool_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
)

// A quota refuses what begins a turn, and nothing else: what was said before stays, and
// repeats have the result that they had.
func TestQuota(t *testing.T) {
	saying := func(id, text string) *chunk.UserMessage {
		return &chunk.UserMessage{CommandID: id, WhenBusy: chunk.BusyQueue, Message: chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
	}
	full := spool.Limits{MaxTurns: 2}
	for name, p := range map[string]spool.Policy{
		"turns": {Limits: full},
		"bytes": {Limits: spool.Limits{MaxBytes: 600}},
		"of an agent": {Of: func(agent, principal string) spool.Limits {
			if agent == "small" {
				return full
			}
			return spool.Limits{}
		}},
		"of a principal": {Limits: spool.Limits{MaxTurns: 1}, Of: func(agent, principal string) spool.Limits {
			if principal == "ann" {
				return full
			}
			return spool.Limits{}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(nil)
			logs := spool.NewLogs(store, &spool.Options{Policy: p})
			defer logs.Close()
			g, err := logs.Log("s")
			if err != nil {
				t.Fatal(err)
			}
			row := spool.Row{Agent: "small", Principal: "ann"}
			for i := range 2 {
				if _, err := g.CommandFor(t.Context(), row, saying(fmt.Sprint("m", i), strings.Repeat("x", 300))); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []chunk.Chunk{saying("m2", strings.Repeat("x", 100_000)),
				&chunk.HistoryRewound{CommandID: "r", Trigger: "regenerate"},
				&chunk.ResumeRequested{CommandID: "c", Mode: chunk.ModeFromCheckpoint, CheckpointID: "p"}} {
				_, err := g.CommandFor(t.Context(), row, c)
				if e, ok := errors.AsType[*chunk.Error](err); !errors.Is(err, spool.ErrQuota) || !ok || e.Hint == "" {
					t.Errorf("%s: %v", c.ChunkType(), err)
				}
			}
			before, err := store.Session(t.Context(), "s")
			if err != nil || before.Head.Seq != 2 || before.Bytes > 2000 {
				t.Errorf("stored %+v, %v", before, err)
			}
			if _, err := g.CommandFor(t.Context(), spool.Row{Principal: "bob"}, saying("m3", "mine?")); !errors.Is(err, spool.ErrExists) {
				t.Errorf("somebody else is told %v", err)
			}
			for _, c := range []chunk.Chunk{saying("m1", "again"), &chunk.StopRequested{CommandID: "stop"},
				&chunk.ResumeRequested{CommandID: "d", Mode: chunk.ModeContinue}} {
				if _, err := g.CommandFor(t.Context(), row, c); err != nil {
					t.Errorf("%s: %v", c.ChunkType(), err)
				}
			}
			other, err := logs.Log("other")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.CommandFor(t.Context(), row, saying("m0", "hello")); err != nil {
				t.Error(err)
			}
		})
	}
}

// What all sessions of a principal use together is limited, too. A refused session does not
// come to be.
func TestQuotaOfAPrincipal(t *testing.T) {
	saying := func(id string) *chunk.UserMessage {
		return &chunk.UserMessage{CommandID: id, WhenBusy: chunk.BusyQueue, Message: chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: strings.Repeat("x", 300)}}}}
	}
	say := func(t *testing.T, logs *spool.Logs, session, principal, id string) error {
		t.Helper()
		g, err := logs.Log(session)
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.CommandFor(t.Context(), spool.Row{Principal: principal}, saying(id))
		return err
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		if e, ok := errors.AsType[*chunk.Error](err); !errors.Is(err, spool.ErrQuota) || !ok || !strings.Contains(e.Hint, "--max-sessions") {
			t.Errorf("refused with %v", err)
		}
	}
	begun := func(t *testing.T, l spool.Limits) (*memstore.Store, *spool.Logs) {
		store := memstore.New(nil)
		logs := spool.NewLogs(store, &spool.Options{Policy: spool.Policy{Of: func(_, principal string) spool.Limits {
			if principal == "root" {
				return spool.Limits{}
			}
			return l
		}}})
		t.Cleanup(func() { _ = logs.Close() })
		for _, session := range []string{"a1", "a2"} {
			if err := say(t, logs, session, "ann", "m0"); err != nil {
				t.Fatal(err)
			}
		}
		return store, logs
	}
	absent := func(t *testing.T, store spool.Store, session string) {
		t.Helper()
		if _, err := store.Head(t.Context(), session); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("%s: %v", session, err)
		}
	}
	t.Run("sessions", func(t *testing.T) {
		store, logs := begun(t, spool.Limits{MaxPrincipalSessions: 2})
		refused(t, say(t, logs, "a3", "ann", "m0"))
		refused(t, say(t, logs, "n1", "", "m0")) // nobody's: all sessions count
		absent(t, store, "a3")
		for _, s := range [][2]string{{"a2", "ann"}, {"b1", "bob"}, {"b2", "bob"}, {"r1", "root"}, {"r2", "root"}, {"r3", "root"}} {
			if err := say(t, logs, s[0], s[1], "m1"); err != nil {
				t.Errorf("%s: %v", s[0], err)
			}
		}
		g, err := logs.Log("a3")
		if err != nil {
			t.Fatal(err)
		}
		refused(t, g.CheckQuota(t.Context(), spool.Row{Principal: "ann"}))
		_, err = stream.NewExternal(logs, nil).Claim(t.Context(), "a3", stream.ExternalClaim{Row: spool.Row{Principal: "ann"}})
		refused(t, err)
		absent(t, store, "a3")
		if err := store.Delete(t.Context(), "a1"); err != nil {
			t.Fatal(err)
		}
		if err := say(t, logs, "a3", "ann", "m0"); err != nil {
			t.Error(err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		store, logs := begun(t, spool.Limits{MaxPrincipalBytes: 800})
		if err := say(t, logs, "b1", "bob", "m0"); err != nil { // his are small
			t.Error(err)
		}
		refused(t, say(t, logs, "a3", "ann", "m0"))
		refused(t, say(t, logs, "a2", "ann", "m1"))
		absent(t, store, "a3")
		if err := say(t, logs, "a2", "ann", "m0"); err != nil {
			t.Errorf("a repeat: %v", err)
		}
	})
}

// With no policy the store is asked nothing more.
func TestNoPolicyAsksNothing(t *testing.T) {
	store := &countedSessions{Store: memstore.New(nil)}
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.CheckQuota(t.Context(), spool.Row{}); err != nil || store.asked != 0 {
		t.Errorf("asked %d times, %v", store.asked, err)
	}
}

type countedSessions struct {
	*memstore.Store
	asked int
}

func (s *countedSessions) Session(ctx context.Context, session string) (spool.SessionInfo, error) {
	s.asked++
	return s.Store.Session(ctx, session)
}
