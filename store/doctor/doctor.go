// Package doctor examines a store: whether it can be used, how fast it is, and how it is set
// up.
package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/store/contract"
)

// What is slow: a run makes an append for each delta, and a reader waits for a wake-up.
const (
	slowAppend = 50 * time.Millisecond
	slowWake   = 250 * time.Millisecond
	clockApart = 2 * time.Second
)

// tries is how many appends and wake-ups are measured.
const tries = 20

// Examine examines a store. It writes a hidden session, and deletes it. another is a second
// connection to the same engine, on which it waits for wake-ups; nil: the store itself.
func Examine(ctx context.Context, store, another spool.Store) []contract.Finding {
	e := &examination{store: store, another: another, session: "doctor-" + rand.Text()}
	if another == nil {
		e.another = store
	}
	if !e.reach(ctx) {
		return e.found
	}
	if c, ok := store.(contract.Checker); ok {
		e.found = append(e.found, c.Check(ctx)...)
	}
	e.clock(ctx)
	if e.roles() {
		e.write(ctx)
	}
	return e.found
}

type examination struct {
	store, another spool.Store
	session        string
	found          []contract.Finding
}

func (e *examination) say(check string, level contract.Level, hint, format string, args ...any) {
	e.found = append(e.found, contract.Finding{Check: check, Level: level, Hint: hint, Text: fmt.Sprintf(format, args...)})
}

// fail says that something cannot be done, with the hint of the error if it has one.
func (e *examination) fail(check, what string, err error) {
	hint := ""
	if s, ok := errors.AsType[*chunk.Error](err); ok {
		hint = s.Hint
	}
	e.say(check, contract.Problem, hint, "%s: %s", what, redact.Text(err.Error()))
}

func (e *examination) reach(ctx context.Context) bool {
	begun := time.Now()
	_, err := e.store.Head(ctx, e.session)
	if err != nil && !errors.Is(err, spool.ErrNotFound) {
		e.fail("reach", "the store does not answer", err)
		return false
	}
	e.say("reach", contract.OK, "", "the store answers in %v", round(time.Since(begun)))
	return true
}

// roles says what the store cannot do. It reports whether the rest can be tried.
func (e *examination) roles() bool {
	var lacks []string
	need := func(name string, has bool) {
		if !has {
			lacks = append(lacks, name)
		}
	}
	_, leases := e.store.(spool.Leaser)
	_, lists := e.store.(spool.Lister)
	_, deletes := e.store.(spool.Trimmer)
	_, expires := e.store.(spool.Expirer)
	_, folds := e.store.(spool.FoldStore)
	_, blobs := e.store.(spool.BlobStore)
	need("leases", leases)
	need("listings", lists)
	need("deletion", deletes)
	need("deletion by age", expires)
	need("saved folds", folds)
	need("large values", blobs)
	if len(lacks) > 0 {
		e.say("roles", contract.Warning, "use another store for what needs them", "the store does not support: %v", lacks)
	}
	return leases && deletes
}

// clock compares the store's clock with this process's.
func (e *examination) clock(ctx context.Context) {
	lister, ok := e.store.(spool.Lister)
	if !ok {
		return
	}
	before := time.Now()
	page, err := lister.Sessions(ctx, spool.SessionQuery{Max: 1})
	after := time.Now()
	if err != nil {
		e.fail("clock", "sessions cannot be listed", err)
		return
	}
	apart := time.UnixMilli(page.Now).Sub(before.Add(after.Sub(before) / 2))
	if apart.Abs() > clockApart+after.Sub(before) {
		e.say("clock", contract.Warning, "synchronise the clocks, for example with NTP: nothing is decided by comparing them, but the times in records are this machine's and the ages of sessions are the store's",
			"the store's clock is %v from this machine's", round(apart))
		return
	}
	e.say("clock", contract.OK, "", "the store's clock is within %v of this machine's", clockApart)
}

// write does in a hidden session what owners and readers do.
func (e *examination) write(ctx context.Context) {
	lease, err := e.store.(spool.Leaser).Claim(ctx, spool.Claim{Owner: "doctor", Session: e.session, Force: true, Hidden: true, TTL: time.Minute})
	if err != nil {
		e.fail("write", "a session cannot be claimed", err)
		return
	}
	defer func() {
		if err := e.store.(spool.Trimmer).Delete(context.WithoutCancel(ctx), e.session); err != nil {
			e.fail("delete", "the session "+e.session+", which this examination has written, cannot be deleted", err)
		}
	}()
	if !e.appends(ctx, lease) {
		return
	}
	e.wakes(ctx, lease)
	e.values(ctx)
}

// append makes the nth append of the examination.
func (e *examination) append(ctx context.Context, l spool.Lease, n uint64) (spool.Appended, error) {
	return e.store.Append(ctx, spool.Append{Session: e.session, Epoch: l.Epoch, Writer: "doctor", Ordinal: n, Records: []chunk.Record{
		{Type: chunk.TypeTextDelta, Agent: e.session, Time: time.Now().UnixMilli(), Class: chunk.Trace, Data: []byte(`{"type":"text_delta","delta":"doctor"}`)}}})
}

func (e *examination) appends(ctx context.Context, l spool.Lease) bool {
	var took []time.Duration
	for n := range uint64(tries) {
		begun := time.Now()
		if _, err := e.append(ctx, l, n+1); err != nil {
			e.fail("write", "records cannot be appended", err)
			return false
		}
		took = append(took, time.Since(begun))
	}
	e.latency("append", "an append", took, slowAppend, "look at the store's disk, its load, and the network in between: answers are shown only after they were stored")
	return true
}

// latency says how long something takes.
func (e *examination) latency(check, what string, took []time.Duration, slow time.Duration, hint string) {
	slices.Sort(took)
	median, most := took[len(took)/2], took[len(took)-1]
	level := contract.OK
	if median > slow {
		level = contract.Warning
	} else {
		hint = ""
	}
	e.say(check, level, hint, "%s takes %v, at most %v of %d", what, round(median), round(most), len(took))
}

// wakes measures how long after an append a waiting reader knows of it.
func (e *examination) wakes(ctx context.Context, l spool.Lease) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	seen, err := e.another.Head(ctx, e.session)
	var took []time.Duration
	for n := uint64(tries); err == nil && n < 2*tries; n++ {
		type woken struct {
			at  time.Time
			err error
		}
		waiting := make(chan woken, 1)
		before := seen
		go func() {
			h, err := before, error(nil)
			for err == nil && h.Seq <= before.Seq {
				h, _, err = e.another.Wait(ctx, e.session, h)
			}
			waiting <- woken{time.Now(), err}
		}()
		var res spool.Appended
		if res, err = e.append(ctx, l, n+1); err != nil {
			break
		}
		stored := time.Now()
		w := <-waiting
		if err = w.err; err == nil {
			took, seen = append(took, max(w.at.Sub(stored), 0)), res.Head
		}
	}
	if err != nil {
		cancel()
		e.fail("wake", "a waiting reader is not woken", err)
		return
	}
	e.latency("wake", "waking a reader", took, slowWake, "look at the store's notifications: waiters are woken by their backstop, a slow poll")
}

// values tries what is kept beside the records.
func (e *examination) values(ctx context.Context) {
	var errs []error
	if folds, ok := e.store.(spool.FoldStore); ok {
		errs = append(errs, folds.SaveFold(ctx, e.session, "doctor", spool.SavedFold{Version: 1, Incarnation: 1, Seq: 1, Data: []byte("{}")}))
	}
	if blobs, ok := e.store.(spool.BlobStore); ok {
		const hash = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // of {}
		errs = append(errs, blobs.PutBlob(ctx, e.session, hash, []byte("{}")))
		_, err := blobs.GetBlob(ctx, e.session, hash)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		e.fail("values", "folds or large values cannot be stored", err)
	}
}

// round keeps three digits or so.
func round(d time.Duration) time.Duration {
	for unit := time.Second; unit >= time.Microsecond; unit /= 10 {
		if d.Abs() >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}
