package frontend

import (
	"testing"

	"github.com/spool-run/spool/chunk"
)

// FuzzParseResume: whatever comes, it is a resume that makes sense or an error with
// a code.
func FuzzParseResume(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"mode":"continue","runId":"r"}`, `{"mode":"with_message","message":"hi"}`, `{"mode":"retry","commandId":"c"}`,
		`{"mode":"from_checkpoint","checkpointId":"cp","message":{"id":"a/b","role":"user","parts":[{"type":"text","text":"x"}]}}`,
		`{"mode":"with_message","message":{"parts":[]}}`, `{"message":{"role":"system"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := ParseResume(data)
		if err == nil {
			err = o.Check()
			if err != nil {
				t.Fatalf("what was read as %+v makes no sense: %v", o, err)
			}
		}
		if err != nil && chunk.CodeOf(err) == "" {
			t.Fatalf("%v has no code", err)
		}
	})
}
