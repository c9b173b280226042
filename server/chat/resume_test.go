package chat

import (
	"testing"

	"github.com/spool-run/spool"
)

// FuzzParseResume: whatever comes, it is a resume or an error with a code, and
// what was read can be stored.
func FuzzParseResume(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"mode":"continue","runId":"r"}`, `{"mode":"with_message","message":"hi"}`, `{"mode":"retry","commandId":"c"}`,
		`{"mode":"from_checkpoint","checkpointId":"cp","message":{"id":"a/b","role":"user","parts":[{"type":"text","text":"x"}]}}`,
		`{"mode":"with_message","message":{"parts":[]}}`, `{"message":{"role":"system"}}`,
	} {
		f.Add([]byte(s))
	}
	d := &Deps{Logs: spool.NewLogs(nil, nil)}
	fold := spool.NewFold("s")
	for i, c := range []spool.Chunk{
		&spool.UserMessage{CommandID: "u", Message: spool.Message{ID: "u", Role: spool.RoleUser}},
		&spool.RunStarted{Base: spool.Base{RunID: "r"}, TurnID: "u", MessageID: "m", Mode: "start", Commands: []string{"u"}},
		&spool.CheckpointCreated{Base: spool.Base{RunID: "r"}, CheckpointID: "cp", StepCount: 1},
		&spool.RunSuspended{Base: spool.Base{RunID: "r"}, Kind: "interrupted"},
	} {
		fold.ApplyChunk(spool.Record{Seq: uint64(i) + 1, Type: c.ChunkType()}, c)
	}
	if fold.Interrupted() == nil {
		f.Fatal("the run is not interrupted")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := ParseResume(data)
		if err != nil {
			if spool.CodeOf(err) == "" {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		r, err := d.resumption(fold, o)
		if err != nil {
			if spool.CodeOf(err) == "" {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		if spool.CheckID(r.id) != nil || len(r.chunks) == 0 && !r.repeated {
			t.Fatalf("nothing to append: %+v", r)
		}
		for _, c := range r.chunks {
			if id := spool.CommandID(c); spool.CheckID(id) != nil {
				t.Fatalf("command id %q", id)
			}
			if _, err := spool.AppendChunk(nil, c); err != nil {
				t.Fatalf("%s cannot be stored: %v", c.ChunkType(), err)
			}
		}
	})
}
