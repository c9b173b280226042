package sqlitestore

import (
	"bytes"
	"fmt"
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

// A page is the same wherever the table has its rows: together, or between those of other
// sessions.
func TestReadAcrossSessions(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "log.db"), &Options{Sync: SyncNormal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	want := map[string][]chunk.Record{}
	add := func(session string, n int) {
		batch := make([]chunk.Record, n)
		for i := range batch {
			seq := uint64(len(want[session]) + 1)
			batch[i] = chunk.Record{Seq: seq, Type: "x", Agent: session, Class: chunk.Class(seq % 2), Data: fmt.Appendf(nil, `"%s %d"`, session, seq)}
			want[session] = append(want[session], batch[i])
		}
		if _, err := s.Append(t.Context(), spool.Append{Session: session, Records: batch}); err != nil {
			t.Fatal(err)
		}
	}
	add("gone", 10)
	for i := range 12 {
		add("a", 40)
		add("b", i+1)
		add("c", 1)
	}
	if err := s.Delete(t.Context(), "c"); err != nil { // its rows leave gaps
		t.Fatal(err)
	}
	add("a", 100)
	add("d", 100)
	if err := s.Trim(t.Context(), "a", 200, 100); err != nil {
		t.Fatal(err)
	}
	delete(want, "c")
	for session, all := range want {
		floor := 0
		if session == "a" {
			floor = 200
		}
		for after := floor; after <= len(all); after += 7 {
			for _, max := range []int{1, leastTogether, leastTogether + 1, 40, 0} {
				page := all[after:]
				if max > 0 {
					page = page[:min(max, len(page))]
				}
				got, _, err := s.Read(t.Context(), session, uint64(after), max)
				if err != nil || len(got) != len(page) || len(got) > 0 && !reflect.DeepEqual(got, page) {
					t.Fatalf("%s, %d after %d: %d records, %v", session, max, after, len(got), err)
				}
			}
		}
	}
}
