package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

type event struct {
	name, data, id string
	cut            bool
}

func readAll(src io.Reader, o *ReaderOptions) (events []event, retry time.Duration, err error) {
	r := NewReader(src, o)
	for {
		e, err := r.Next()
		if err != nil {
			if _, again := r.Next(); again != err {
				return events, 0, fmt.Errorf("%w, and then %v", err, again)
			}
			return events, r.Retry(), err
		}
		events = append(events, event{string(e.Name), string(e.Data), string(e.ID), e.Unterminated})
	}
}

var readerTests = []struct {
	name, in string
	want     []event
	last     []event // the unterminated one, with KeepLast
	retry    time.Duration
}{
	{name: "nothing"},
	{name: "one", in: "data: a\n\n", want: []event{{data: "a"}}},
	{name: "crlf", in: "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", want: []event{{data: "a\nb"}, {data: "c"}}},
	{name: "cr", in: "data: a\rdata: b\r\rdata: c\r\r", want: []event{{data: "a\nb"}, {data: "c"}}},
	{name: "mixed ends", in: "data: a\r\rdata: b\n\r\ndata: c\r\n\n\rdata: d\n\r", want: []event{{data: "a"}, {data: "b"}, {data: "c"}, {data: "d"}}},
	{name: "bom", in: "\xEF\xBB\xBFdata: a\n\n", want: []event{{data: "a"}}},
	{name: "only one bom", in: "\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\ndata: b\n\n", want: []event{{data: "b"}}},
	{name: "bom later", in: "data: a\n\n\xEF\xBB\xBFdata: b\n\n", want: []event{{data: "a"}}},
	{name: "bom before blank", in: "\xEF\xBB\xBF\ndata: b\n\n", want: []event{{data: "b"}}},
	{name: "comments", in: ": hi\n:\n\ndata: a\n: in between\ndata: b\n\n:\n\n", want: []event{{data: "a\nb"}}},
	{name: "space", in: "data:a\n\ndata:  b\n\ndata: \n\ndata\n\ndata:\n\n", want: []event{{data: "a"}, {data: " b"}, {}, {}, {}}},
	{name: "empty lines of data", in: "data\ndata\n\n", want: []event{{data: "\n"}}},
	{name: "event", in: "event: x\ndata: a\n\ndata: b\n\nevent: y\n\ndata: c\n\nevent: y\nevent\ndata: d\n\n",
		want: []event{{name: "x", data: "a"}, {data: "b"}, {data: "c"}, {data: "d"}}},
	{name: "id", in: "id: 1\ndata: a\n\ndata: b\n\nid: 2\n\ndata: c\n\nid\ndata: d\n\nid: 3\x00\ndata: e\n\n",
		want: []event{{data: "a", id: "1"}, {data: "b", id: "1"}, {data: "c", id: "2"}, {data: "d"}, {data: "e"}}},
	{name: "retry", in: "retry: 10\nretry: 1x\nretry: -1\nretry:\ndata: a\n\n", want: []event{{data: "a"}}, retry: 10 * time.Millisecond},
	{name: "retry for ever", in: "retry: 99999999999999999999999\n\n", retry: 100_000 * time.Second},
	{name: "unknown", in: "foo: 1\nData: x\n data: y\ndatax: z\ndata: a\n\n", want: []event{{data: "a"}}},
	{name: "colons", in: "data:: a: b\n\n", want: []event{{data: ": a: b"}}},
	{name: "utf-8", in: "data: žluť 🧵\u2028\n\n", want: []event{{data: "žluť 🧵\u2028"}}},
	{name: "ended before the blank line", in: "data: a\n\nid: 9\ndata: b\n", want: []event{{data: "a"}}, last: []event{{data: "b", id: "9", cut: true}}},
	{name: "ended in a line", in: "data: a\n\ndata: b\ndata: c", want: []event{{data: "a"}}, last: []event{{data: "b\nc", cut: true}}},
	{name: "ended in a field name", in: "data: a\n\nda", want: []event{{data: "a"}}},
	{name: "only bom and a line", in: "\xEF\xBB\xBFdata: a", last: []event{{data: "a", cut: true}}},
}

func TestReader(t *testing.T) {
	for _, tt := range readerTests {
		for name, src := range map[string]io.Reader{
			"whole":        strings.NewReader(tt.in),
			"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
			"data and end": iotest.DataErrReader(strings.NewReader(tt.in)),
		} {
			got, retry, err := readAll(src, nil)
			if err != io.EOF || !slices.Equal(got, tt.want) || retry != tt.retry {
				t.Errorf("%s, %s: %+v, retry %v, %v\nwant %+v, retry %v", tt.name, name, got, retry, err, tt.want, tt.retry)
			}
		}
		got, _, err := readAll(iotest.HalfReader(strings.NewReader(tt.in)), &ReaderOptions{KeepLast: true})
		if want := slices.Concat(tt.want, tt.last); err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("%s, keeping the last: %+v, %v\nwant %+v", tt.name, got, err, want)
		}
	}
}

// A line that ends in CR is complete; waiting for an LF would hold the event back.
func TestReaderDoesNotWaitAfterCR(t *testing.T) {
	pr, pw := io.Pipe()
	r := NewReader(pr, nil)
	go pw.Write([]byte("data: a\r\r"))
	if e, err := r.Next(); err != nil || string(e.Data) != "a" {
		t.Fatalf("%q, %v", e.Data, err)
	}
	go func() {
		pw.Write([]byte("\ndata: b\r\n\r"))
		pw.Close()
	}()
	if e, err := r.Next(); err != nil || string(e.Data) != "b" {
		t.Fatalf("%q, %v", e.Data, err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatal(err)
	}
}

func TestReaderLimits(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int
		err  error
	}{
		{"data: 7890\n\ndata: 78901\n\n", 1, ErrLineTooLong},
		{"data: 7890\n\n: 456789012", 1, ErrLineTooLong},
		{"data: 7890\n\n: 456789012" + strings.Repeat("x", 10_000), 1, ErrLineTooLong},
		{"data: 7890\r\n\r\n", 1, io.EOF},
		{"data:67890\ndata:2345\n\n", 1, io.EOF},
		{"data:67890\ndata:23456\n\n", 0, ErrEventTooLong},
	} {
		for _, src := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
			got, _, err := readAll(src, &ReaderOptions{MaxLine: 10, KeepLast: true})
			if len(got) != tt.want || err != tt.err {
				t.Errorf("%.40q: %+v, %v; want %d events, %v", tt.in, got, err, tt.want, tt.err)
			}
		}
	}
	long := strings.Repeat("x", 1<<20)
	got, _, err := readAll(strings.NewReader("data: "+long+"\n\n"), nil)
	if err != io.EOF || len(got) != 1 || got[0].data != long {
		t.Errorf("a long line: %d events, %v", len(got), err)
	}
}

func TestReaderSourceErrors(t *testing.T) {
	boom := errors.New("boom")
	src := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(boom))
	got, _, err := readAll(src, &ReaderOptions{KeepLast: true})
	if err != boom || !slices.Equal(got, []event{{data: "a"}}) {
		t.Errorf("%+v, %v: an event cut by a failure must not count", got, err)
	}
	if _, _, err := readAll(nothing{}, nil); err != io.ErrNoProgress {
		t.Errorf("no progress: %v", err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func TestReaderDoesNotAllocate(t *testing.T) {
	src := &repeat{text: []byte("event: message\nid: 12\ndata: {\"a\":1}\ndata: {\"b\":2}\n: comment\n\n")}
	r := NewReader(src, nil)
	n := testing.AllocsPerRun(1000, func() {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}

type repeat struct {
	text []byte
	at   int
}

func (r *repeat) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], r.text[r.at:])
		n += c
		r.at = (r.at + c) % len(r.text)
	}
	return n, nil
}

// pieces cuts its input at random, with empty reads in between.
type pieces struct {
	rest []byte
	rnd  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.rnd.IntN(9))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func FuzzReader(f *testing.F) {
	for i, tt := range readerTests {
		f.Add([]byte(tt.in), uint64(i), 20, i%2 == 0)
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, limit int, keep bool) {
		o := &ReaderOptions{MaxLine: 1 + limit&0xff, KeepLast: keep}
		want, wantRetry, wantErr := readAll(bytes.NewReader(in), o)
		for name, src := range map[string]io.Reader{
			"byte by byte": iotest.OneByteReader(bytes.NewReader(in)),
			"pieces":       &pieces{in, rand.New(rand.NewPCG(seed, 1))},
		} {
			got, retry, err := readAll(src, o)
			if !reflect.DeepEqual(got, want) || retry != wantRetry || err != wantErr {
				t.Errorf("%s: %+v, %v, %v; whole: %+v, %v, %v", name, got, retry, err, want, wantRetry, wantErr)
			}
		}
		for _, e := range want {
			if len(e.data) > o.MaxLine || strings.ContainsAny(e.name+e.id, "\r\n") || strings.Contains(e.data, "\r") {
				t.Errorf("event %+v", e)
			}
		}
		if !keep {
			return
		}
		// Keeping the last event changes nothing before it.
		o.KeepLast = false
		strict, _, strictErr := readAll(bytes.NewReader(in), o)
		if n := len(strict); len(want)-n > 1 || len(want) < n || !slices.Equal(want[:n], strict) || len(want) > n && !want[n].cut {
			t.Errorf("keeping the last: %+v, without: %+v (%v)", want, strict, strictErr)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	line := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
	r := NewReader(&repeat{text: []byte(line)}, nil)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
