package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/server"
)

// inBubble2 is inBubble over HTTP/2.
func inBubble2(t *testing.T, o *server.Options, test func(k *kit)) {
	inBubbleAs(t, o, func(k *kit, client *http.Transport) {
		clear := new(http.Protocols)
		clear.SetUnencryptedHTTP2(true)
		k.http.Config.Protocols, client.Protocols = clear, clear
		client.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 1 << 20}
	}, test)
}

// Over HTTP/2 events arrive as they are written, a reader that leaves is noticed, and one
// that the server cuts off is told so by a reset and not by the stream's end.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	inBubble2(t, nil, func(k *kit) {
		e := k.say("s", "u1", "hi")
		if e.res.ProtoMajor != 2 {
			t.Fatalf("the server speaks %s", e.res.Proto)
		}
		o := k.own("s")
		o.start("u1")
		other := k.stream("GET", "/stream/s", "")
		for _, word := range []string{"one ", "two "} {
			o.text(word)
			e.until(word)
			other.until(word)
		}
		_ = other.res.Body.Close()
		synctest.Wait()
		if text := string(k.status(http.StatusOK, "GET", "/metrics", "")); !strings.Contains(text, `spool_reader_ends_total{reason="gone"} 1`) || !strings.Contains(text, `spool_readers{view="native"} 0`) {
			t.Errorf("the reader that left: %s", text)
		}
		back := k.stream("GET", "/api/chat/s/stream", "")
		k.srv.Drain()
		rest, err := back.rest()
		if err == nil || err == io.EOF || strings.Contains(datas(rest), "finish") {
			t.Errorf("a drained reader has %s, and then %v", datas(rest), err)
		}
	})
}

// A deadline of HTTP/2 ends a stream even if nothing is being written. It must not end a
// stream that is only silent, however the heartbeat and the timeout compare.
func TestSilentOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, times := range []server.Options{{Heartbeat: time.Minute, WriteTimeout: 3 * time.Second}, {Heartbeat: 3 * time.Second, WriteTimeout: time.Minute}} {
		inBubble2(t, &times, func(k *kit) {
			e := k.say("s", "u1", "hi")
			o := k.own("s")
			o.start("u1")
			o.text("begins ")
			e.until("begins")
			time.Sleep(time.Hour)
			o.text("ends")
			o.finish()
			if got := textOf(e.all()); got != "ends" {
				t.Errorf("then it has %q", got)
			}
		})
	}
}

// A reader over HTTP/2 that stops reading is disconnected; those beside it, on the same
// connection, go on.
func TestSlowOverHTTP2(t *testing.T) {
	t.Parallel()
	inBubble2(t, &server.Options{Heartbeat: time.Second, WriteTimeout: 3 * time.Second}, func(k *kit) {
		e := k.say("s", "u1", "hi")
		o := k.own("s")
		o.start("u1")
		k.stream("GET", "/api/chat/s/stream", "")
		word := strings.Repeat("word ", 1000)
		for range 40 {
			o.text(word)
			e.until("text-delta")
		}
		time.Sleep(10 * time.Second)
		if text := string(k.status(http.StatusOK, "GET", "/metrics", "")); !strings.Contains(text, `spool_reader_ends_total{reason="slow"} 1`) {
			t.Errorf("a reader that reads nothing was not cut: %s", text)
		}
		o.text("ends")
		o.finish()
		if got := textOf(e.all()); !strings.HasSuffix(got, "ends") {
			t.Errorf("the other reader has %q", got)
		}
	})
}
