package chat

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// FuzzResume: whatever is asked for, it is a resume or an error with a code, and
// what comes of it can be stored.
func FuzzResume(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"mode":"continue","runId":"r"}`, `{"mode":"with_message","message":{"role":"user","parts":[{"type":"text","text":"hi"}]}}`,
		`{"mode":"retry","commandId":"c"}`, `{"mode":"with_message","message":{"role":"user","parts":[]}}`, `{"message":{"role":"system"}}`,
		`{"mode":"from_checkpoint","checkpointId":"cp","message":{"id":"a/b","role":"user","parts":[{"type":"text","text":"x"}]}}`,
	} {
		f.Add([]byte(s))
	}
	d := &Deps{Logs: spool.NewLogs(nil, nil)}
	state := fold.New("s")
	for i, c := range []chunk.Chunk{
		&chunk.UserMessage{CommandID: "u", Message: chunk.Message{ID: "u", Role: chunk.RoleUser}},
		&chunk.RunStarted{Base: chunk.Base{RunID: "r"}, TurnID: "u", MessageID: "m", Mode: "start", Commands: []string{"u"}},
		&chunk.CheckpointCreated{Base: chunk.Base{RunID: "r"}, CheckpointID: "cp", StepCount: 1},
		&chunk.RunSuspended{Base: chunk.Base{RunID: "r"}, Kind: "interrupted"},
	} {
		state.ApplyChunk(chunk.Record{Seq: uint64(i) + 1, Type: c.ChunkType()}, c)
	}
	if state.Interrupted() == nil {
		f.Fatal("the run is not interrupted")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var o ResumeOptions
		if json.Unmarshal(data, &o) != nil {
			return
		}
		if err := o.Check(); err != nil {
			if chunk.CodeOf(err) == "" {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		r, err := d.resumption(state, o)
		if err != nil {
			if chunk.CodeOf(err) == "" {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		if chunk.CheckID(r.id) != nil || len(r.chunks) == 0 && !r.repeated {
			t.Fatalf("nothing to append: %+v", r)
		}
		for _, c := range r.chunks {
			if id := chunk.CommandID(c); chunk.CheckID(id) != nil {
				t.Fatalf("command id %q", id)
			}
			if _, err := chunk.Append(nil, c); err != nil {
				t.Fatalf("%s cannot be stored: %v", c.ChunkType(), err)
			}
		}
	})
}
