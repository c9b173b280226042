package lines_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/lines"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/wiretest"
)

func TestWire(t *testing.T) {
	profile, err := lines.Wire().Profile(wire.Request{})
	if err != nil {
		t.Fatal(err)
	}
	wiretest.Run(t, wiretest.Wire{Profile: profile, Fold: read, Truth: truth})
}

// read is the client: the text of all events.
func read(stream []byte) (json.RawMessage, error) {
	var text strings.Builder
	for _, event := range bytes.Split(bytes.TrimSuffix(stream, []byte("\n\n")), []byte("\n\n")) {
		_, data, found := bytes.Cut(event, []byte("data: "))
		if len(event) == 0 {
			continue
		}
		var in struct{ Text string }
		if !found || json.Unmarshal(data, &in) != nil {
			return nil, fmt.Errorf("no event: %q", event)
		}
		text.WriteString(in.Text)
	}
	return json.Marshal(text.String())
}

// truth is what the log says.
func truth(log []chunk.Record, turn *fold.Turn) (json.RawMessage, error) {
	f := fold.New(chunk.RootID(log[0].Agent))
	for _, r := range log {
		if err := f.Apply(r); err != nil {
			return nil, err
		}
	}
	var text strings.Builder
	if m := f.Message(turn.MessageID); m != nil {
		for _, p := range m.Parts {
			if p.Type == chunk.PartText {
				text.WriteString(p.Text)
			}
		}
	}
	return json.Marshal(text.String())
}

// A server offers the wire when it is listed.
func TestServed(t *testing.T) {
	logs := spool.NewLogs(memstore.New(nil), nil)
	defer logs.Close()
	srv := httptest.NewServer(server.New(logs, &server.Options{Wires: wires.Options{More: []wire.Wire{lines.Wire()}}}))
	defer srv.Close()

	streams := stream.NewManager(logs, nil)
	w, err := streams.CreateWriter(t.Context(), "s", "", "teller")
	if err == nil {
		err = w.Write(t.Context(), &chunk.TextDelta{Delta: "It is sunny."})
	}
	if err = errors.Join(err, streams.EndStream(t.Context(), "s", nil)); err != nil {
		t.Fatal(err)
	}
	res, err := http.Get(srv.URL + "/lines/s")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.Header.Get("X-Lines") != "1" || !strings.Contains(string(body), `data: {"text":"It is sunny."}`) || !strings.HasSuffix(string(body), "event: end\ndata: {}\n\n") {
		t.Errorf("%s %q, %v", res.Status, body, err)
	}
}
