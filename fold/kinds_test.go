package fold

import (
	"slices"
	"testing"

	"github.com/spool-run/spool/chunk"
)

// Every kind of chunk is in the table, or is known to change neither the session nor
// the message.
func TestEveryKindIsFolded(t *testing.T) {
	t.Parallel()
	silent := []chunk.Type{chunk.TypeUsage, chunk.TypeRunInterrupted, chunk.TypeRunPaused, chunk.TypeRunResumed}
	for _, typ := range chunk.Types() {
		k, known := kinds[typ]
		switch {
		case known == slices.Contains(silent, typ):
			t.Errorf("%s: in the table %v, silent %v", typ, known, !known)
		case known && k.session == nil && k.message == nil:
			t.Errorf("the line of %s says nothing", typ)
		case known && chunk.IsCommand(typ) && k.session == nil:
			t.Errorf("the command %s gets no verdict", typ)
		}
	}
	if want := len(chunk.Types()) - len(silent); len(kinds) != want {
		t.Errorf("%d lines, want %d", len(kinds), want)
	}
}
