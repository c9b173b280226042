package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// logModel is a log as obvious code keeps it. Its records are never changed in place, so
// that a copy stays what it is.
type logModel struct {
	exists  bool
	head    spool.Head // Due: 0 or 1, for whether it is set
	records []chunk.Record
	command uint64 // sequence of the last command
	ordinal uint64 // of the only writer
	first   uint64 // what the ordinal's append was given
	last    uint64

	owned bool // there is a lease that was not released; leases of the model do not expire
	claim string
	owner string
}

// call is a call of a store, of which one member is set.
type call struct {
	append  *spool.Append
	claim   *spool.Claim
	renew   *spool.Lease
	release *spool.Lease
	read    *readCall
	head    bool
	trim    *[2]uint64 // the floors
	delete  bool

	session string
}

type readCall struct {
	after uint64
	q     *spool.KeptQuery // ReadKept
	max   int
}

// answer is what a store said.
type answer struct {
	err     error
	res     spool.Appended
	lease   spool.Lease
	head    spool.Head
	records []chunk.Record
}

// do makes the call.
func (c *call) do(ctx context.Context, s spool.Store) (a answer) {
	switch {
	case c.append != nil:
		a.res, a.err = s.Append(ctx, *c.append)
	case c.claim != nil:
		a.lease, a.err = s.(spool.Leaser).Claim(ctx, *c.claim)
	case c.renew != nil:
		a.err = s.(spool.Leaser).Renew(ctx, *c.renew)
	case c.release != nil:
		a.err = s.(spool.Leaser).Release(ctx, *c.release)
	case c.read != nil && c.read.q != nil:
		a.records, a.head, a.err = s.ReadKept(ctx, c.session, *c.read.q)
	case c.read != nil:
		a.records, a.head, a.err = s.Read(ctx, c.session, c.read.after, c.read.max)
	case c.trim != nil:
		a.err = s.(spool.Trimmer).Trim(ctx, c.session, c.trim[0], c.trim[1])
	case c.delete:
		a.err = s.(spool.Trimmer).Delete(ctx, c.session)
	default:
		a.head, a.err = s.Head(ctx, c.session)
	}
	return a
}

// step returns the log after a call that was answered so. It fails with what is wrong with
// the answer. Epochs and incarnations are the store's to choose, if they only grow.
func (l logModel) step(c *call, a *answer) (logModel, error) {
	switch {
	case c.append != nil && c.append.Epoch == 0:
		return l.stepCommand(c.append, a)
	case c.append != nil:
		return l.stepAppend(c.append, a)
	case c.claim != nil:
		return l.stepClaim(c.claim, a)
	case c.renew != nil:
		if !l.owned || !l.exists || c.renew.Epoch != l.head.Epoch {
			return l, wants(a, spool.ErrSuperseded)
		}
		return l, wants(a, nil)
	case c.release != nil:
		if l.exists && c.release.Epoch == l.head.Epoch {
			l.owned, l.claim, l.owner = false, "", ""
		}
		return l, wants(a, nil)
	case c.read != nil:
		return l, l.stepRead(c.read, a)
	case c.trim != nil:
		return l.stepTrim(c.trim[0], c.trim[1], a)
	case c.delete:
		if !l.exists {
			return l, wants(a, spool.ErrNotFound)
		}
		return logModel{head: spool.Head{Epoch: l.head.Epoch, Incarnation: l.head.Incarnation}}, wants(a, nil)
	}
	if !l.exists {
		return l, wants(a, spool.ErrNotFound)
	}
	return l, errors.Join(wants(a, nil), wantsHead(a.head, l.head))
}

// wants compares an answer's error with the one that it must have.
func wants(a *answer, err error) error {
	if !errors.Is(a.err, err) {
		return fmt.Errorf("the error is %v, want %v", a.err, err)
	}
	return nil
}

func wantsHead(got, want spool.Head) error {
	if plain(got) != want {
		return fmt.Errorf("the head is %+v, want %+v", got, want)
	}
	return nil
}

// plain makes a head comparable with a model's, which knows no clock.
func plain(h spool.Head) spool.Head {
	h.Due = min(h.Due, 1)
	return h
}

// foreign reports whether a call for a principal's session must be refused, since it is
// another's.
func (l *logModel) foreign(same bool, who string) bool {
	return same && l.exists && l.head.Principal != who
}

// create makes a session exist, with this incarnation and epoch if they are above those of
// a session that was deleted.
func (l *logModel) create(principal string, incarnation, epoch uint64) {
	if l.exists {
		return
	}
	old := l.head
	l.exists = true
	if old.Incarnation > 0 {
		epoch = max(epoch, old.Epoch+1)
	}
	l.head = spool.Head{Incarnation: max(incarnation, old.Incarnation+1), Epoch: epoch, Status: chunk.StatusEnded, Principal: principal}
}

func (l *logModel) add(rs []chunk.Record) (first, last uint64) {
	first = l.head.Seq + 1
	l.records = slices.Clip(l.records)
	for _, r := range rs {
		l.head.Seq++
		r.Seq = l.head.Seq
		l.records = append(l.records, r)
	}
	return first, l.head.Seq
}

func (l logModel) stepCommand(c *spool.Append, a *answer) (logModel, error) {
	if l.foreign(c.SamePrincipal, c.Row.Principal) {
		return l, wants(a, spool.ErrExists)
	}
	l.create(c.Row.Principal, a.res.Head.Incarnation, a.res.Head.Epoch)
	first, last := l.add(c.Records)
	l.command, l.head.Due, l.head.Pending = last, 1, true
	return l, l.appended(a, first, last, false)
}

func (l logModel) stepAppend(c *spool.Append, a *answer) (logModel, error) {
	switch {
	case !l.exists || c.Epoch != l.head.Epoch:
		return l, wants(a, spool.ErrSuperseded)
	case c.Ordinal > 0 && c.Ordinal < l.ordinal:
		return l, wants(a, chunk.ErrInvalid)
	case c.Ordinal > 0 && c.Ordinal == l.ordinal:
		return l, l.appended(a, l.first, l.last, true)
	}
	first, last := l.add(c.Records)
	if c.Row.Status != "" {
		l.head.Status = c.Row.Status
	}
	if c.Settle != nil && l.command <= c.Settle.Seen {
		l.head.Due, l.head.Pending = min(c.Settle.Next, 1), false
	}
	if c.Ordinal > 0 {
		l.ordinal, l.first, l.last = c.Ordinal, first, last
	}
	return l, l.appended(a, first, last, false)
}

func (l *logModel) appended(a *answer, first, last uint64, repeated bool) error {
	if a.err != nil || a.res.First != first || a.res.Last != last || a.res.Repeated != repeated || plain(a.res.Head) != l.head {
		return fmt.Errorf("the append gave %+v, %v; want %d to %d, repeated %v, head %+v", a.res, a.err, first, last, repeated, l.head)
	}
	return nil
}

func (l logModel) stepClaim(c *spool.Claim, a *answer) (logModel, error) {
	repeated := c.ID != "" && l.exists && l.owned && l.claim == c.ID && l.owner == c.Owner
	switch {
	case repeated:
		return l, l.granted(a)
	case l.foreign(c.SamePrincipal, c.Principal):
		return l, wants(a, spool.ErrExists)
	case !c.Force && (!l.exists || l.owned || l.head.Due == 0 && l.head.Status != chunk.StatusActive):
		return l, wants(a, spool.ErrNothingDue)
	}
	l.create(c.Principal, a.lease.Head.Incarnation, 0)
	l.head.Epoch = max(a.lease.Epoch, l.head.Epoch+1)
	l.ordinal, l.first, l.last = 0, 0, 0
	l.owned, l.claim, l.owner = true, c.ID, c.Owner
	return l, l.granted(a)
}

func (l *logModel) granted(a *answer) error {
	if a.err != nil || a.lease.Epoch != l.head.Epoch || plain(a.lease.Head) != l.head {
		return fmt.Errorf("the claim gave %+v, %v; want head %+v", a.lease, a.err, l.head)
	}
	return nil
}

func (l logModel) stepTrim(traceFloor, floor uint64, a *answer) (logModel, error) {
	if !l.exists {
		return l, wants(a, spool.ErrNotFound)
	}
	h := &l.head
	h.Floor = max(h.Floor, min(floor, h.Seq))
	h.TraceFloor = max(h.TraceFloor, min(traceFloor, h.Seq), h.Floor)
	l.records = slices.DeleteFunc(slices.Clone(l.records), func(r chunk.Record) bool {
		return r.Seq <= h.Floor || r.Seq <= h.TraceFloor && r.Class == chunk.Trace
	})
	return l, wants(a, nil)
}

// stepRead checks records and the head that came with them, also with an error.
func (l *logModel) stepRead(c *readCall, a *answer) error {
	var want []chunk.Record
	trimmed, limit := c.after < l.head.TraceFloor, c.max
	switch {
	case c.q != nil && c.q.Backwards:
		trimmed, limit = false, c.q.Max
		for _, r := range slices.Backward(l.records) {
			if r.Class == chunk.Kept && (c.q.Before == 0 || r.Seq < c.q.Before) {
				want = append(want, r)
			}
		}
	case c.q != nil:
		trimmed, limit = c.q.After < l.head.Floor, c.q.Max
		for _, r := range l.records {
			if r.Class == chunk.Kept && r.Seq > c.q.After {
				want = append(want, r)
			}
		}
	default:
		for _, r := range l.records {
			if r.Seq > c.after {
				want = append(want, r)
			}
		}
	}
	head := l.head
	if !l.exists {
		head = spool.Head{}
	}
	if err := wantsHead(a.head, head); err != nil {
		return err
	}
	if trimmed {
		if len(a.records) > 0 {
			return fmt.Errorf("a partial answer below the floor: %v", texts(a.records))
		}
		return wants(a, spool.ErrTrimmed)
	}
	want = want[:min(len(want), limit)]
	if a.err != nil || !slices.EqualFunc(a.records, want, sameRecord) {
		return fmt.Errorf("read %v, %v; want %v", texts(a.records), a.err, texts(want))
	}
	return nil
}

// same reports whether two logs are the same.
func (l *logModel) same(m *logModel) bool {
	return l.exists == m.exists && l.head == m.head && l.command == m.command &&
		l.ordinal == m.ordinal && l.first == m.first && l.last == m.last &&
		l.owned == m.owned && l.claim == m.claim && l.owner == m.owner &&
		slices.EqualFunc(l.records, m.records, sameRecord)
}
