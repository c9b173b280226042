package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// Sessions whose TTL has passed can be listed before they are deleted, by the limits of each,
// and by their owners only.
func TestExpiredSessions(t *testing.T) {
	now := time.Unix(1e9, 0)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	data := []byte(`{"type":"user_message"}`)
	for _, s := range []struct{ id, principal string }{{"old", "ann"}, {"theirs", "bob"}, {"kept", "vip"}, {"young", "ann"}} {
		if s.id == "young" {
			now = now.Add(time.Hour)
		}
		if _, err := store.Append(t.Context(), spool.Append{Session: s.id, Records: []chunk.Record{{Type: "user_message", Data: data}}, Row: spool.Row{Principal: s.principal}}); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(p spool.Policy, query string, o *server.Options, header ...string) (ids []string) {
		t.Helper()
		logs := spool.NewLogs(store, &spool.Options{Policy: p})
		defer logs.Close()
		k := (&kit{T: t, store: store}).over(logs, o)
		var page struct {
			Sessions []struct {
				Session string `json:"session"`
				Bytes   int    `json:"bytes"`
			} `json:"sessions"`
		}
		if err := json.Unmarshal(k.status(http.StatusOK, "GET", "/sessions"+query, "", header...), &page); err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			if s.Bytes != len(data) {
				t.Errorf("%s has %d bytes", s.Session, s.Bytes)
			}
			ids = append(ids, s.Session)
		}
		slices.Sort(ids)
		return ids
	}
	hour := spool.Policy{Limits: spool.Limits{TTL: time.Hour}}
	byRow := spool.Policy{Of: func(agent, principal string) spool.Limits {
		if principal == "vip" {
			return spool.Limits{}
		}
		return spool.Limits{TTL: time.Minute}
	}}
	who := &server.Options{Principal: func(r *http.Request) (string, error) { return r.Header.Get("Who"), nil }}
	for _, c := range []struct {
		name   string
		got    []string
		expect []string
	}{
		{"all", listed(hour, "?expired=0", nil), []string{"kept", "old", "theirs", "young"}},
		{"without a TTL", listed(spool.Policy{}, "?expired=1", nil), nil},
		{"one TTL", listed(hour, "?expired=1", nil), []string{"kept", "old", "theirs"}},
		{"by principal", listed(byRow, "?expired=1", nil), []string{"old", "theirs"}},
		{"ann's", listed(byRow, "?expired=1", who, "Who", "ann"), []string{"old"}},
	} {
		if !slices.Equal(c.got, c.expect) {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.expect)
		}
	}
	newKitOn(t, store, nil).problem(http.StatusBadRequest, "invalid", "GET", "/sessions?expired=soon", "")
}
