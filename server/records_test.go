package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/frontend"
)

func (k *kit) records(session, query string) (page chat.RecordsPage) {
	k.Helper()
	if err := json.Unmarshal(k.status(200, "GET", "/api/chat/"+session+"/records?"+query, ""), &page); err != nil {
		k.Fatal(err)
	}
	return page
}

// all reads all pages of a query.
func (k *kit) allRecords(session, query string, limit int) (all []chat.StoredRecord) {
	k.Helper()
	for after := uint64(0); ; {
		page := k.records(session, fmt.Sprintf("%s&limit=%d&after=%d", query, limit, after))
		if len(page.Records) > limit || page.HasMore && len(page.Records) < limit {
			k.Fatalf("%d records of %d after %d, more: %v", len(page.Records), limit, after, page.HasMore)
		}
		all, after = append(all, page.Records...), page.Next
		if !page.HasMore {
			return all
		}
	}
}

// Records come as they are stored, in pages of any size, of all classes or kept only.
func TestRecords(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "a", "b", "c")
	k.turn("s", "u2", "d")
	want := k.log("s")
	for _, limit := range []int{1, 3, 1000} {
		got := k.allRecords("s", "", limit)
		if len(got) != len(want) {
			t.Fatalf("%d records, want %d", len(got), len(want))
		}
		for i, r := range got {
			if w := want[i]; r.Sequence != w.Seq || r.Time != w.Time || r.Class != w.Class.String() || string(r.Chunk) != string(w.Data) || r.Frames != nil {
				t.Errorf("record %d: %+v, want %+v", i, r, w)
			}
		}
		var kept []uint64
		for _, w := range want {
			if w.Class == chunk.Kept {
				kept = append(kept, w.Seq)
			}
		}
		var gotKept []uint64
		for _, r := range k.allRecords("s", "kept=1", limit) {
			gotKept = append(gotKept, r.Sequence)
		}
		if fmt.Sprint(gotKept) != fmt.Sprint(kept) || len(kept) == len(want) {
			t.Errorf("kept: %v, want %v", gotKept, kept)
		}
	}
	head := want[len(want)-1].Seq
	if page := k.records("s", fmt.Sprint("after=", head)); len(page.Records) != 0 || page.HasMore || page.Head != head || page.Next != head {
		t.Errorf("at the head: %+v", page)
	}
	k.problem(400, "invalid", "GET", "/api/chat/s/records?wire=none", "")
	k.problem(400, "invalid", "GET", "/api/chat/s/records?wire=native&kept=1", "")
	k.problem(400, "invalid", "GET", "/api/chat/s/records?kept=2", "")
	k.problem(400, "invalid", "GET", "/api/chat/s/records?after=-1", "")
	k.problem(404, "not_found", "GET", "/api/chat/none/records", "")
	k.problem(409, "cursor_ahead", "GET", fmt.Sprintf("/api/chat/s/records?after=%d", head+1), "")
}

// The frames of a wire are those of its streams, whichever page they are on.
func TestRecordsAsFrames(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	streamed := append(k.turn("s", "u1", "a", "b", "c"), k.turn("s", "u2", "d", "e")...)
	native := k.stream("GET", "/stream/s", "").all()
	for name, want := range map[string][]event{"aisdk": streamed, "native": native[:len(native)-1]} { // without its end
		for _, limit := range []int{1, 4, 1000} {
			var frames strings.Builder
			for _, r := range k.allRecords("s", "wire="+name, limit) {
				if r.Frames == nil {
					t.Errorf("%s: record %d has no frames", name, r.Sequence)
				}
				frames.WriteString(strings.Join(r.Frames, ""))
			}
			var got []event
			for r := sse.NewReader(strings.NewReader(frames.String()), nil); ; {
				e, err := r.Next()
				if err != nil {
					break
				}
				got = append(got, event{Data: string(e.Data)})
			}
			if datas(got) != datas(want) {
				t.Errorf("%s, %d to a page:\n%s\nwant\n%s", name, limit, datas(got), datas(want))
			}
		}
	}
}

// Where trace was trimmed, the kept records remain, and frames that depend on trace are missing.
func TestRecordsOfATrimmedLog(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "a", "b")
	before := k.log("s")
	floor := before[len(before)-1].Seq
	k.turn("s", "u2", "c")
	after := k.log("s")[len(before):]
	if err := k.store.Trim(t.Context(), "s", floor, 0); err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for _, r := range before {
		if r.Class == chunk.Kept {
			want = append(want, r.Seq)
		}
	}
	kept := len(want)
	for _, r := range after {
		want = append(want, r.Seq)
	}
	for _, limit := range []int{1, 2, 1000} {
		var got []uint64
		for i, r := range k.allRecords("s", "wire=aisdk", limit) {
			got = append(got, r.Sequence)
			if (i < kept) != (r.Frames == nil) {
				t.Errorf("record %d of %d kept: frames %v", i, kept, r.Frames)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// A snapshot of a position is what the present was when the log ended there.
func TestSnapshotAtAPosition(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	k.turn("s", "u1", "a", "b")
	present := k.snapshot("s")
	at := present.StreamSequence
	k.turn("s", "u2", "c")
	var past frontend.Snapshot
	path := "/api/chat/s/snapshot?at="
	if err := json.Unmarshal(k.status(200, "GET", path+fmt.Sprint(at), ""), &past); err != nil {
		t.Fatal(err)
	}
	if past.StreamSequence != at || past.Status != chunk.StatusEnded || past.Reason != frontend.ReasonPosition || past.Then == nil || past.Then.Status != present.Status || past.Then.Reason != present.Reason {
		t.Errorf("%+v", past)
	}
	if got, want := fmt.Sprintf("%+v", past.Messages), fmt.Sprintf("%+v", present.Messages); got != want {
		t.Errorf("messages:\n%s\nwant\n%s", got, want)
	}
	// Inside an answer it has what was written by then, and says that its run was open.
	var half frontend.Snapshot
	for _, r := range k.log("s") {
		if r.Type == chunk.TypeTextDelta {
			if err := json.Unmarshal(k.status(200, "GET", path+fmt.Sprint(r.Seq), ""), &half); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if m := half.Messages[len(half.Messages)-1]; half.Then.Status != chunk.StatusActive || m.Role != "assistant" || m.Parts[len(m.Parts)-1].Text != "a" {
		t.Errorf("%+v", half)
	}
	k.problem(409, "cursor_ahead", "GET", path+"100000", "")
	k.problem(400, "invalid", "GET", path+"3&checkpoint=c", "")
	k.problem(400, "invalid", "GET", path+"x", "")
	k.problem(404, "not_found", "GET", "/api/chat/none/snapshot?at=1", "")
}
