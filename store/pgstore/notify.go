package pgstore

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/wait"
	"github.com/spool-run/spool/store/watch"
)

const (
	maxPayload = 7900 // bytes of a notification; the engine takes fewer than 8000
	maxHint    = 2000 // bytes of records in a notification, for each session
	maxHints   = 20   // their number
	relisten   = 50 * time.Millisecond
	relistenTo = time.Second
)

// note is what a process tells the others of a commit. It is a hint: what does not fit is
// left out.
type note struct {
	From     string     `json:"from"`
	Due      int        `json:"due,omitempty"` // so many sessions can be claimed earlier than before
	Sessions []noteHead `json:"sessions,omitempty"`
}

type noteHead struct {
	Session string     `json:"session"`
	Version int64      `json:"version"`
	Exists  bool       `json:"exists,omitempty"`
	Head    spool.Head `json:"head"`
	// Appended are the appends of the commit, if they are small.
	Appended []noteAppend `json:"appended,omitempty"`
}

// noteAppend are records that follow each other.
type noteAppend struct {
	After   uint64       `json:"after"`
	Records []noteRecord `json:"records"`
}

// noteRecord is a record of which Data is any bytes.
type noteRecord struct {
	Type  chunk.Type  `json:"t"`
	Agent string      `json:"a"`
	Time  int64       `json:"m"`
	Class chunk.Class `json:"c,omitempty"`
	Data  []byte      `json:"d"`
}

// notes are the payloads that tell of a transaction. Those of appends are made by append_group.
func (t *tx) notes() []string {
	var out []string
	n := note{From: t.s.name, Due: t.sooner}
	size := 100
	end := func() {
		text, err := json.Marshal(n)
		if err == nil {
			out = append(out, string(text))
		}
		n, size = note{From: t.s.name}, 100
	}
	for _, st := range t.order {
		h := noteHead{Session: st.id, Version: st.version, Exists: st.alive, Head: st.head}
		text, err := json.Marshal(h)
		if err != nil {
			continue
		}
		if size+len(text) > maxPayload {
			end()
		}
		if size+len(text) > maxPayload { // it does not fit at all: the others notice within a second
			continue
		}
		n.Sessions = append(n.Sessions, h)
		size += len(text) + 1
	}
	if len(n.Sessions) > 0 || n.Due > 0 {
		end()
	}
	return out
}

// committed tells this process's waiters.
func (s *Store) committed(t *tx) {
	for _, st := range t.order {
		s.hub.Apply(st.id, st.watched())
	}
	for range t.sooner {
		s.claimers.Wake()
	}
}

// listen passes on the other processes' notifications, until the store is closed.
func (s *Store) listen(ctx context.Context) {
	for pause := relisten; ctx.Err() == nil; {
		if s.hear(ctx) {
			pause = relisten
		}
		if wait.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(pause*2, relistenTo)
	}
}

// hear listens on one connection until it breaks. It reports whether it could listen.
func (s *Store) hear(ctx context.Context) bool {
	dial, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := pgx.ConnectConfig(dial, s.config.ConnConfig.Copy())
	if err != nil {
		return false
	}
	defer func() {
		end, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = c.Close(end)
	}()
	if err := s.settle(dial, c); err != nil {
		return false
	}
	if _, err := c.Exec(dial, "LISTEN "+s.channel); err != nil {
		return false
	}
	s.hub.Resync() // what happened meanwhile was not heard
	s.claimers.Wake()
	for {
		quiet, cancel := context.WithTimeout(ctx, callTimeout)
		n, err := c.WaitForNotification(quiet)
		cancel()
		if err != nil && ctx.Err() == nil && quiet.Err() != nil && !c.IsClosed() {
			ping, cancel := context.WithTimeout(ctx, callTimeout) // nobody answers on a connection that is half open
			err = c.Ping(ping)
			cancel()
			if err == nil {
				continue
			}
		}
		if err != nil {
			return true
		}
		s.heard(n.Payload)
	}
}

// heard handles a notification.
func (s *Store) heard(payload string) {
	var n note
	if strings.HasPrefix(payload, `{"from":"`+s.name+`"`) || json.Unmarshal([]byte(payload), &n) != nil {
		return
	}
	for range s.times() {
		for _, h := range n.Sessions {
			w := watch.State{Exists: h.Exists, Head: h.Head, Version: h.Version}
			for _, a := range h.Appended {
				for i, r := range a.Records {
					w.Records = append(w.Records, chunk.Record{Seq: a.After + uint64(i) + 1, Type: r.Type, Agent: r.Agent, Time: r.Time, Class: r.Class, Data: r.Data})
				}
			}
			s.hub.Apply(h.Session, w)
		}
		for range n.Due {
			s.claimers.Wake()
		}
	}
}

// Wait implements [spool.Store].
func (s *Store) Wait(ctx context.Context, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Head{}, nil, err
	}
	return s.hub.Wait(ctx, session, seen)
}

// readHeads reads the heads of watched sessions.
func (s *Store) readHeads(ctx context.Context, sessions []string, found func(string, watch.State)) error {
	return s.read(ctx, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, "SELECT "+headColumns+" FROM session WHERE id = ANY($1)", sessions)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var h headRow
			if err := rows.Scan(h.fields()...); err != nil {
				return err
			}
			found(h.id, h.watched())
		}
		return rows.Err()
	})
}
