package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
)

// world is a store and what several processes know of it, in a bubble of its own
// time.
type world struct {
	t     *testing.T
	store *countingStore
	logs  *spool.Logs // of the process that the test is
	ids   atomic.Int64
	all   []*spool.Logs
}

func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: &countingStore{Store: memstore.New(nil), calls: map[string]int{}}}
		w.logs = w.process()
		defer func() {
			for _, l := range w.all {
				_ = l.Close()
			}
			_ = w.store.Close()
		}()
		test(w)
	})
}

// process is another process on the same store.
func (w *world) process() *spool.Logs {
	l := spool.NewLogs(w.store, &spool.Options{NewID: func() string { return fmt.Sprintf("id-%06d", w.ids.Add(1)) }})
	w.all = append(w.all, l)
	return l
}

// countingStore counts what it is asked, and can lose the answer to an append that
// it has stored.
type countingStore struct {
	*memstore.Store
	mu    sync.Mutex
	calls map[string]int
	lose  func(a spool.Append) bool
	// between is called after each append that was stored, before its answer.
	between func(a spool.Append)
	// claimed is called after each claim that was granted, before its answer.
	claimed func()
}

func (s *countingStore) count(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
}

// took returns what was asked since the last time.
func (s *countingStore) took() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := maps.Clone(s.calls)
	clear(s.calls)
	return calls
}

func (s *countingStore) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	s.count("append")
	res, err := s.Store.Append(ctx, a)
	s.mu.Lock()
	lose := err == nil && s.lose != nil && s.lose(a)
	between := s.between
	s.mu.Unlock()
	if err == nil && between != nil {
		between(a)
	}
	if lose { // for certain, so that nobody but the producer asks again
		return spool.Appended{}, chunk.ErrInvalidChunk.Because("the answer was lost")
	}
	return res, err
}

func (s *countingStore) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	s.count("read")
	return s.Store.Read(ctx, session, after, max)
}

func (s *countingStore) ReadKept(ctx context.Context, session string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	s.count("read")
	return s.Store.ReadKept(ctx, session, q)
}

func (s *countingStore) Head(ctx context.Context, session string) (spool.Head, error) {
	s.count("head")
	return s.Store.Head(ctx, session)
}

func (s *countingStore) Renew(ctx context.Context, l spool.Lease) error {
	s.count("renew")
	return s.Store.Renew(ctx, l)
}

func (s *countingStore) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	s.count("claim")
	l, err := s.Store.Claim(ctx, c)
	if err == nil && s.claimed != nil {
		s.claimed()
	}
	return l, err
}

func (s *countingStore) Release(ctx context.Context, l spool.Lease) error {
	s.count("release")
	return s.Store.Release(ctx, l)
}

func (w *world) wantCalls(want map[string]int, what string) {
	w.t.Helper()
	if got := w.store.took(); !maps.Equal(got, want) {
		w.t.Errorf("%s asked the store %v, want %v", what, got, want)
	}
}

func (w *world) log(session string) *spool.Log {
	w.t.Helper()
	g, err := w.logs.Log(session)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func say(id, text string) *chunk.UserMessage {
	return &chunk.UserMessage{CommandID: id, Message: chunk.Message{ID: id, Role: chunk.RoleUser,
		Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
}

func (w *world) command(l *spool.Logs, session string, c chunk.Chunk) {
	w.t.Helper()
	g, err := l.Log(session)
	if err == nil {
		_, err = g.Command(w.t.Context(), spool.Row{}, c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// agentRun opens a run as an agent's runner does, and returns its writer.
func (w *world) agentRun(session string) *spool.Writer {
	w.t.Helper()
	lease, err := w.logs.Claim(w.t.Context(), spool.Claim{Owner: "runner", Session: session, Force: true})
	if err != nil {
		w.t.Fatal(err)
	}
	writer := w.log(session).Writer(lease, spool.WriterOptions{RunID: "agents"})
	_, err = writer.Commit(w.t.Context(), spool.Row{Status: chunk.StatusActive}, nil,
		&chunk.RunStarted{TurnID: "turn", MessageID: "message", Mode: chunk.ModeStart},
		&chunk.StepStarted{Base: chunk.Base{Step: 1}, StepID: "step"})
	if err != nil {
		w.t.Fatal(err)
	}
	return writer
}

func (w *world) claim(e *stream.External, session string) stream.ExternalRun {
	w.t.Helper()
	x, err := e.Claim(w.t.Context(), session, stream.ExternalClaim{Row: spool.Row{Title: "from outside"}, AgentType: "script"})
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

func (w *world) produce(e *stream.External, x stream.ExternalRun, seq uint64, chunks ...chunk.Chunk) spool.Appended {
	w.t.Helper()
	res, err := e.Append(w.t.Context(), x.Session, x.Epoch, seq, chunks)
	if err != nil {
		w.t.Fatalf("append at %d: %v", seq, err)
	}
	return res
}

func words(texts ...string) []chunk.Chunk {
	var chunks []chunk.Chunk
	for _, s := range texts {
		chunks = append(chunks, &chunk.TextDelta{Delta: s})
	}
	return chunks
}

func ending(json string) []chunk.Chunk {
	c, err := chunk.Decode([]byte(json))
	if err != nil {
		panic(err)
	}
	return []chunk.Chunk{c}
}

// records returns what the log holds now.
func (w *world) records(session string) []chunk.Record {
	w.t.Helper()
	var all []chunk.Record
	for {
		some, _, err := w.store.Store.Read(w.t.Context(), session, uint64(len(all)), 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
	}
}

// kinds lists the types of records.
func kinds(records []chunk.Record) string {
	var list []string
	for _, r := range records {
		list = append(list, string(r.Type))
	}
	return strings.Join(list, " ")
}

// fold checks that all records and the kept ones say the same, and returns the fold.
func (w *world) fold(session string) *fold.Fold {
	w.t.Helper()
	all, kept := fold.New(session), fold.New(session)
	for _, r := range w.records(session) {
		err := all.Apply(r)
		if r.Class == chunk.Kept {
			err = errors.Join(err, kept.Apply(r))
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	samePosition(kept, all)
	if a, b := mustJSON(all), mustJSON(kept); all.OpenRun() == nil && a != b {
		w.t.Errorf("kept records say something else:\n%s\n%s", b, a)
	}
	return all
}

// samePosition gives a fold and its children the positions of another's, which has
// folded trace besides.
func samePosition(f, of *fold.Fold) {
	f.Seq = of.Seq
	for i := range min(len(f.Children), len(of.Children)) {
		samePosition(f.Children[i], of.Children[i])
	}
}

func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func mustDecode(r chunk.Record) chunk.Chunk {
	c, err := chunk.Decode(r.Data)
	if err != nil {
		panic(err)
	}
	return c
}

// wantStopped checks that a session's run was stopped, with nothing left open or
// due, and that its message says so.
func (w *world) wantStopped(session string) *fold.Fold {
	w.t.Helper()
	f := w.fold(session)
	parts := f.Messages[len(f.Messages)-1].Parts
	h, err := w.log(session).Head(w.t.Context())
	if f.Status != chunk.StatusEnded || f.Reason != "stopped" || f.Live() || parts[len(parts)-1].Name != "run-interrupted" || err != nil || h.Due != 0 {
		w.t.Errorf("status %s %s, live %v, message %s, head %+v, %v", f.Status, f.Reason, f.Live(), mustJSON(parts), h, err)
	}
	return f
}
