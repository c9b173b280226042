//go:build nodes && unix

package natsstore

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spool-run/spool"
)

// backup is a stream as the server gives it out and takes it back.
type backup struct {
	name          string
	Config, State json.RawMessage
	chunks        [][]byte
}

// rewind backs a store's streams up. What it returns puts them back, as an operator would who
// restores a backup while processes are connected, and then starts the server again.
func rewind(t testing.TB, s spool.Store) (back func()) {
	t.Helper()
	c := s.(clocked)
	nc, err := nats.Connect(c.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	was := c.history.now()
	var backups []*backup
	for _, name := range []string{c.log, c.values} {
		backups = append(backups, snapshot(t, nc, name))
	}
	return func() {
		for _, b := range backups {
			b.restore(t, nc)
		}
		connected.Lock()
		all := connected.by[c.prefix]
		connected.Unlock()
		for _, s := range all {
			s.proxy.Cut()
		}
		// Those that were told of what is lost notice it, and tell the others.
		for _, s := range all {
			for s.ctx.Err() == nil && s.history.now() == was {
				if err := pause(t.Context(), time.Millisecond); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}
}

// ask calls the server's API.
func ask(t testing.TB, nc *nats.Conn, subject string, request, answer any) {
	t.Helper()
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			t.Fatal(err)
		}
	}
	m, err := nc.Request(subject, body, time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	var failure struct{ Error json.RawMessage }
	if err := json.Unmarshal(m.Data, &failure); err != nil || failure.Error != nil {
		t.Fatalf("%s: %s, %v", subject, failure.Error, err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		t.Fatal(err)
	}
}

func snapshot(t testing.TB, nc *nats.Conn, name string) *backup {
	t.Helper()
	b := &backup{name: name}
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	ask(t, nc, "$JS.API.STREAM.SNAPSHOT."+name, map[string]any{"deliver_subject": inbox, "no_consumers": true, "chunk_size": 64 << 10}, b)
	for {
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) == 0 { // the last one
			if d := m.Header.Get("Description"); d != "" && d != "EOF" {
				t.Fatal(d)
			}
			return b
		}
		b.chunks = append(b.chunks, m.Data)
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (b *backup) restore(t testing.TB, nc *nats.Conn) {
	t.Helper()
	var none struct{}
	ask(t, nc, "$JS.API.STREAM.DELETE."+b.name, nil, &none)
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	ask(t, nc, "$JS.API.STREAM.RESTORE."+b.name, map[string]any{"config": b.Config, "state": b.State}, &to)
	for _, part := range b.chunks {
		if m, err := nc.Request(to.Subject, part, time.Minute); err != nil || len(m.Data) > 0 {
			t.Fatalf("%v, %v", m, err)
		}
	}
	ask(t, nc, to.Subject, nil, &none)
}
