package merlin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/wire/merlin"
)

// script is a stream that gives each batch at its time, and then ends.
type script struct {
	start     time.Time
	batches   []batch
	replaying bool
	end       error
}

type batch struct {
	at     time.Duration
	events []string // of the content, or whole frames
	replay bool
}

func (s *script) Replaying() bool { return s.replaying }

func (s *script) Next(ctx context.Context) ([]byte, error) {
	if len(s.batches) == 0 {
		return nil, s.end
	}
	b := s.batches[0]
	if d := time.Until(s.start.Add(b.at)); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.batches = s.batches[1:]
	s.replaying = b.replay
	var out []byte
	for _, e := range b.events {
		if strings.HasPrefix(e, "event: ") || strings.HasPrefix(e, "id: ") {
			out = append(out, e...)
		} else {
			out = append(out, content(e)...)
		}
	}
	return out, nil
}

// content is a V1 message.
func content(text string) string {
	data, _ := json.Marshal(text)
	return `event: message` + "\n" + `data: {"content":` + string(data) + "}\n\n"
}

// said is what a client got and when.
type said struct {
	at   time.Duration
	what string
}

// listen reads a paced stream to its end. Reads end after every patience and
// begin again, as the server's do.
func listen(t *testing.T, s *script, table []merlin.Pace, patience time.Duration) []said {
	t.Helper()
	s.start = time.Now()
	p := merlin.Paced(s, table, time.Now)
	var list []said
	for {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		data, err := p.Next(ctx)
		cancel()
		r := sse.NewReader(strings.NewReader(string(data)), nil)
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			var m struct{ Content *string }
			what := string(e.Name)
			if json.Unmarshal(e.Data, &m) == nil && m.Content != nil {
				what = *m.Content
			}
			if len(e.ID) > 0 {
				what += "#" + string(e.ID)
			}
			list = append(list, said{time.Since(s.start), what})
		}
		switch {
		case err == nil, errors.Is(err, context.DeadlineExceeded):
		case errors.Is(err, s.end):
			return list
		default:
			t.Fatal(err)
		}
	}
}

const ms = time.Millisecond

var errCut = errors.New("cut")

func times(n int, s string) []string {
	var list []string
	for range n {
		list = append(list, s)
	}
	return list
}

func TestPacing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		batches []batch
		table   []merlin.Pace
		want    []said
	}{
		{"nothing waits", []batch{{0, []string{"Hello, you!"}, false}}, merlin.DefaultPacing(),
			[]said{{0, "Hello"}, {15 * ms, ", "}, {30 * ms, "yo"}, {45 * ms, "u!"}}},
		{"a few wait", []batch{{0, []string{"abcdefgh", "x", "y"}, false}}, merlin.DefaultPacing(),
			[]said{{0, "abcde"}, {10 * ms, "fgh"}, {20 * ms, "x"}, {30 * ms, "y"}}},
		{"several wait", []batch{{0, append([]string{"abcdefghijklm"}, times(7, "z")...), false}}, merlin.DefaultPacing(),
			[]said{{0, "abcde"}, {5 * ms, "fghi"}, {10 * ms, "jklm"}, {15 * ms, "z"}, {20 * ms, "z"}, {25 * ms, "z"}, {35 * ms, "z"}, {45 * ms, "z"}, {55 * ms, "z"}, {65 * ms, "z"}}},
		{"many wait", []batch{{0, append([]string{"abcdefghijklm"}, times(10, "")...), false}}, merlin.DefaultPacing(), nil},
		{"characters, not bytes", []batch{{0, []string{"日本語のお茶🍵!"}, false}}, merlin.DefaultPacing(),
			[]said{{0, "日本語のお"}, {15 * ms, "茶🍵"}, {30 * ms, "!"}}},
		{"the end and progress do not wait", []batch{{0, []string{"abcdefg", "event: progress\ndata: {}\n\n", "event: end\ndata: {}\n\n"}, false}}, merlin.DefaultPacing(),
			[]said{{0, "abcde"}, {10 * ms, "fg"}, {10 * ms, "progress"}, {10 * ms, "end"}}},
		{"a marker is written whole", []batch{{0, []string{"abcdefg", "[citation: 1: 12]", "h"}, false}}, merlin.DefaultPacing(),
			[]said{{0, "abcde"}, {10 * ms, "fg"}, {10 * ms, "[citation: 1: 12]"}, {20 * ms, "h"}}},
		{"the last slice has the id", []batch{{0, []string{"id: 7\n" + content("abcdefg")}, false}}, merlin.DefaultPacing(),
			[]said{{0, "abcde"}, {15 * ms, "fg#7"}}},
		{"a newcomer is brought to the present at once", []batch{{0, []string{"event: INIT_MESSAGE_CONTENT\ndata: {}\n\n", "a long text that was written before"}, true}, {0, []string{"abcdefg"}, false}}, merlin.DefaultPacing(),
			[]said{{0, "INIT_MESSAGE_CONTENT"}, {0, "a long text that was written before"}, {0, "abcde"}, {15 * ms, "fg"}}},
		{"what comes during a pause is seen", []batch{{0, []string{"abcdefghij"}, false}, {7 * ms, []string{"x"}, false}, {8 * ms, []string{"y"}, false}}, merlin.DefaultPacing(),
			// At 15 ms two wait, so that the next slice but one is longer.
			[]said{{0, "abcde"}, {15 * ms, "fg"}, {25 * ms, "hij"}, {35 * ms, "x"}, {45 * ms, "y"}}},
		{"a pause outlives what comes late", []batch{{0, []string{"abcdefg"}, false}, {100 * ms, []string{"hi"}, false}}, merlin.DefaultPacing(),
			[]said{{0, "abcde"}, {15 * ms, "fg"}, {100 * ms, "hi"}}},
		{"as described", []batch{{0, []string{"abcdefg", "h"}, false}}, merlin.PacingAsDescribed(),
			[]said{{0, "abcde"}, {5 * ms, "fg"}, {10 * ms, "h"}}},
	} {
		if tt.want == nil { // ten frames and more: five characters, no pause
			tt.batches[0].events = append([]string{"abcdefghijklm"}, times(10, "event: progress\ndata: {}\n\n")...)
			tt.want = []said{{0, "abcde"}, {0, "fghij"}, {0, "klm"}}
			for range 10 {
				tt.want = append(tt.want, said{0, "progress"})
			}
		}
		for _, patience := range []time.Duration{time.Hour, 4 * ms} {
			t.Run(fmt.Sprint(tt.name, " ", patience), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := listen(t, &script{batches: append([]batch(nil), tt.batches...), end: io.EOF}, tt.table, patience)
					if !reflect.DeepEqual(got, tt.want) {
						t.Errorf("got %v\nwant %v", got, tt.want)
					}
				})
			})
		}
	}
}

// The backlog alone decides how long an answer takes: 1,000 frames that are
// there take no time but for the last few, and nothing is lost on the way.
func TestPacingBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{batches: []batch{{0, times(1000, "sixteen letters!"), false}}, end: errCut}
		got := listen(t, s, merlin.DefaultPacing(), time.Hour)
		var b strings.Builder
		for _, g := range got {
			b.WriteString(g.what)
		}
		if want := strings.Repeat("sixteen letters!", 1000); b.String() != want {
			t.Errorf("%d characters arrived of %d", b.Len(), len(want))
		}
		if last := got[len(got)-1].at; last < 100*ms || last > time.Second {
			t.Errorf("it took %v", last)
		}
	})
}

// Replaying says so only of reads that hold nothing else.
func TestPacingReplays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), end: io.EOF, batches: []batch{
			{0, []string{"event: INIT_MESSAGE_CONTENT\ndata: {}\n\n", "written before"}, true},
			{0, []string{"event: progress\ndata: {}\n\n", "abcdefg"}, false}, {0, nil, true}, {0, []string{"also before"}, true},
		}}
		p := merlin.Paced(s, merlin.DefaultPacing(), time.Now)
		if p.Replaying() {
			t.Error("it replays before the first read")
		}
		// The slice "fg" and what is replayed behind it are one read.
		for i, want := range []bool{true, false, false} {
			if data, err := p.Next(t.Context()); len(data) == 0 || p.Replaying() != want {
				t.Errorf("read %d is %q, %v: replaying is %v", i+1, data, err, p.Replaying())
			}
		}
	})
}
