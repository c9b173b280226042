package contract

import (
	"math"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Never is the time from which a session can be claimed that nobody needs to claim.
const Never = math.MaxInt64

// ReadyAt returns the time from which an existing session can be claimed, in Unix
// milliseconds, or [Never]. expires is when its lease ends; 0 if it has none.
func ReadyAt(h *spool.Head, expires int64) int64 {
	at := int64(Never)
	if h.Hidden {
		return at
	}
	if h.Status == chunk.StatusActive {
		at = expires
	}
	if h.Due != 0 {
		at = min(at, max(h.Due, expires))
	}
	return at
}

// Spared reports whether the claim spares a lease, which ends at expires (0: there is none).
// The session cannot be claimed then, whatever [ReadyAt] says.
func Spared(c *spool.Claim, expires, now int64) bool {
	return c.ExpiredFor > 0 && expires > now-TTL(c.ExpiredFor)
}

// LookAgain returns for how long [spool.Leaser].AwaitDue may sleep if the next session can
// be claimed at the time next: a second at most, since the store's clock may differ from
// the timer's and an owner may die. It is negative, for ever, if next is [Never].
func LookAgain(now, next int64) time.Duration {
	if next == Never {
		return -1
	}
	return min(max(time.Duration(next-now)*time.Millisecond, 0), time.Second)
}

// Created returns the first head of a session. old is what a deleted session of that name
// has left (see [Deleted]), or the zero Head.
func Created(old spool.Head, principal string, hidden bool) spool.Head {
	h := spool.Head{Incarnation: old.Incarnation + 1, Status: chunk.StatusEnded, Principal: principal, Hidden: hidden}
	if old.Incarnation > 0 {
		h.Epoch = old.Epoch + 1
	}
	return h
}

// Deleted returns what a deleted session leaves of its head, for [Created].
func Deleted(h spool.Head) spool.Head {
	return spool.Head{Epoch: h.Epoch, Incarnation: h.Incarnation}
}

// SetRow changes a session's row, and its head, as an append says. The principal stays.
func SetRow(h *spool.Head, row *spool.Row, r spool.Row) {
	if r.Status != "" {
		h.Status, row.Status = r.Status, r.Status
	}
	if r.Agent != "" {
		row.Agent = r.Agent
	}
	if r.Title != "" {
		row.Title = r.Title
	}
}

// SetDue changes when a session is due, and whether a command is pending, as an append says whose records are the head's last.
// A command makes the session due now. An owner with nothing left to do says when it is due
// next, which counts unless there are commands that the owner has not seen. command is the
// sequence of the session's last command.
func SetDue(h *spool.Head, command *uint64, a *spool.Append, now int64) {
	switch {
	case a.Epoch == 0:
		*command, h.Pending = h.Seq, true
		if h.Due == 0 || h.Due > now {
			h.Due = now
		}
	case a.Settle != nil && *command <= a.Settle.Seen:
		h.Due, h.Pending = a.Settle.Next, false
	}
}

// RaiseAbove raises a head above one that was given out before a loss, as
// [spool.Raiser] says. It reports whether it changed anything: then there is no lease any
// more, and no append is a repeat.
func RaiseAbove(h *spool.Head, known spool.Head) bool {
	if h.Incarnation > known.Incarnation {
		return false
	}
	h.Incarnation, h.Epoch = known.Incarnation+Generation, max(h.Epoch, known.Epoch)+Generation
	return true
}

// RaiseFloors changes the floors as a trim asks. Floors never fall.
func RaiseFloors(h *spool.Head, traceFloor, floor uint64) {
	h.Floor = max(h.Floor, min(floor, h.Seq))
	h.TraceFloor = max(h.TraceFloor, min(traceFloor, h.Seq), h.Floor)
}

// TTL returns a lease's time to live in milliseconds, rounded up.
func TTL(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
