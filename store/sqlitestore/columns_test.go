package sqlitestore

import (
	"bytes"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Whatever a record's type, agent and class are, a page has them as they were appended.
func TestReadTellsApart(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "log.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var want []chunk.Record
	for _, typ := range []chunk.Type{chunk.TypeTextDelta, chunk.TypeCustom, chunk.TypeUserMessage, "0", "", "later", chunk.TypeTextDelta} {
		for _, agent := range []string{"s", "", "s.1", "s.2", "s"} {
			for _, class := range []chunk.Class{chunk.Kept, chunk.Trace} {
				want = append(want, chunk.Record{Seq: uint64(len(want) + 1), Type: typ, Agent: agent, Time: int64(len(want)) << 40, Class: class, Data: []byte(`{"type":"x"}`)})
			}
		}
	}
	if _, err := s.Append(t.Context(), spool.Append{Session: "s", Records: want}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Read(t.Context(), "s", 0, 0); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
	var kept []chunk.Record
	for _, r := range want {
		if r.Class == chunk.Kept {
			kept = append(kept, r)
		}
	}
	if got, _, err := s.ReadKept(t.Context(), "s", spool.KeptQuery{}); err != nil || !reflect.DeepEqual(got, kept) {
		t.Errorf("read %v, %v", got, err)
	}
}

// Records of every size come back as they were, and appending to the data of one changes no
// other.
func TestReadSizes(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "log.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var want []chunk.Record
	for n := range 100 {
		for _, size := range []int{n, sharedBytes - 1 + n%3, 2 * sharedBytes} {
			data := append(append([]byte(`"`), bytes.Repeat([]byte{'a' + byte(n%26)}, size)...), '"')
			want = append(want, chunk.Record{Seq: uint64(len(want) + 1), Type: "x", Class: chunk.Class(n % 2), Data: data})
		}
	}
	if _, err := s.Append(t.Context(), spool.Append{Session: "s", Records: want}); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.Read(t.Context(), "s", 0, 0)
	for i := range got {
		_ = append(got[i].Data, "overwritten"...)
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%d records, %v: not those that were appended", len(got), err)
	}
}
