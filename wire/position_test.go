package wire

import (
	"net/http"
	"testing"

	"github.com/spool-run/spool"
)

func TestHeaderPosition(t *testing.T) {
	t.Parallel()
	seen := func(seq uint64) Position {
		return Position{Kind: Seen, Cursor: spool.Cursor{Seq: seq}}
	}
	snap := func(seq uint64) Position {
		return Position{Kind: Snapshot, Cursor: spool.Cursor{Seq: seq}}
	}
	for _, tt := range []struct {
		header [3]string // Last-Event-ID, X-Resume-From-Sequence, X-Resume-At
		want   Position
	}{
		{[3]string{}, Position{}},
		{[3]string{"3", "2", "1"}, seen(3)},
		{[3]string{"", "2", "1"}, snap(2)},
		{[3]string{"", "", "1"}, snap(1)},
		{[3]string{"-3", "2", ""}, snap(2)},
		{[3]string{"x", "1.1", "0x1"}, Position{}},
		{[3]string{"0", "", ""}, seen(0)},
	} {
		h := http.Header{}
		for i, name := range []string{HeaderLastEventID, HeaderResumeFrom, HeaderResumeAt} {
			if tt.header[i] != "" {
				h.Set(name, tt.header[i])
			}
		}
		if got := HeaderPosition(h); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.header, got, tt.want)
		}
	}
}
