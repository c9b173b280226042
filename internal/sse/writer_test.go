package sse

import (
	"net/http"
	"testing"
)

func TestAppendEvent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ id, data, want string }{
		{"42", `{"a":1}`, "id: 42\ndata: {\"a\":1}\n\n"},
		{"", `x`, "data: x\n\n"},
		{"", ``, "data: \n\n"},
		{"p3-42.2", "a\nb\r\nc\rd\n", "id: p3-42.2\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"4\n2", "x", "data: x\n\n"},
		{"4\x002", "x", "data: x\n\n"},
	} {
		if got := string(AppendEvent([]byte("<"), tt.id, []byte(tt.data))); got != "<"+tt.want {
			t.Errorf("AppendEvent(%q, %q) = %q, want %q", tt.id, tt.data, got, tt.want)
		}
	}
	for _, tt := range []struct{ name, want string }{
		{"message", "id: 1\nevent: message\ndata: x\n\n"},
		{"", "id: 1\ndata: x\n\n"},
		{"a\nb", "id: 1\ndata: x\n\n"},
	} {
		if got := string(AppendNamedEvent(nil, tt.name, "1", []byte("x"))); got != tt.want {
			t.Errorf("AppendNamedEvent(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAppendOther(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		string(AppendComment(nil, "")):            ":\n\n",
		string(AppendComment(nil, "hi\r\nyo\rx")): ": hi\n: yo x\n\n",
		string(AppendRetry(nil, 1500)):            "retry: 1500\n\n",
		string(AppendPadding(nil, 3)):             ":   \n\n",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	h := http.Header{}
	SetHeaders(h)
	for key, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
		if got := h.Get(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}

func TestAppendEventAllocatesNothing(t *testing.T) {
	buf, data := make([]byte, 0, 1024), []byte(`{"type":"text_delta"}`)
	if n := testing.AllocsPerRun(100, func() { buf = AppendEvent(buf[:0], "42", data) }); n != 0 {
		t.Errorf("AppendEvent allocates %v times", n)
	}
}
