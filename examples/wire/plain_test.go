package plain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"example.com/plain"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/wiretest"
)

func TestWire(t *testing.T) {
	profile, err := plain.Wire().Profile(wire.Request{})
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Run(t, wiretest.Wire{Profile: profile, Fold: read})
}

// read is the client.
func read(stream []byte) (json.RawMessage, error) {
	var answer struct{ Text, End string }
	for _, event := range bytes.SplitAfter(stream, []byte("\n\n")) {
		if !bytes.HasSuffix(event, []byte("\n\n")) {
			break // cut
		}
		var name, text string
		for line := range strings.Lines(string(event)) {
			if s, ok := strings.CutPrefix(line, "event: "); ok {
				name = strings.TrimSpace(s)
			}
			if s, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(s), &text) != nil {
				return nil, fmt.Errorf("no event: %q", event)
			}
		}
		switch name {
		case "start":
			answer.End = ""
		case "text":
			answer.Text += text
		case "end":
			answer.End = text
		}
	}
	return json.Marshal(answer)
}

// The document shows this code.
func TestTheDocumentShowsIt(t *testing.T) {
	source, err := os.ReadFile("plain.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/writing-a-wire.md")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(source, []byte("// Wire streams"))
	if at < 0 || !bytes.Contains(text, slices.Concat([]byte("```go\n"), source[at:], []byte("```\n"))) {
		t.Error("docs/writing-a-wire.md shows another wire")
	}
}

// A server offers the wire when it is listed.
func TestServed(t *testing.T) {
	logs := spool.NewLogs(memstore.New(nil), nil)
	defer logs.Close()
	srv := httptest.NewServer(server.New(logs, &server.Options{Wires: wires.Options{More: []wire.Wire{plain.Wire()}}}))
	defer srv.Close()

	streams := stream.NewManager(logs, nil)
	w, err := streams.CreateWriter(t.Context(), "s", "", "teller")
	if err == nil {
		err = w.Write(t.Context(), &chunk.TextDelta{Delta: "It is sunny."})
	}
	if err = errors.Join(err, streams.EndStream(t.Context(), "s", nil)); err != nil {
		t.Fatal(err)
	}
	res, err := http.Get(srv.URL + "/plain/s")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(body), `data: "It is sunny."`) || !strings.Contains(string(body), "event: end\n") {
		t.Errorf("%s %q, %v", res.Status, body, err)
	}
}
