package spool_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// outage is a session of a store that can be away, in a process that knows nothing of it.
type outage struct {
	*testing.T
	*storetest.Outage
	ctx  context.Context // of the bubble
	logs *spool.Logs
	log  *spool.Log
	blob string
}

func inOutages(t *testing.T, test func(o *outage, hangs bool)) {
	for name, hangs := range map[string]bool{"fails": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := memstore.New(nil)
				defer engine.Close()
				o := &outage{T: t, Outage: storetest.NewOutage(engine), ctx: t.Context(), blob: "sha256:" + strings.Repeat("0", 64)}
				o.logs = spool.NewLogs(o, nil)
				defer o.logs.Close()
				lease, err := engine.Claim(o.ctx, spool.Claim{Owner: "o", TTL: time.Hour, Session: "s", Force: true})
				if err != nil {
					t.Fatal(err)
				}
				other := spool.NewLogs(engine, nil)
				defer other.Close()
				g, err := other.Log("s")
				if err != nil {
					t.Fatal(err)
				}
				_, err = g.Append(o.ctx, lease, spool.Entry{Ordinal: 1, Row: spool.Row{Status: chunk.StatusEnded},
					Chunks: []chunk.Chunk{&chunk.Custom{EventName: "e", Data: []byte("1")}}})
				if err == nil {
					err = engine.PutBlob(o.ctx, "s", o.blob, []byte("2"))
				}
				if err == nil {
					o.log, err = o.logs.Log("s")
				}
				if err != nil {
					t.Fatal(err)
				}
				o.Begin(hangs)
				test(o, hangs)
			})
		})
	}
}

// reads are the ways to read a log.
func (o *outage) reads() map[string]func(context.Context) error {
	p := o.log.Projection(spool.ProjectionOptions{Key: "k", New: func() spool.Projector { return copies{} }})
	return map[string]func(context.Context) error{
		"head": func(ctx context.Context) error { _, err := o.log.Head(ctx); return err },
		"view": func(ctx context.Context) error {
			return o.log.View(ctx, func(*fold.Fold) error { return nil })
		},
		"fold": func(ctx context.Context) error { _, err := o.log.FoldAt(ctx, 1); return err },
		"blob": func(ctx context.Context) error {
			_, err := o.log.Blob(ctx, []byte(`{"$blob":"`+o.blob+`","size":1,"mediaType":"application/json"}`))
			return err
		},
		"records": func(ctx context.Context) error {
			_, err := o.log.Reader(spool.ReadOptions{}).Next(ctx)
			return err
		},
		"frames": func(ctx context.Context) error { _, err := p.Follow(spool.Head{}, 0).Next(ctx); return err },
		"plan":   func(ctx context.Context) error { _, _, err := p.Attach(ctx, spool.Head{}); return err },
		"title":  func(ctx context.Context) error { _, err := o.log.NewTitle(ctx, &say("c", "hi").Message); return err },
	}
}

func say(id, text string) *chunk.UserMessage {
	return &chunk.UserMessage{CommandID: id, Message: chunk.Message{ID: id, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}}
}

// While the store is away reads fail, within the time that one attempt may take, and
// those that wait for the store go on when it is back.
func TestReadsWaitForTheStore(t *testing.T) {
	inOutages(t, func(o *outage, _ bool) {
		for name, read := range o.reads() {
			if err := read(o.ctx); !errors.Is(err, spool.ErrUnavailable) {
				o.Errorf("%s: %v", name, err)
			}
		}
		patient := spool.WaitForStore(o.ctx)
		var done atomic.Int64
		reads := o.reads()
		for name, read := range reads {
			go func() {
				if err := read(patient); err != nil {
					o.Errorf("%s: %v", name, err)
				}
				done.Add(1)
			}()
		}
		time.Sleep(time.Hour)
		if n := done.Load(); n > 0 {
			o.Errorf("%d reads came back", n)
		}

		// Those that wait hold up nobody who does not.
		if err := reads["view"](o.ctx); !errors.Is(err, spool.ErrUnavailable) {
			o.Errorf("beside others: %v", err)
		}
		brief, cancel := context.WithTimeout(patient, time.Minute)
		defer cancel()
		if err := reads["view"](brief); !errors.Is(err, context.DeadlineExceeded) {
			o.Errorf("with a deadline: %v", err)
		}
		o.End()
		time.Sleep(time.Minute)
		if n := int(done.Load()); n != len(reads) {
			o.Errorf("%d of %d reads came back", n, len(reads))
		}
	})
}

// What the store answers is no outage: it is not repeated.
func TestAnswersAreNotRepeated(t *testing.T) {
	inOutages(t, func(o *outage, _ bool) {
		o.End()
		ctx := spool.WaitForStore(o.ctx)
		none, err := o.logs.Log("none")
		if err != nil {
			o.Fatal(err)
		}
		if _, err := none.Head(ctx); !errors.Is(err, spool.ErrNotFound) {
			o.Error(err)
		}
		if _, err := o.log.FoldAt(ctx, 9); !errors.Is(err, spool.ErrCursorAhead) {
			o.Error(err)
		}
		broken := errors.New("broken")
		if err := o.log.View(ctx, func(*fold.Fold) error { return broken }); !errors.Is(err, broken) {
			o.Error(err)
		}
		r := o.log.Reader(spool.ReadOptions{})
		if recs, err := r.Next(ctx); err != nil || len(recs) != 1 {
			o.Error(recs, err)
		}
		if _, err := r.Next(ctx); err != io.EOF {
			o.Error(err)
		}
	})
}

// Readers that wait for the store end with their logs.
func TestClosedLogsWaitForNoStore(t *testing.T) {
	inOutages(t, func(o *outage, _ bool) {
		reads := o.reads()
		ended := make(chan error, len(reads))
		for _, read := range reads {
			go func() { ended <- read(spool.WaitForStore(o.ctx)) }()
		}
		time.Sleep(time.Minute)
		_ = o.logs.Close()
		for range reads {
			if err := <-ended; !errors.Is(err, spool.ErrClosed) && !errors.Is(err, spool.ErrUnavailable) {
				o.Error(err)
			}
		}
	})
}

// After an outage a process gives owners a TTL to renew the leases that have expired in
// it. Sessions that nobody owns do not wait.
func TestClaimsAfterAnOutage(t *testing.T) {
	inOutages(t, func(o *outage, hangs bool) {
		o.End()
		const ttl = 30 * time.Second
		claim := spool.Claim{Owner: "b", TTL: ttl}
		active := func(session string) {
			lease, err := o.Engine.Claim(o.ctx, spool.Claim{Owner: "a", TTL: ttl, Session: session, Force: true})
			if err == nil {
				_, err = o.Engine.Append(o.ctx, spool.Append{Session: session, Epoch: lease.Epoch, Row: spool.Row{Status: chunk.StatusActive}})
			}
			if err != nil {
				o.Fatal(err)
			}
		}
		claimed := func() string {
			for {
				lease, err := o.logs.Claim(o.ctx, claim)
				if err == nil || errors.Is(err, spool.ErrNothingDue) {
					return lease.Session
				}
				time.Sleep(time.Second)
			}
		}
		active("before")
		time.Sleep(ttl + time.Second)
		active("during")
		if got := claimed(); got != "before" {
			o.Errorf("claimed %q", got)
		}
		o.Begin(hangs)
		time.AfterFunc(time.Minute, o.End)
		_ = o.logs.AwaitDue(o.ctx, claim)
		if got := claimed(); got != "" {
			o.Errorf("claimed %q just after the outage", got)
		}
		if _, err := o.log.Command(o.ctx, spool.Row{}, say("c", "hi")); err != nil {
			o.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := claimed(); got != "" && got != "s" {
			o.Errorf("claimed %q in the TTL after the outage", got)
		}
		time.Sleep(ttl)
		if got := claimed(); got != "during" && got != "before" {
			o.Errorf("claimed %q a TTL after the outage", got)
		}
	})
}
