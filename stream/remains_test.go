package stream_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/stream"
)

// Where trace was trimmed, a stream is read from its first chunk all the same, and says
// once what is missing.
func TestTrimmedStreamFromTheStart(t *testing.T) {
	m, logs := newManager(t)
	w := create(t, m, "s", "s")
	write(t, w, &chunk.TextDelta{Delta: "one "}, &chunk.TextDelta{Delta: "two"})
	if err := m.EndStream(t.Context(), "s", nil); err != nil {
		t.Fatal(err)
	}
	all, err := m.GetAllChunks(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	end := all[len(all)-1].Sequence
	if err := logs.Store().(spool.Trimmer).Trim(t.Context(), "s", end-1, 0); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(types(all), func(t chunk.Type) bool { return t == chunk.TypeTextDelta })
	var got []chunk.Type
	for c, err := range m.CreateReader(t.Context(), "s") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.ChunkType())
	}
	if want := append([]chunk.Type{chunk.TypeTraceOmitted}, left...); !slices.Equal(got, want) {
		t.Errorf("the reader has %v, want %v", got, want)
	}
	r, err := m.CreateResumableReader(t.Context(), "s", 0)
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for c, err := range r.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.Chunk.ChunkType())
	}
	if want := append([]chunk.Type{chunk.TypeTraceOmitted}, left...); !slices.Equal(got, want) || r.CurrentSequence() != end || r.End() == nil {
		t.Errorf("the resumable reader has %v, want %v, and is at %d", got, want, r.CurrentSequence())
	}
	if stored, err := m.GetAllChunks(t.Context(), "s"); err != nil || !slices.Equal(types(stored), left) {
		t.Errorf("stored are %v, %v", types(stored), err)
	}
	elsewhere := spool.NewLogs(logs.Store(), nil) // a process that has nothing of it in memory
	defer elsewhere.Close()
	if r, err = stream.NewManager(elsewhere, nil).CreateResumableReader(t.Context(), "s", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, spool.ErrTrimmed) {
		t.Errorf("from inside the trimmed trace: %v", err)
	}
}

// A branch that is half copied is not there, for any way to read it.
func TestHalfCopiedBranch(t *testing.T) {
	m, logs := newManager(t)
	lease, err := logs.Store().(spool.Leaser).Claim(t.Context(), spool.Claim{Owner: "copier", Session: "s", Force: true, Hidden: true})
	if err != nil {
		t.Fatal(err)
	}
	half := chunk.Record{Type: chunk.TypeUserMessage, Agent: "s", Data: []byte(`{"type":"user_message","agentId":"s","commandId":"c","message":{"id":"m","role":"user","parts":[]}}`)}
	if _, err := logs.Store().Append(t.Context(), spool.Append{Session: "s", Epoch: lease.Epoch, Records: []chunk.Record{half}}); err != nil {
		t.Fatal(err)
	}
	read := map[string]func() (any, error){
		"all":  func() (any, error) { return m.GetAllChunks(t.Context(), "s") },
		"from": func() (any, error) { return m.GetChunksFromSequence(t.Context(), "s", 1) },
		"step": func() (any, error) { return m.GetChunksFromStep(t.Context(), "s", 0) },
	}
	for name, f := range read {
		if got, err := f(); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for c, err := range m.CreateReader(t.Context(), "s") {
		if !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("a reader has %v, %v", c, err)
		}
	}
	var r *stream.ResumableReader
	if r, err = m.CreateResumableReader(t.Context(), "s", 0); r != nil || err != nil {
		t.Errorf("a resumable reader: %v, %v", r, err)
	}
	if i, err := m.GetStreamInfo(t.Context(), "s"); i != nil || err != nil {
		t.Errorf("info: %+v, %v", i, err)
	}
}
