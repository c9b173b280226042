// Package contract has the parts of the store contract that all drivers share: which
// calls they refuse, which sessions a claim matches, how calls change a session's head,
// and the positions of listings.
package contract

import (
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Generation is by how much a store raises incarnations and epochs after a loss: by more
// than it can have given out since the state that is left.
const Generation = 1 << 20

// CheckAppend checks an append. It returns nil, [chunk.ErrTooLarge] or
// [chunk.ErrInvalid]. Drivers call it before anything else.
func CheckAppend(a *spool.Append) error {
	switch {
	case a.Session == "":
		return chunk.ErrInvalid.Because("an append names no session")
	case a.Epoch == 0 && a.Settle != nil:
		return chunk.ErrInvalid.Because("only an owner's append can settle").With(a.Session, nil)
	case a.Epoch == 0 && len(a.Records) == 0:
		return chunk.ErrInvalid.Because("a command append needs records").With(a.Session, nil)
	case a.Epoch == 0 && a.Show:
		return chunk.ErrInvalid.Because("only an owner's append can show a session").With(a.Session, nil)
	case a.Epoch > 0 && a.SamePrincipal:
		return chunk.ErrInvalid.Because("only a command append can name its session's principal").With(a.Session, nil)
	}
	var n names
	n.check("name of the session", a.Session)
	n.check("name of the writer", a.Writer)
	if n.err != nil {
		return n.err
	}
	err := CheckRow(&a.Row)
	if err == nil {
		err = checkRecords(a.Records)
	}
	if known, ok := errors.AsType[*chunk.Error](err); ok {
		return known.With(a.Session, nil)
	}
	return nil
}

// CheckPrincipal checks the principal of an append or a claim against the head of the
// session, which exists. same is the call's SamePrincipal. It returns nil or
// [spool.ErrExists].
func CheckPrincipal(same bool, principal string, h *spool.Head, session string) error {
	if same && h.Principal != principal {
		return spool.ErrExists.With(session, nil)
	}
	return nil
}

// CheckClaim fills in a claim's defaults and checks it. It returns nil,
// [chunk.ErrTooLarge] or [chunk.ErrInvalid]. Drivers call it before anything else.
func CheckClaim(c *spool.Claim) error {
	if c.Owner == "" {
		return chunk.ErrInvalid.Because("a claim names no owner")
	}
	if c.Force && c.Session == "" {
		return chunk.ErrInvalid.Because("a forced claim names no session")
	}
	if c.Hidden && !c.Force {
		return chunk.ErrInvalid.Because("only a forced claim can hide its session")
	}
	if c.SamePrincipal && c.Session == "" {
		return chunk.ErrInvalid.Because("a claim for the sessions of a principal names no session")
	}
	if len(c.Agents) > MaxAgents {
		return chunk.ErrTooLarge.Because("the claim is for too many agent types")
	}
	if c.ExpiredFor < 0 {
		return chunk.ErrInvalid.Because("a claim's ExpiredFor is negative")
	}
	if c.TTL <= 0 {
		c.TTL = spool.DefaultLeaseTTL
	}
	var n names
	n.check("id of the claim", c.ID)
	n.check("name of the owner", c.Owner)
	n.check("name of the session", c.Session)
	n.check("principal", c.Principal)
	for _, agent := range c.Agents {
		n.check("agent type", agent)
	}
	return n.err
}

// Matches reports whether the claim wants sessions of this agent type.
func Matches(c *spool.Claim, agent string) bool {
	return c.Agents == nil || agent == "" || slices.Contains(c.Agents, agent)
}

// Wants reports whether the query is for sessions like this one.
func Wants(q *spool.SessionQuery, i *spool.SessionInfo) bool {
	return i.Head.Hidden == q.Hidden && (q.Status == "" || q.Status == i.Status) && (q.Principal == "" || q.Principal == i.Principal)
}

// Expires reports whether a session can be deleted that was to be idle for so long.
// updated is when it was appended to, expires when its lease ends (0 if it has none), and
// now the store's clock, in Unix milliseconds.
func Expires(idle time.Duration, updated, expires, now int64) bool {
	return updated <= IdleSince(idle, now) && expires <= now
}

// IdleSince returns the time of the last append, at the latest, of sessions that are idle
// for so long; [Never] for 0.
func IdleSince(idle time.Duration, now int64) int64 {
	if idle <= 0 {
		return Never
	}
	return now - TTL(idle)
}

// Place is a position in a listing, which is sorted by the latest update, newest first,
// and then by id. Drivers that page by key encode it in [spool.SessionQuery].After.
type Place struct {
	Updated int64
	Session string
}

// After returns the continuation after a row of a listing.
func After(i spool.SessionInfo) string {
	return base64.RawURLEncoding.EncodeToString(append(strconv.AppendInt(nil, i.Updated, 10), ":"+i.Session...))
}

// ParsePlace parses the text that After returns; "" is the zero Place. It fails with
// [chunk.ErrInvalid].
func ParsePlace(after string) (Place, error) {
	if after == "" {
		return Place{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(after)
	updated, session, ok := strings.Cut(string(text), ":")
	n, err2 := strconv.ParseInt(updated, 10, 64)
	if err != nil || err2 != nil || !ok {
		return Place{}, chunk.ErrInvalid.Because("the continuation is malformed")
	}
	return Place{n, session}, nil
}

// Before reports whether the row comes after this place in the listing.
func (l Place) Before(i spool.SessionInfo) bool {
	return i.Updated < l.Updated || i.Updated == l.Updated && i.Session > l.Session
}
