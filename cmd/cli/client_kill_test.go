package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/merlin"
)

// Clients on every wire watch a run whose server is killed with SIGKILL after a record of
// each type, and starts again on the same port. They end with what the log has.
func TestClientsSurviveKills(t *testing.T) {
	t.Parallel()
	for _, kind := range []chunk.Type{chunk.TypeUserMessage, chunk.TypeRunStarted, chunk.TypeStepStarted, chunk.TypeThinking, chunk.TypeTextDelta, chunk.TypeAssistantMessage,
		chunk.TypeToolStart, chunk.TypeProgress, chunk.TypeToolEnd, chunk.TypeStepCommitted, chunk.TypeRunFinished} {
		for _, background := range []string{"0", "1"} {
			t.Run(string(kind)+" background "+background, func(t *testing.T) {
				t.Parallel()
				survive(t, kind, "--model", "scripted?background="+background)
			})
		}
	}
}

func survive(t *testing.T, kind chunk.Type, args ...string) {
	ctx := t.Context()
	held := make(chan struct{}) // the record is stored, and nothing more will be
	var stored atomic.Bool
	var once sync.Once
	gate := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if stored.Load() {
			once.Do(func() { close(held) })
			<-r.Context().Done() // until the server is killed
		}
		stored.Store(r.URL.Query().Get("types") == string(kind))
	}))
	t.Cleanup(func() {
		gate.CloseClientConnections()
		gate.Close()
	})
	db := t.TempDir() + "/spool.db"
	first := serveSpoolGated(t, db, gate.URL, args...)
	c, err := client.New(first.url, &client.Options{Retry: client.Retry{Max: -1, Cap: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Session("s")
	log := s.Log(ctx, client.LogOptions{Wait: true, Resync: true})
	logged := make(chan string, 1)
	go func() { logged <- wordsOf(t, log) }()
	if _, err := s.Send(ctx, client.Message{Text: "tools"}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan [2]string, 3)
	for _, w := range wires.List(wires.Options{}) {
		if w.Name == "native" {
			continue
		}
		st := s.Attach(ctx, client.AttachOptions{Wire: w, Resync: true})
		go func() { shown <- [2]string{w.Name, shownOf(t, w.Name, st)} }()
	}
	if kind != chunk.TypeUserMessage && kind != chunk.TypeRunFinished { // which no append of the run follows, or is
		<-held
	}
	first.kill()
	address, err := url.Parse(first.url)
	if err != nil {
		t.Fatal(err)
	}
	serveSpool(t, db, append(args, "--addr", address.Host)...)
	want := <-logged
	snap, err := s.Snapshot(ctx, client.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if len(snap.Messages) < 2 {
		t.Fatalf("%s %s %+v; the log ended %+v at %v", snap.Status, snap.Reason, snap.Messages, log.Ending(), log.Cursor())
	}
	for _, p := range snap.Messages[1].Parts {
		if p.Type == "text" {
			said.WriteString(p.Text)
		}
	}
	if snap.Status != chunk.StatusEnded || said.Len() == 0 || want != said.String() {
		t.Errorf("%s: the log's reader has %q\nthe snapshot %q", snap.Status, want, said.String())
	}
	for range cap(shown) {
		if got := <-shown; got[1] != want {
			t.Errorf("%s shows %q\nwant %q", got[0], got[1], want)
		}
	}
}

// wordsOf reads a log to its end and returns the text that it says.
func wordsOf(t *testing.T, l *client.LogStream) string {
	var text, step strings.Builder
	for {
		e, err := l.Next()
		if errors.Is(err, io.EOF) {
			return text.String() + step.String()
		}
		if err != nil {
			t.Errorf("the log's reader: %v", err)
			return ""
		}
		switch c := e.Chunk.(type) {
		case *chunk.TextDelta:
			step.WriteString(c.Delta)
		case *chunk.StepDiscarded:
			step.Reset()
		case *chunk.StepCommitted:
			text.WriteString(step.String())
			step.Reset()
		}
	}
}

// shownOf reads a turn to its end and returns the text that a client of the wire shows. A
// snapshot takes the place of what was shown; a replay of its turn takes the snapshot's.
func shownOf(t *testing.T, wireName string, st *client.Stream) string {
	var text strings.Builder
	var shown merlin.Client
	for {
		e, err := st.Next()
		if errors.Is(err, io.EOF) {
			return text.String() + shown.Text()
		}
		if err != nil {
			t.Errorf("%s: %v", wireName, err)
			return ""
		}
		if e.Snapshot != nil {
			text.Reset()
			shown = merlin.Client{}
			for _, m := range e.Snapshot.Messages[1:] {
				for _, p := range m.Parts {
					if p.Type == "text" {
						text.WriteString(p.Text)
					}
				}
			}
			continue
		}
		if wireName != "aisdk" {
			text.Reset()
			raw := []byte{}
			if e.ID != "" {
				raw = append(raw, "id: "+e.ID+"\n"...)
			}
			event, err := merlin.NewReader(bytes.NewReader(wire.AppendEvent(raw, e.Name, e.Data))).Next()
			if err != nil {
				t.Errorf("%s: %s: %v", wireName, e.Data, err)
			}
			shown.Apply(event)
			continue
		}
		var f struct{ Type, Delta string }
		_ = json.Unmarshal(e.Data, &f) // the last one is [DONE]
		switch f.Type {
		case "start":
			text.Reset()
		case "text-delta":
			text.WriteString(f.Delta)
		}
	}
}
