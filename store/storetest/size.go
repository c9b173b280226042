package storetest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// big returns a record whose Data has exactly n bytes.
func big(class chunk.Class, n int) chunk.Record {
	const frame = `{"type":"user_message","delta":""}`
	r := rec(class, "")
	r.Data = []byte(frame[:len(frame)-2] + strings.Repeat("x", n-len(frame)) + frame[len(frame)-2:])
	return r
}

// Promise: what is within the limits fits, what is beyond is ErrTooLarge.
var sizeChecks = []check{
	{"LargestRecord", func(t *testing.T, x *suite) {
		s := x.open(t)
		r := big(chunk.Kept, chunk.MaxRecordBytes)
		put(t, s, spool.Append{Session: "s", Records: []chunk.Record{r}})
		got := log(t, s, "s", 0, 10)
		if len(got) != 1 || string(got[0].Data) != string(r.Data) {
			t.Fatal("the largest record did not come back as it was")
		}
	}},
	{"LargestAppend", func(t *testing.T, x *suite) {
		s := x.open(t)
		batch := make([]chunk.Record, spool.MaxAppendRecords)
		for i := range batch {
			batch[i] = big(chunk.Trace, spool.MaxAppendBytes/spool.MaxAppendRecords)
		}
		res := put(t, s, spool.Append{Session: "s", Records: batch})
		if res.Last != spool.MaxAppendRecords {
			t.Fatalf("append: %+v", res)
		}
		halves := []chunk.Record{big(chunk.Kept, spool.MaxAppendBytes/2), big(chunk.Kept, spool.MaxAppendBytes/2)}
		put(t, s, spool.Append{Session: "s", Records: halves})
		if n := len(log(t, s, "s", 0, 400)); n != spool.MaxAppendRecords+2 {
			t.Fatalf("%d records came back", n)
		}
	}},
	{"OpaqueBytes", func(t *testing.T, x *suite) {
		s := x.open(t)
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		var batch []chunk.Record
		for _, data := range [][]byte{every, {0}, {0, 0, 'a', 0}, {0xff, 0xfe}, []byte("\xed\xa0\x80"), []byte("x\x00y"), []byte("'\"\\\r\n"), []byte(" 1 "), []byte("null"), {}} {
			r := rec(chunk.Kept, "")
			r.Data = data
			batch = append(batch, r)
		}
		put(t, s, spool.Append{Session: "s", Records: batch})
		for what, got := range map[string][]chunk.Record{"Read": log(t, s, "s", 0, 100), "ReadKept": keptLog(t, s, "s", 0, 100)} {
			for i, r := range got {
				if want := batch[i].Data; !bytes.Equal(r.Data, want) {
					t.Fatalf("%s: record %d came back as %q, want %q", what, r.Seq, r.Data, want)
				}
			}
			if len(got) != len(batch) {
				t.Fatalf("%s: %d records, want %d", what, len(got), len(batch))
			}
		}
	}},
	{"BeyondTheLimits", func(t *testing.T, x *suite) {
		s := x.open(t)
		for name, batch := range map[string][]chunk.Record{
			"record": {big(chunk.Kept, chunk.MaxRecordBytes+1)},
			"bytes":  {big(chunk.Kept, spool.MaxAppendBytes/2), big(chunk.Kept, spool.MaxAppendBytes/2), rec(chunk.Kept, "")},
			"count":  recs(chunk.Trace, "x", spool.MaxAppendRecords+1),
		} {
			_, err := s.Append(limit(t), spool.Append{Session: "s", Records: batch})
			if err == nil {
				t.Fatalf("too many in %s: accepted", name)
			}
			wantErr(t, err, chunk.ErrTooLarge)
		}
		_, err := s.Head(limit(t), "s")
		wantErr(t, err, spool.ErrNotFound)
	}},
	{"Senseless", func(t *testing.T, x *suite) {
		s := x.open(t)
		for name, a := range map[string]spool.Append{
			"no session":      {Records: recs(chunk.Kept, "x", 1)},
			"command settles": {Session: "s", Records: recs(chunk.Kept, "x", 1), Settle: &spool.Settle{}},
			"empty command":   {Session: "s", Row: spool.Row{Title: "x"}},
		} {
			_, err := s.Append(limit(t), a)
			if err == nil {
				t.Fatalf("%s: accepted", name)
			}
			wantErr(t, err, chunk.ErrInvalid)
		}
	}},
}
