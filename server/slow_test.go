package server_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/pipenet"
	"github.com/spool-run/spool/server"
)

// TestSlowReader: a reader that stops reading is cut by the write deadline, and
// not before, while others go on; it comes back to the same message.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	inBubble(t, &server.Options{WriteTimeout: 3 * time.Second}, func(k *kit) {
		e := k.say("s", "u1", "hi")
		o := k.own("s")
		o.start("u1")
		conn, err := k.http.Listener.(*pipenet.Listener).Dial(k.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /api/chat/s/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		fast := make(chan []event)
		go func() { fast <- e.all() }()
		o.text("begins ")
		slow := bufio.NewReader(conn)
		for line := ""; !strings.Contains(line, "begins"); {
			if line, err = slow.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}

		cut := func() bool {
			return strings.Contains(string(k.status(http.StatusOK, "GET", "/metrics", "")), `spool_reader_ends_total{reason="slow"} 1`)
		}
		o.text("goes on ")
		time.Sleep(2 * time.Second)
		if cut() {
			t.Error("a reader was cut before its time")
		}
		time.Sleep(2 * time.Second)
		if !cut() {
			t.Error("a reader that reads nothing was not cut")
		}
		o.text("ends")
		o.finish()
		const want = "begins goes on ends"
		if got := textOf(<-fast); got != want {
			t.Errorf("the other reader has %q", got)
		}
		// What reached the slow one ends in the middle, and never with an end.
		raw, _ := io.ReadAll(slow)
		if strings.Contains(string(raw), "[DONE]") || strings.HasSuffix(string(raw), "0\r\n\r\n") {
			t.Errorf("the slow reader was told that the stream is complete: %q", raw)
		}
		if got := textOf(k.stream("GET", "/api/chat/s/stream", "").all()); got != want {
			t.Errorf("back again it has %q", got)
		}
	})
}
