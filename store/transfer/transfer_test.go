package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/store/transfer"
)

type store interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.BlobStore
	spool.Importer
	Close() error
}

var errCut = errors.New("cut")

// cutting is a store whose connection breaks at the nth part, before or after it is stored.
type cutting struct {
	store
	left  int
	after bool
	then  func(n int) // called after each part
	parts int
}

func (c *cutting) Import(ctx context.Context, i spool.Import) (spool.Head, error) {
	c.parts++
	c.left--
	if c.left == 0 && !c.after {
		return spool.Head{}, errCut
	}
	h, err := c.store.Import(ctx, i)
	if c.left == 0 && err == nil {
		err = errCut
	}
	if c.then != nil {
		c.then(c.parts)
	}
	return h, err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) store {
	t.Helper()
	s, err := sqlitestore.Open(filepath.Join(t.TempDir(), "spool.db"), nil)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// fill writes a session of several pages: n records, every fourth kept, with large ones and
// blobs among them. Then its trace is trimmed up to traceFloor.
func fill(t testing.TB, s store, session string, n int, traceFloor uint64) {
	t.Helper()
	ctx := t.Context()
	l, err := s.Claim(ctx, spool.Claim{Owner: "o", Session: session, Force: true, Principal: "ann"})
	must(t, err)
	a := spool.Append{Session: session, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusEnded, Agent: "writer", Title: "About " + session}}
	flush := func() {
		_, err := s.Append(ctx, a)
		must(t, err)
		a.Records = nil
	}
	for i := range n {
		r := chunk.Record{Type: chunk.TypeTextDelta, Agent: session, Time: int64(i), Class: chunk.Trace, Data: fmt.Appendf(nil, `{"delta":"%s %d"}`, session, i)}
		if i%4 == 0 {
			r.Type, r.Class = chunk.TypeToolEnd, chunk.Kept
		}
		switch i % 10 {
		case 3:
			r.Data = fmt.Appendf(nil, `{"delta":"%s"}`, bytes.Repeat([]byte("x"), 100_000))
		case 4:
			blob := fmt.Appendf(nil, `"%s %d"`, session, i)
			must(t, s.PutBlob(ctx, session, blobref.Hash(blob), blob))
			r.Data = fmt.Appendf(nil, `{"result":{"$blob":"%s","size":%d}}`, blobref.Hash(blob), len(blob))
		}
		if a.Records = append(a.Records, r); len(a.Records) == 4 {
			flush()
		}
	}
	flush()
	must(t, s.Release(ctx, l))
	must(t, s.Trim(ctx, session, traceFloor, 0))
}

// wantSame checks that two stores have the same session.
func wantSame(t testing.TB, from, to store, session string) {
	t.Helper()
	wantAlike(t, from, to, session)
	a, err := from.Head(t.Context(), session)
	must(t, err)
	b, err := to.Head(t.Context(), session)
	must(t, err)
	if a.Incarnation != b.Incarnation {
		t.Fatalf("incarnation %d, was %d", b.Incarnation, a.Incarnation)
	}
}

// wantAlike is wantSame, but the copy may have a larger incarnation: some stores have given
// out larger ones before.
func wantAlike(t testing.TB, from, to store, session string) {
	t.Helper()
	ctx := t.Context()
	a, err := from.Session(ctx, session)
	must(t, err)
	b, err := to.Session(ctx, session)
	must(t, err)
	if b.Head.Epoch <= a.Head.Epoch || b.Head.Incarnation < a.Head.Incarnation {
		t.Fatalf("epoch %d and incarnation %d, were %d and %d", b.Head.Epoch, b.Head.Incarnation, a.Head.Epoch, a.Head.Incarnation)
	}
	b.Head.Epoch, b.Head.Incarnation = a.Head.Epoch, a.Head.Incarnation
	b.Bytes = a.Bytes // blobs of trimmed records are not copied, those of an earlier attempt stay
	if a != b {
		t.Fatalf("the copy is %+v, want %+v", b, a)
	}
	all := func(s store) (out []chunk.Record) {
		for at := a.Head.Floor; ; {
			recs, _, err := s.ReadKept(ctx, session, spool.KeptQuery{After: at})
			must(t, err)
			if len(recs) == 0 {
				break
			}
			out, at = append(out, recs...), recs[len(recs)-1].Seq
		}
		for at := a.Head.TraceFloor; ; {
			recs, _, err := s.Read(ctx, session, at, 0)
			must(t, err)
			if len(recs) == 0 {
				return out
			}
			out, at = append(out, recs...), recs[len(recs)-1].Seq
		}
	}
	mine, theirs := all(from), all(to)
	if !slices.EqualFunc(mine, theirs, func(a, b chunk.Record) bool {
		return a.Seq == b.Seq && a.Type == b.Type && a.Agent == b.Agent && a.Time == b.Time && a.Class == b.Class && bytes.Equal(a.Data, b.Data)
	}) {
		t.Fatalf("%d records, want %d", len(theirs), len(mine))
	}
	for _, r := range mine {
		for _, hash := range blobref.In(r.Data) {
			data, err := to.GetBlob(ctx, session, hash)
			if err != nil || blobref.Hash(data) != hash {
				t.Fatalf("blob %s: %q, %v", hash, data, err)
			}
		}
	}
}

// A copy has all that its source has, in both directions, and goes on there: cursors and
// commands too.
func TestCopy(t *testing.T) {
	mem, sql := memstore.New(nil), open(t)
	for session, floor := range map[string]uint64{"whole": 0, "trimmed": 30, "settled": 60, "odd": 29} {
		fill(t, mem, session, 60, floor)
		copied, err := transfer.Session(t.Context(), mem, sql, session, nil)
		if err != nil || !copied {
			t.Fatal(copied, err)
		}
		wantSame(t, mem, sql, session)
		if copied, err := transfer.Session(t.Context(), mem, sql, session, nil); err != nil || copied {
			t.Fatalf("a second time: %v, %v", copied, err)
		}
		back := memstore.New(nil)
		if copied, err := transfer.Session(t.Context(), sql, back, session, nil); err != nil || !copied {
			t.Fatal(copied, err)
		}
		wantSame(t, sql, back, session)
	}
	h, err := mem.Head(t.Context(), "trimmed")
	must(t, err)
	logs := spool.NewLogs(sql, nil)
	defer logs.Close()
	g, err := logs.Log("trimmed")
	must(t, err)
	recs, err := g.Reader(spool.ReadOptions{After: spool.Cursor{Seq: 55, Incarnation: h.Incarnation}}).Next(t.Context())
	if err != nil || len(recs) != 5 || recs[0].Seq != 56 {
		t.Fatalf("%d records after the cursor, %v", len(recs), err)
	}
	_, err = sql.Append(t.Context(), spool.Append{Session: "trimmed", SamePrincipal: true, Row: spool.Row{Principal: "bob"}, Records: recs[:1]})
	if !errors.Is(err, spool.ErrExists) {
		t.Fatalf("a command of somebody else: %v", err)
	}
	res, err := sql.Append(t.Context(), spool.Append{Session: "trimmed", SamePrincipal: true, Row: spool.Row{Principal: "ann"}, Records: recs[:1]})
	if err != nil || res.First != 61 {
		t.Fatalf("%+v, %v", res, err)
	}
	// It is another log now.
	if _, err := transfer.Session(t.Context(), mem, sql, "trimmed", nil); !errors.Is(err, spool.ErrExists) {
		t.Fatal(err)
	}
}

// Wherever a copy is cut, nobody sees it, and the next one completes it. What is there
// already is not copied again.
func TestInterruptedCopies(t *testing.T) {
	from := memstore.New(nil)
	fill(t, from, "s", 240, 50)
	whole := &cutting{store: open(t)}
	if _, err := transfer.Session(t.Context(), from, whole, "s", nil); err != nil {
		t.Fatal(err)
	}
	if whole.parts < 4 {
		t.Fatalf("only %d parts", whole.parts)
	}
	for i := range matrix.Points(t, whole.parts, 3) {
		n := i + 1
		for _, after := range []bool{false, true} {
			to := &cutting{store: open(t), left: n, after: after}
			_, err := transfer.Session(t.Context(), from, to, "s", nil)
			if !errors.Is(err, errCut) {
				t.Fatalf("part %d: %v", n, err)
			}
			page, err := to.Sessions(t.Context(), spool.SessionQuery{})
			must(t, err)
			if seen := len(page.Sessions) > 0; seen != (after && n == whole.parts) {
				t.Fatalf("part %d (stored: %v): listed %v", n, after, seen)
			}
			to.parts = 0
			if _, err := transfer.Session(t.Context(), from, to, "s", nil); err != nil {
				t.Fatalf("after part %d: %v", n, err)
			}
			wantSame(t, from, to, "s")
			if n > 1 && to.parts > whole.parts-n+1 {
				t.Fatalf("after part %d of %d another %d were stored", n, whole.parts, to.parts)
			}
		}
	}
}

// The source may be trimmed, go on, or be made again while it is copied.
func TestSourceThatChanges(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s store){
		"trimmed": func(t *testing.T, s store) { must(t, s.Trim(t.Context(), "s", 60, 8)) },
		"made again": func(t *testing.T, s store) {
			must(t, s.Delete(t.Context(), "s"))
			fill(t, s, "s", 44, 0)
		},
		"going on": func(t *testing.T, s store) {
			_, err := s.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "x", Class: chunk.Kept, Data: []byte("{}")}}})
			must(t, err)
		},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, restart), func(t *testing.T) {
				from := memstore.New(nil)
				fill(t, from, "s", 240, 10)
				to := &cutting{store: open(t)}
				to.then = func(n int) {
					if n == 3 {
						change(t, from)
					}
				}
				if restart {
					to.left, to.after = 3, true
					if _, err := transfer.Session(t.Context(), from, to, "s", nil); !errors.Is(err, errCut) {
						t.Fatal(err)
					}
				}
				if _, err := transfer.Session(t.Context(), from, to, "s", nil); err != nil {
					t.Fatal(err)
				}
				a, err := from.Session(t.Context(), "s")
				must(t, err)
				b, err := to.Session(t.Context(), "s")
				must(t, err)
				if a.Head.Floor == b.Head.Floor && a.Head.TraceFloor == b.Head.TraceFloor {
					wantSame(t, from, to, "s")
				} else {
					t.Fatalf("floors %+v, want %+v", b.Head, a.Head)
				}
			})
		}
	}
}

func TestRefusedCopies(t *testing.T) {
	from, to := memstore.New(nil), open(t)
	if _, err := transfer.Session(t.Context(), from, to, "nobody", nil); !errors.Is(err, spool.ErrNotFound) {
		t.Fatal(err)
	}
	fill(t, from, "s", 8, 0)
	fill(t, to, "s", 8, 0)
	_, err := to.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "x", Class: chunk.Kept, Data: []byte("{}")}}})
	must(t, err)
	if _, err := transfer.Session(t.Context(), from, to, "s", nil); !errors.Is(err, spool.ErrExists) {
		t.Fatal(err)
	}
	if _, err := from.Claim(t.Context(), spool.Claim{Owner: "o", Session: "hidden", Force: true, Hidden: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.Session(t.Context(), from, to, "hidden", nil); !errors.Is(err, spool.ErrNotFound) {
		t.Fatal(err)
	}
	type bare struct{ spool.Store }
	if _, err := transfer.Session(t.Context(), from, bare{to}, "s", nil); !errors.Is(err, spool.ErrUnsupported) {
		t.Fatal(err)
	}
	// A second copier takes over, and the first one ends.
	fill(t, from, "raced", 240, 0)
	first := &cutting{store: to}
	first.then = func(n int) {
		if n == 2 {
			if _, err := transfer.Session(t.Context(), from, to, "raced", nil); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := transfer.Session(t.Context(), from, first, "raced", nil); !errors.Is(err, spool.ErrExists) && !errors.Is(err, spool.ErrSuperseded) {
		t.Fatal(err)
	}
	wantSame(t, from, to, "raced")
}
