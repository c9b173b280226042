package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// Append implements [spool.Store].
func (s *Store) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if err := s.usable(ctx); err != nil {
		return spool.Appended{}, err
	}
	if err := contract.CheckAppend(&a); err != nil {
		return spool.Appended{}, err
	}
	r := &request{ctx: ctx, append: &a, weight: len(a.Records) + 1}
	for i := range a.Records {
		r.bytes += len(a.Records[i].Data)
	}
	if err := s.enqueue(r); err != nil {
		return spool.Appended{}, err
	}
	return r.out, nil
}

// Codes of append_group.
const (
	codeAppended = iota
	codeRepeated
	codeHidden
	codePrincipal
	codeSuperseded
	codeLater
	codeWriters
)

// group are the arguments of append_group that come from its appends.
type group struct {
	numbers []int64
	texts   []string
	records
	of []int32
}

const callAppend = "SELECT * FROM append_group($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"

func (g *group) args(s *Store, ahead, floor int64) []any {
	return []any{s.name, s.channel, int64(s.blank().Epoch), s.losses.Load() * versions, contract.MaxWriters, ahead, floor,
		g.numbers, g.texts, g.of, g.typ, g.agent, g.time, g.trace, g.data}
}

// take adds an append, whose records have so many bytes.
func (g *group) take(a *spool.Append, bytes int) {
	seen, next, flags := int64(-1), int64(0), int64(0)
	if a.Settle != nil {
		seen, next = number(a.Settle.Seen), a.Settle.Next
	}
	if a.SamePrincipal {
		flags++
	}
	if a.Show {
		flags += 2
	}
	g.numbers = append(g.numbers, number(a.Epoch), number(a.Ordinal), int64(len(a.Records)), int64(bytes), seen, next, flags)
	quoted, _ := json.Marshal(a.Session)
	g.texts = append(g.texts, a.Session, string(quoted), a.Writer, string(a.Row.Status), a.Row.Agent, a.Row.Title, a.Row.Principal, hint(a.Records, bytes))
	for i := range a.Records {
		g.of = append(g.of, int32(len(g.numbers)/numbers))
		g.add(&a.Records[i])
	}
}

// numbers is how many an append has.
const numbers = 7

// number is a number that the engine can hold.
func number(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// hints are what notifications have of records; nil if they are too large for that.
func hints(records []chunk.Record, bytes int) []noteRecord {
	if bytes > maxHint || len(records) > maxHints {
		return nil
	}
	out := make([]noteRecord, len(records))
	for i, r := range records {
		out[i] = noteRecord{Type: r.Type, Agent: r.Agent, Time: r.Time, Class: r.Class, Data: r.Data}
	}
	return out
}

// hint is the JSON of hints, or "".
func hint(records []chunk.Record, bytes int) string {
	found := hints(records, bytes)
	text, err := json.Marshal(found)
	if found == nil || err != nil {
		return ""
	}
	return string(text)
}

// answer is a row of append_group's.
type answer struct {
	headRow
	code        int
	first, last uint64
	sooner      int
	wall, now   int64
}

func (x *answer) fields() []any {
	h := &x.head
	return []any{&x.code, &x.first, &x.last, &x.sooner, &x.wall, &x.now, &x.version, &x.alive, &h.Seq, &h.Incarnation, &h.TraceFloor, &h.Floor, &h.Epoch,
		(*string)(&h.Status), &h.Due, &h.Pending, &h.Hidden, &h.Principal}
}

// appendGroup stores appends with one statement, which is a transaction. sent says on an error
// that they may be stored, and that a repeat could store them twice: those with an ordinal
// cannot be.
func (w *writer) appendGroup(ctx context.Context, c *pgx.Conn, requests []*request) (sent bool, err error) {
	var g group
	numbered := true
	all := make([]*request, 0, len(requests))
	for _, r := range requests {
		if r.err = r.ctx.Err(); r.err == nil {
			all = append(all, r)
			numbered = numbered && r.append.Epoch > 0 && r.append.Ordinal > 0
		}
	}
	slices.SortStableFunc(all, func(a, b *request) int { return strings.Compare(a.append.Session, b.append.Session) })
	if len(all) == 0 {
		return false, nil
	}
	w.known.on(c)
	if len(all) == 1 {
		if done, err := w.appendNext(ctx, c, all[0]); done || err != nil {
			return !numbered && !pgconn.SafeToRetry(err), err
		}
	}
	for _, r := range all {
		g.take(r.append, r.bytes)
	}
	ahead, floor := w.s.clock.leads()
	offset := w.s.offset()
	answers, err := call(ctx, c, g.args(w.s, ahead+offset, floor), len(all))
	if err != nil {
		return !numbered && !pgconn.SafeToRetry(err), err
	}
	last := &answers[len(answers)-1]
	w.s.clock.at(last.wall+offset, last.now)
	for i, r := range all {
		x := &answers[i]
		r.out, r.err = x.result(r.append)
		w.known.note(r.append, x.headRow, x.code == codeAppended)
	}
	w.s.appended(all, answers)
	return true, nil
}

func call(ctx context.Context, c *pgx.Conn, args []any, n int) ([]answer, error) {
	rows, err := c.Query(ctx, callAppend, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	answers := make([]answer, 0, n)
	for rows.Next() {
		answers = append(answers, answer{})
		if err := rows.Scan(answers[len(answers)-1].fields()...); err != nil {
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(answers) != n {
		return nil, fmt.Errorf("append_group answers %d of %d appends", len(answers), n)
	}
	return answers, nil
}

// result is the answer for the caller of an append.
func (x *answer) result(a *spool.Append) (spool.Appended, error) {
	switch x.code {
	case codeHidden:
		return spool.Appended{}, spool.ErrNotFound.With(a.Session, nil)
	case codePrincipal:
		return spool.Appended{}, spool.ErrExists.With(a.Session, nil)
	case codeSuperseded:
		return spool.Appended{}, spool.ErrSuperseded.With(a.Session, nil)
	case codeLater:
		return spool.Appended{}, chunk.ErrInvalid.Because("a later append of this writer is stored").With(a.Session, nil)
	case codeWriters:
		return spool.Appended{}, contract.CheckWriter(a.Session, contract.MaxWriters)
	}
	return spool.Appended{First: x.first, Last: x.last, Head: x.head, Repeated: x.code == codeRepeated}, nil
}

// appended tells this process's waiters of a group.
func (s *Store) appended(all []*request, answers []answer) {
	var fresh []chunk.Record
	for i, r := range all {
		x := &answers[i]
		if x.code == codeAppended {
			fresh = follow(fresh, r.append.Records, x.first)
		}
		for range x.sooner {
			s.claimers.Wake()
		}
		if i+1 < len(all) && all[i+1].append.Session == r.append.Session {
			continue
		}
		if x.alive {
			w := x.watched()
			w.Records = fresh
			s.hub.Apply(r.append.Session, w)
		}
		fresh = nil
	}
}
