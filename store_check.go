package spool

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool/chunk"
)

// DefaultLeaseTTL is the TTL of a claim that names none.
const DefaultLeaseTTL = 30 * time.Second

// MaxRead is what a read asks for when its max is 0, and the most that a driver
// need return at once.
const MaxRead = 1000

// Check says whether a store may be asked for this append at all: nil,
// [chunk.ErrTooLarge] or [chunk.ErrInvalid]. Drivers call it before anything else.
func (a *Append) Check() error {
	switch {
	case a.Session == "":
		return chunk.ErrInvalid.Because("an append names no session")
	case a.Epoch == 0 && a.Settle != nil:
		return chunk.ErrInvalid.Because("only an owner settles").With(a.Session, nil)
	case a.Epoch == 0 && len(a.Records) == 0:
		return chunk.ErrInvalid.Because("a command's append has no records").With(a.Session, nil)
	case len(a.Records) > MaxAppendRecords:
		return chunk.ErrTooLarge.Because("the append has too many records").With(a.Session, nil)
	}
	total := 0
	for i := range a.Records {
		n := len(a.Records[i].Data)
		if n > chunk.MaxRecordBytes {
			return chunk.ErrTooLarge.Because("a record is too large").With(a.Session, nil)
		}
		total += n
	}
	if total > MaxAppendBytes {
		return chunk.ErrTooLarge.Because("the append is too large").With(a.Session, nil)
	}
	return nil
}

// Check completes a claim and says whether it makes sense: nil or
// [chunk.ErrInvalid]. Drivers call it before anything else.
func (c *Claim) Check() error {
	if c.Owner == "" {
		return chunk.ErrInvalid.Because("a claim names no owner")
	}
	if c.Force && c.Session == "" {
		return chunk.ErrInvalid.Because("a forced claim names no session")
	}
	if c.TTL <= 0 {
		c.TTL = DefaultLeaseTTL
	}
	return nil
}

// Matches reports whether the claim wants sessions of this agent type.
func (c *Claim) Matches(agent string) bool {
	return c.Agents == nil || agent == "" || slices.Contains(c.Agents, agent)
}

// Wants reports whether the query is for sessions of this status.
func (q *SessionQuery) Wants(status chunk.Status) bool {
	if q.Status == "" {
		return status != chunk.StatusCopying
	}
	return q.Status == status
}

// Listing is a place in a listing: most recently updated first, then by id. It
// is what the text of [SessionQuery].After holds for drivers that page by key.
type Listing struct {
	Updated int64
	Session string
}

// ListingAfter returns the continuation after a listing's line.
func ListingAfter(i SessionInfo) string {
	return base64.RawURLEncoding.EncodeToString(append(strconv.AppendInt(nil, i.Updated, 10), ":"+i.Session...))
}

// ParseListing reads what ListingAfter wrote; "" is the zero Listing. It fails
// with [chunk.ErrInvalid].
func ParseListing(after string) (Listing, error) {
	if after == "" {
		return Listing{}, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(after)
	updated, session, ok := strings.Cut(string(text), ":")
	n, err2 := strconv.ParseInt(updated, 10, 64)
	if err != nil || err2 != nil || !ok {
		return Listing{}, chunk.ErrInvalid.Because("the continuation is not one of ours")
	}
	return Listing{n, session}, nil
}

// Before reports whether the line comes after this place in the listing.
func (l Listing) Before(i SessionInfo) bool {
	return i.Updated < l.Updated || i.Updated == l.Updated && i.Session > l.Session
}
