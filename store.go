package spool

import (
	"context"
	"time"

	"github.com/spool-run/spool/chunk"
)

// Limits that hold for every store.
const (
	// MaxAppendRecords and MaxAppendBytes bound one append.
	MaxAppendRecords = 1000
	MaxAppendBytes   = 512 << 10
)

// DefaultLeaseTTL is the TTL of a claim that names none.
const DefaultLeaseTTL = 30 * time.Second

// MaxRead is the limit of a read whose max is 0, and the most that a driver must be
// able to return at once. A page ends with the record with which its Data reaches
// MaxReadBytes.
const (
	MaxRead      = 1000
	MaxReadBytes = 1 << 20
)

// Head is a log's state as its store knows it without reading records. It is
// comparable: if two heads are equal, nothing happened in between.
type Head struct {
	Seq         uint64 // last sequence; 0 for an empty log
	Incarnation uint64 // from 1; grows each time earlier history was lost or deleted
	TraceFloor  uint64 // trace records with Seq <= TraceFloor may be gone
	Floor       uint64 // no record with Seq <= Floor remains
	Epoch       uint64 // of the latest claim; 0 before the first
	Status      chunk.Status
	Due         int64  // Unix milliseconds, by the store's clock, at which a runner must claim the session; 0 for never
	Pending     bool   // there is a command that no Settle has seen
	Hidden      bool   // nobody but its owner may see the session yet
	Principal   string // whose session it is, as [Row.Principal]
}

// Append is one atomic append to one session's log.
//
// With Epoch > 0 it is an owner's append: the store refuses it with [ErrSuperseded]
// unless Epoch is that of the latest claim, and answers a repeat of (Epoch, Writer,
// Ordinal) with the first result ([chunk.ErrInvalid] if that writer has stored a larger
// Ordinal since; gaps are allowed). With Epoch 0 it is a command append: it needs no
// lease, and the same atomic step sets Pending, and Due to the store's now, unless Due is
// already earlier. A command for a hidden session is refused with [ErrNotFound].
//
// A command append creates the session if it does not exist. Its records' Seq is
// ignored, and the store may keep their Data, which must not be changed afterwards. An
// owner's append without records is allowed: it carries only Row or Settle.
//
// With SamePrincipal the append is refused with [ErrExists] if the session exists and
// has another principal than Row's.
type Append struct {
	Session string
	Epoch   uint64
	Writer  string // names the writer under its epoch; "" is a valid name
	Ordinal uint64 // counts that writer's appends: 1, 2, 3, …; 0 = not idempotent
	Records []chunk.Record
	Row     Row     // fields of the session row to change
	Settle  *Settle // owner only
	Show    bool    // owner only: a hidden session becomes visible

	SamePrincipal bool // commands only
}

// Settle says which commands an owner has seen: if no command has a sequence above Seen,
// Pending becomes false and Due becomes Next. If there is one, both stay, and the append
// succeeds all the same.
type Settle struct {
	Seen uint64
	Next int64 // by the store's clock, see [Lease.Time]; 0 for never
}

// Appended is the result of an append.
type Appended struct {
	First, Last uint64 // sequences given to the records; First > Last when there were none
	Head        Head   // after this append (for a repeat: now)
	Repeated    bool   // this (Epoch, Writer, Ordinal) was stored before; nothing was written
}

// Row holds the fields of a session that listings show. In an [Append], zero fields
// change nothing. Principal is set by the command append or the claim that creates the
// session ("" is an anonymous session), and ignored from then on: it never changes until
// the session is deleted.
type Row struct {
	Status    chunk.Status `json:"status"`
	Agent     string       `json:"agent,omitempty"`     // the agent type that answers; filters claims
	Principal string       `json:"principal,omitempty"` // whose session it is; decides who may use it, and filters listings
	Title     string       `json:"title,omitempty"`
}

// SessionInfo is one line of a listing.
type SessionInfo struct {
	Session string `json:"session"`
	Row
	Head    Head  `json:"-"`
	Updated int64 `json:"updated"` // Unix milliseconds of the last append
	Bytes   int64 `json:"bytes"`   // of its records' Data and its blobs, without what was trimmed
}

// Store keeps logs. It stores records as bytes and numbers them; it knows no protocols.
// Every method may be called from any goroutine, and fails with [ErrClosed] after the
// store was closed, and with ctx's error when ctx ends before an outcome is known.
//
// What the store has told this process before a call begins, the call's answer contains,
// except for Wait's: an answer of Append, Read, ReadKept or Head that is behind it means
// that records were lost. A store that knows of a loss raises the incarnation, which also
// raises the epoch and ends the lease.
//
// A driver implements Store and, as far as its engine can, [Leaser], [Lister],
// [Trimmer], [Expirer], [Measurer], [FoldStore], [BlobStore], [Importer], [Prober], [Raiser] and [Volatile]; package storetest holds the suite
// that all of them pass.
type Store interface {
	// Append writes a batch atomically and numbers it. Errors: [ErrSuperseded],
	// [ErrNotFound], [ErrExists], [chunk.ErrTooLarge], one that wraps [ErrNotStored] if the
	// engine cannot write now, or any other error, after which the outcome is unknown: the
	// caller repeats the append with the same Ordinal to learn it. Drivers refuse what
	// package contract refuses.
	Append(ctx context.Context, a Append) (Appended, error)

	// Read returns up to max (0: [MaxRead]) records with Seq > after, in order and
	// without gaps, and the head at which it read them: both belong to the same
	// incarnation. A page may be shorter than max, as [MaxReadBytes] says; only an empty
	// one is the end. Records in between never miss: Read fails with [ErrTrimmed] if one
	// may have been trimmed (after < TraceFloor). For an unknown session it
	// returns no records and the zero Head, and none for an after beyond the head.
	Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, Head, error)

	// ReadKept is Read for kept records only. It also works below TraceFloor, for
	// folding and paging. It fails with [ErrTrimmed] if after < Floor. With Backwards
	// set it returns the records with Seq < q.Before, newest first.
	ReadKept(ctx context.Context, session string, q KeptQuery) ([]chunk.Record, Head, error)

	// Head returns the log's head; [ErrNotFound] for an unknown session.
	Head(ctx context.Context, session string) (Head, error)

	// Wait returns the head as soon as it differs from seen (the zero Head: as
	// soon as the session exists), or ctx's error. It is never late by more than a second.
	// It may return a head that is older than seen. It may return the next records, too,
	// which saves the caller a Read: of the same incarnation, the first with seen.Seq+1,
	// without gaps, none beyond the head, not more than a page. None says nothing.
	Wait(ctx context.Context, session string, seen Head) (Head, []chunk.Record, error)
}

// KeptQuery selects kept records: forward those with Seq > After, or backwards
// those with Seq < Before (0: from the head).
type KeptQuery struct {
	After     uint64
	Before    uint64
	Backwards bool
	Max       int // 0: [MaxRead]
}

// Lease is the right to execute one session's runs until it expires or a later
// claim takes it.
type Lease struct {
	Session string
	Epoch   uint64
	Owner   string
	TTL     time.Duration // from the claim or the latest renewal or append
	Head    Head          // at the claim
	Row     Row           // at the claim
	Now     int64         // the store's clock at the claim, in Unix milliseconds

	claimed time.Time // when [Logs.Claim] returned
}

// Time is what the store's clock says, in Unix milliseconds: Now, and what has passed in
// this process since. It does not depend on the process's clock being right.
func (l *Lease) Time() int64 {
	if l.claimed.IsZero() {
		return l.Now
	}
	return l.Now + time.Since(l.claimed).Milliseconds()
}

// Claim asks for a session to own. A session can be claimed when its Due time has
// passed and no lease on it is valid, or when its lease expired while its Status is
// active. A released lease counts as expired.
type Claim struct {
	// ID names this claim, so that it can be repeated if its outcome is unknown: while
	// the session's latest lease is that of a claim with this ID and Owner, the same lease
	// is returned again, renewed. "": each call is a claim of its own.
	ID      string
	Owner   string
	TTL     time.Duration // 0: [DefaultLeaseTTL]
	Agents  []string      // only sessions with one of these Row.Agent values (or none set); nil for all
	Session string        // only this session
	Force   bool          // with Session: claim it even if it has an owner, is not due, is hidden or does not exist
	Hidden  bool          // with Force: if the claim creates the session, it is hidden

	// ExpiredFor spares leases that expired less than this ago, by the store's clock: they
	// count as valid. After an outage of the store, owners that could not renew get their
	// time back so. Released leases, and those of processes that are known to be dead, are
	// not spared.
	ExpiredFor time.Duration

	// InProcess says that the owner lives in this process and ends with it. A store that
	// can prove that the process is dead gives the session to the next owner at once.
	InProcess bool

	// Principal is the session's principal if the claim creates it. With SamePrincipal,
	// which needs Session, the claim fails with [ErrExists] if the session exists and has
	// another one.
	Principal     string
	SamePrincipal bool
}

// Leaser is the role of stores that can coordinate runners. Expiry is judged by
// the store's clock inside the claim.
type Leaser interface {
	// Claim returns a lease with a new, larger epoch. If it names no session, it may find
	// one up to a second late. It fails with [ErrNothingDue], or with [ErrExists], see SamePrincipal.
	Claim(ctx context.Context, c Claim) (Lease, error)
	// Renew extends the lease by its TTL; [ErrSuperseded] if it was taken or released.
	// Any append under a lease that was not released renews it, too, even after its
	// expiry.
	Renew(ctx context.Context, l Lease) error
	// Release ends the lease at once. It is no error if the lease was superseded.
	Release(ctx context.Context, l Lease) error
	// AwaitDue returns nil when a claim by c may succeed, or ctx's error. It may return
	// early, never late by more than a second. Of several callers it need not return to
	// all at once: one of them is to claim.
	AwaitDue(ctx context.Context, c Claim) error
}

// SessionQuery selects sessions, most recently updated first.
type SessionQuery struct {
	Status    chunk.Status // "" for all
	Principal string       // "" for all
	Hidden    bool         // hidden sessions only; without it, visible ones

	// Idle selects sessions whose last append is at least this long ago, by the store's
	// clock. 0: all. What it does not select costs the store nothing.
	Idle time.Duration

	After string // opaque continuation: the NextAfter of the previous page
	Max   int    // 0 for 100
}

// SessionPage is one page of a listing.
type SessionPage struct {
	Sessions  []SessionInfo
	NextAfter string // "" on the last page
	Now       int64  // the store's clock, in Unix milliseconds
}

// Lister is the role of stores that can list sessions.
type Lister interface {
	// Sessions lists rows, which may lag behind the sessions by a second, and by ten
	// seconds in when they were updated.
	Sessions(ctx context.Context, q SessionQuery) (SessionPage, error)
	// Session returns one row as it is now; [ErrNotFound] for an unknown session.
	Session(ctx context.Context, session string) (SessionInfo, error)
}

// Trimmer is the role of stores that can remove records and sessions.
type Trimmer interface {
	// Trim removes trace records with Seq <= traceFloor and every record with
	// Seq <= floor, and raises the watermarks. Watermarks never fall, TraceFloor
	// is never below Floor, neither is above the head. [ErrNotFound] for an
	// unknown session.
	Trim(ctx context.Context, session string, traceFloor, floor uint64) error
	// Delete removes a session with its records, folds and blobs. It leaves a
	// tombstone, so that a new session with the same id starts with the next epoch and
	// incarnation. It fails with [ErrNotFound] for an unknown session.
	Delete(ctx context.Context, session string) error
}

// Expirer is the role of stores that can delete what nobody uses any more.
type Expirer interface {
	// Expire is [Trimmer].Delete, in one atomic step with the question whether the
	// session's last append is at least so long ago and no lease on it is valid. If not,
	// nothing is deleted and it fails with [ErrBusy].
	Expire(ctx context.Context, session string, idle time.Duration) error
}

// Usage is what visible sessions use.
type Usage struct {
	Sessions int64
	Bytes    int64 // of all
	Largest  int64 // bytes of the largest session
	Oldest   int64 // when the session that is idle for longest was last appended to, in Unix milliseconds; 0 if there is none
	Now      int64 // the store's clock, in Unix milliseconds
}

// Measurer is the role of stores that can sum up what they hold.
type Measurer interface {
	// Usage sums up the sessions of a principal; "": all sessions. It may read the row of
	// each of them, and reads no logs.
	Usage(ctx context.Context, principal string) (Usage, error)
}

// SavedFold is a cached fold of log[1..Seq]. It is used only if Incarnation and, unless
// the records are gone, Version match the reader's.
type SavedFold struct {
	Version     int
	Incarnation uint64
	Seq         uint64
	Data        []byte
}

// FoldStore is the role of stores that can cache folds by name.
type FoldStore interface {
	// SaveFold returns [ErrNotFound] for an unknown session.
	SaveFold(ctx context.Context, session, name string, f SavedFold) error
	// LoadFold returns [ErrNotFound] when there is none.
	LoadFold(ctx context.Context, session, name string) (SavedFold, error)
}

// BlobStore is the role of stores that can keep a session's large values outside its
// log. A blob is deleted with its session.
type BlobStore interface {
	// PutBlob stores data under its hash ("sha256:…"); a repeat is no error. The
	// session need not exist yet: a blob is stored before the record that names it.
	PutBlob(ctx context.Context, session, hash string, data []byte) error
	// GetBlob returns [ErrNotFound] for an unknown hash.
	GetBlob(ctx context.Context, session, hash string) ([]byte, error)
}

// Import is a part of a session that is copied from another store.
type Import struct {
	Info    SessionInfo    // the session as the other store has it
	Epoch   uint64         // of the lease on the session here, which is hidden
	After   uint64         // the last record of the part before; 0: this is the first, and starts over
	Records []chunk.Record // with their sequences: above TraceFloor all, up to it the kept ones
	Done    bool           // this is the last part
}

// Importer is the role of stores into which sessions of other stores can be copied.
type Importer interface {
	// Import stores a part of a session, and renews the lease. The session was created
	// hidden by a claim. Its head tells how far it is, so that it can be continued by a
	// later claim, after a crash too. The last part makes the session visible with the
	// given sequence, status, due time and row, with floors and an incarnation at least as
	// large as given, and an epoch above the given one, and ends the lease. Errors:
	// [ErrSuperseded], [ErrExists] for a visible session, [chunk.ErrInvalid] for a part that
	// does not fit, [chunk.ErrTooLarge] as for [Append].
	Import(ctx context.Context, i Import) (Head, error)
}

// Raiser is the role of stores that can be told of a loss that they have not noticed.
type Raiser interface {
	// RaiseAbove raises the session's incarnation and epoch above those of known, a head
	// from before the loss, and ends the lease, unless the incarnation is above known's
	// already. It returns the head. [ErrNotFound] for an unknown session, [ErrUnsupported].
	RaiseAbove(ctx context.Context, session string, known Head) (Head, error)
}

// Volatile is the role of stores that keep everything in memory.
type Volatile interface {
	// Volatile does nothing.
	Volatile()
}

// Prober is the role of stores that can find out whether they can write.
type Prober interface {
	// Probe makes a write that is as durable as an append, and that nobody sees.
	Probe(ctx context.Context) error
}
