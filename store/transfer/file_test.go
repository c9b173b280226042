package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/transfer"
)

func export(t testing.TB, from spool.Store, session string) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, transfer.Export(t.Context(), from, session, &b))
	return b.Bytes()
}

// records are the lines of a file between the first and the last.
func records(file []byte) []byte {
	_, rest, _ := bytes.Cut(file, []byte("\n"))
	return rest[:bytes.LastIndex(rest, []byte(`{"end"`))]
}

// sealed is a file with these lines, and an end line whose counts and hash are right.
func sealed(lines ...string) []byte {
	text := strings.Join(lines, "\n") + "\n"
	sum := sha256.Sum256([]byte(text))
	return fmt.Appendf(nil, `%s{"end":{"records":%d,"values":%d,"sha256":"%s"}}`+"\n",
		text, strings.Count(text, "\n"+`{"seq":`), strings.Count(text, "\n"+`{"value":`), hex.EncodeToString(sum[:]))
}

// A file is the session: every store reads it, and writes the same file again.
func TestExportAndImport(t *testing.T) {
	from := memstore.New(nil)
	for session, floor := range map[string]uint64{"whole": 0, "trimmed": 30, "settled": 60, "odd": 29} {
		fill(t, from, session, 60, floor)
		first := export(t, from, session)
		var src store = from
		for _, to := range []store{open(t), memstore.New(nil), open(t)} {
			id, copied, err := transfer.Import(t.Context(), bytes.NewReader(export(t, src, session)), to, nil)
			if err != nil || !copied || id != session {
				t.Fatal(id, copied, err)
			}
			wantSame(t, src, to, session)
			if _, copied, err := transfer.Import(t.Context(), bytes.NewReader(first), to, nil); err != nil || copied {
				t.Fatalf("a second time: %v, %v", copied, err)
			}
			src = to
		}
		wantSame(t, from, src, session)
		if !bytes.Equal(records(first), records(export(t, src, session))) { // the epoch is another one
			t.Fatalf("%s: the fourth store writes another file", session)
		}
	}
}

// The bytes of records and values are read back as they are, JSON or not.
func TestFilesKeepBytes(t *testing.T) {
	from, ctx := memstore.New(nil), t.Context()
	l, err := from.Claim(ctx, spool.Claim{Owner: "o", Session: "ü \"1\"", Force: true, Principal: "<ann>"})
	must(t, err)
	a := spool.Append{Session: l.Session, Epoch: l.Epoch, Row: spool.Row{Status: chunk.StatusPaused, Title: "a\u2028b</script>"}}
	texts := []string{
		"", "null", "{}", ` {}`, "{}\n", "{\n}", "{\"a\":\t1 }", `"` + "\xff" + `"`, "\x00\x01\xff", `1},{"seq":2`, `1,"seq":9`, `{"a":"<\u2028>"}`, "1e400", "\r", `"` + "\u2028" + `"`,
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), `{"`,
	}
	for _, text := range texts {
		a.Records = append(a.Records, chunk.Record{Type: "x/<&>", Agent: "ü", Time: -1, Data: []byte(text)})
		value := []byte(text)
		must(t, from.PutBlob(ctx, l.Session, blobref.Hash(value), value))
		a.Records = append(a.Records, chunk.Record{Type: "y", Class: chunk.Trace, Time: 1 << 60, Data: fmt.Appendf(nil, `{"$blob":"%s"}`, blobref.Hash(value))})
	}
	_, err = from.Append(ctx, a)
	must(t, err)
	to := open(t)
	if _, copied, err := transfer.Import(ctx, bytes.NewReader(export(t, from, l.Session)), to, nil); err != nil || !copied {
		t.Fatal(copied, err)
	}
	wantSame(t, from, to, l.Session)
}

// The format is what docs/session-files.md says, byte for byte.
func TestFileFormat(t *testing.T) {
	file := sealed(
		`{"spool":"session","version":1,"session":"s","status":"ended","agent":"writer","principal":"ann","title":"T","updated":1700000000000,"seq":4,"traceFloor":2,"floor":0,"incarnation":1,"epoch":3}`,
		`{"seq":1,"type":"user_message","agent":"s","time":1699999999000,"class":"kept","data":{"text":"hello"}}`,
		`{"value":"`+blobref.Hash([]byte(`"large"`))+`","data":"large"}`,
		`{"seq":3,"type":"tool_end","agent":"s","time":1699999999500,"class":"kept","data":{"result":{"$blob":"`+blobref.Hash([]byte(`"large"`))+`","size":7,"mediaType":"application/json"}}}`,
		`{"seq":4,"type":"text_delta","agent":"s","time":1699999999600,"class":"trace","base64":"/w=="}`,
	)
	to := memstore.New(nil)
	if _, copied, err := transfer.Import(t.Context(), bytes.NewReader(file), to, nil); err != nil || !copied {
		t.Fatal(copied, err)
	}
	want := string(file[:bytes.LastIndex(file, []byte(`{"end"`))])
	have := export(t, to, "s")
	if got := strings.Replace(string(have[:bytes.LastIndex(have, []byte(`{"end"`))]), `"epoch":4`, `"epoch":3`, 1); got != want {
		t.Fatalf("%s\nwant\n%s", got, want)
	}
}

// What is damaged anywhere, or ends anywhere, is refused before anything is stored.
func TestDamagedFiles(t *testing.T) {
	from := memstore.New(nil)
	fill(t, from, "s", 8, 2)
	whole := export(t, from, "s")
	lines := bytes.SplitAfter(whole, []byte("\n"))
	refused := func(what string, file []byte) {
		t.Helper()
		to := memstore.New(nil)
		_, copied, err := transfer.Import(t.Context(), bytes.NewReader(file), to, nil)
		if copied || !errors.Is(err, transfer.ErrDamaged) && !errors.Is(err, chunk.ErrInvalid) && !errors.Is(err, chunk.ErrTooLarge) && !errors.Is(err, spool.ErrUnsupported) {
			t.Fatalf("%s: %v, %v", what, copied, err)
		}
		if _, err := to.Head(t.Context(), "s"); !errors.Is(err, spool.ErrNotFound) {
			t.Fatalf("%s: something was stored: %v", what, err)
		}
	}
	var at []int // a place in each line, and all of the first and last lines
	for i, off := 0, 0; i < len(lines)-1; i++ {
		step := max(1, len(lines[i])/7)
		if i == 0 || i == len(lines)-2 {
			step = 1
		}
		for n := 0; n < len(lines[i]); n += step {
			at = append(at, off+n)
		}
		off += len(lines[i])
	}
	for i := range matrix.Points(t, len(at), 7) {
		n := at[i]
		refused(fmt.Sprintf("ends after %d", n), whole[:n])
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1
		refused(fmt.Sprintf("flipped at %d: %.80q", n, flipped[max(0, n-40):]), flipped)
	}
	refused("appended", append(bytes.Clone(whole), '\n'))
	for i := range len(lines) - 1 {
		refused(fmt.Sprintf("without line %d", i), bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil))
	}
}

// A file whose hash is right may still say what no session is.
func TestForgedFiles(t *testing.T) {
	head := func(change ...string) string {
		return strings.NewReplacer(change...).Replace(`{"spool":"session","version":1,"session":"s","status":"ended","updated":1,"seq":2,"traceFloor":0,"floor":0,"incarnation":1,"epoch":1}`)
	}
	rec := func(seq int, more string) string {
		return fmt.Sprintf(`{"seq":%d,"type":"x","agent":"s","time":0,"class":"kept"%s}`, seq, more)
	}
	const data = `,"data":{}`
	if _, _, err := transfer.Import(t.Context(), bytes.NewReader(sealed(head(), rec(1, data), rec(2, data))), memstore.New(nil), nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want  error
		lines []string
	}{
		"another version":       {spool.ErrUnsupported, []string{head(`"version":1`, `"version":2,"new":1`)}},
		"no file of a session":  {chunk.ErrInvalid, []string{`{"a":1}`}},
		"unknown member":        {chunk.ErrInvalid, []string{head(`"seq":2`, `"seq":2,"more":1`), rec(1, data), rec(2, data)}},
		"unknown entry":         {chunk.ErrInvalid, []string{head(), rec(1, data), rec(2, data), `{"what":1}`}},
		"no session":            {chunk.ErrInvalid, []string{head(`"s"`, `""`), rec(1, data), rec(2, data)}},
		"no status":             {chunk.ErrInvalid, []string{head(`"ended"`, `""`), rec(1, data), rec(2, data)}},
		"no incarnation":        {chunk.ErrInvalid, []string{head(`"incarnation":1`, `"incarnation":0`), rec(1, data), rec(2, data)}},
		"floors above the head": {chunk.ErrInvalid, []string{head(`"traceFloor":0`, `"traceFloor":9`)}},
		"numbers too large":     {chunk.ErrInvalid, []string{head(`"epoch":1`, `"epoch":9007199254740992`), rec(1, data), rec(2, data)}},
		"title too long":        {chunk.ErrTooLarge, []string{head(`"updated"`, `"title":"`+strings.Repeat("x", 2000)+`","updated"`), rec(1, data), rec(2, data)}},
		"a record is missing":   {chunk.ErrInvalid, []string{head(), rec(2, data)}},
		"the last is missing":   {chunk.ErrInvalid, []string{head(), rec(1, data)}},
		"one twice":             {chunk.ErrInvalid, []string{head(), rec(1, data), rec(1, data), rec(2, data)}},
		"beyond the head":       {chunk.ErrInvalid, []string{head(), rec(1, data), rec(2, data), rec(3, data)}},
		"trace below the floor": {chunk.ErrInvalid, []string{head(`"traceFloor":0`, `"traceFloor":2`), strings.Replace(rec(1, data), "kept", "trace", 1)}},
		"another class":         {chunk.ErrInvalid, []string{head(), strings.Replace(rec(1, data), "kept", "other", 1), rec(2, data)}},
		"no data":               {chunk.ErrInvalid, []string{head(), rec(1, ""), rec(2, data)}},
		"data twice":            {chunk.ErrInvalid, []string{head(), rec(1, data+`,"base64":""`), rec(2, data)}},
		"record too large":      {chunk.ErrTooLarge, []string{head(), rec(1, `,"data":"`+strings.Repeat("x", chunk.MaxRecordBytes)+`"`), rec(2, data)}},
		"value too large":       {chunk.ErrTooLarge, []string{head(), `{"value":"sha256:1","data":"` + strings.Repeat("x", 17<<20) + `"}`, rec(1, data), rec(2, data)}},
		"line too long":         {chunk.ErrTooLarge, []string{head(), `{"value":"sha256:1","data":"` + strings.Repeat("x", 24<<20) + `"}`}},
		"another value":         {transfer.ErrDamaged, []string{head(), `{"value":"` + blobref.Hash([]byte("1")) + `","data":2}`, rec(1, data), rec(2, data)}},
		"a fold of nothing":     {chunk.ErrInvalid, []string{head(), `{"fold":14,"incarnation":1,"seq":1,"data":{}}`, rec(1, data), rec(2, data)}},
	} {
		t.Run(name, func(t *testing.T) {
			to := memstore.New(nil)
			if _, _, err := transfer.Import(t.Context(), bytes.NewReader(sealed(c.lines...)), to, nil); !errors.Is(err, c.want) {
				t.Fatal(err)
			}
			if page, err := to.Sessions(t.Context(), spool.SessionQuery{Hidden: true}); err != nil || len(page.Sessions) > 0 {
				t.Fatal("something was stored", err)
			}
		})
	}
}

// An import that is cut anywhere is completed by the next one, of the same file or of
// another session's with the same id.
func TestInterruptedImports(t *testing.T) {
	from, other := memstore.New(nil), memstore.New(nil)
	fill(t, from, "s", 80, 30)
	fill(t, other, "s", 40, 10)
	file, another := export(t, from, "s"), export(t, other, "s")
	whole := &cutting{store: open(t)}
	if _, _, err := transfer.Import(t.Context(), bytes.NewReader(file), whole, nil); err != nil {
		t.Fatal(err)
	}
	for i := range matrix.Points(t, whole.parts, 3) {
		for _, after := range []bool{false, true} {
			for _, next := range []struct {
				file []byte
				src  store
			}{{file, from}, {another, other}} {
				to := &cutting{store: open(t), left: i + 1, after: after}
				if _, _, err := transfer.Import(t.Context(), bytes.NewReader(file), to, nil); !errors.Is(err, errCut) {
					t.Fatal(err)
				}
				_, _, err := transfer.Import(t.Context(), bytes.NewReader(next.file), to, nil)
				if after && i+1 == whole.parts && next.src == other { // it was whole
					if !errors.Is(err, spool.ErrExists) {
						t.Fatal(err)
					}
					continue
				}
				must(t, err)
				wantSame(t, next.src, to, "s")
			}
		}
	}
}

// Where a session's first records are gone, the state that they made is in the saved fold,
// which copies and files have. Where they are not, it is a cache and stays behind.
func TestFoldOfGoneRecords(t *testing.T) {
	ctx := t.Context()
	value := []byte(`"in the fold"`)
	for _, floor := range []uint64{0, 9} {
		from := memstore.New(nil)
		fill(t, from, "s", 60, 30)
		must(t, from.PutBlob(ctx, "s", blobref.Hash(value), value))
		saved := spool.SavedFold{Version: 14, Incarnation: 1, Seq: 20, Data: fmt.Appendf(nil, `{"value":{"$blob":"%s","size":1}}`, blobref.Hash(value))}
		must(t, from.SaveFold(ctx, "s", spool.FoldName, saved))
		must(t, from.Trim(ctx, "s", 30, floor))
		for name, copied := range map[string]func(to spool.Store) error{
			"copy": func(to spool.Store) error { _, err := transfer.Session(ctx, from, to, "s", nil); return err },
			"file": func(to spool.Store) error {
				_, _, err := transfer.Import(ctx, bytes.NewReader(export(t, from, "s")), to, nil)
				return err
			},
		} {
			to := memstore.New(nil)
			l, err := to.Claim(ctx, spool.Claim{Owner: "o", Session: "s", Force: true}) // so that its incarnation is larger
			must(t, err)
			must(t, to.Release(ctx, l))
			must(t, to.Delete(ctx, "s"))
			must(t, copied(to))
			h, err := to.Head(ctx, "s")
			must(t, err)
			got, err := to.LoadFold(ctx, "s", spool.FoldName)
			if floor == 0 {
				if !errors.Is(err, spool.ErrNotFound) {
					t.Fatalf("%s: a cache was copied: %v", name, err)
				}
				continue
			}
			must(t, err)
			if got.Incarnation != h.Incarnation || h.Incarnation < 2 || got.Seq != 20 || got.Version != 14 || !bytes.Equal(got.Data, saved.Data) {
				t.Fatalf("%s: %+v at %+v", name, got, h)
			}
			if data, err := to.GetBlob(ctx, "s", blobref.Hash(value)); err != nil || !bytes.Equal(data, value) {
				t.Fatalf("%s: %q, %v", name, data, err)
			}
		}
	}
}

// changing is a store that changes when its nth page is read.
type changing struct {
	store
	n      int
	change func()
}

func (c *changing) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	if c.n--; c.n == 0 {
		c.change()
	}
	return c.store.Read(ctx, session, after, max)
}

// What is appended while a session is exported is not in the file. If it is trimmed or made
// again meanwhile, there is no file.
func TestExportOfWhatChanges(t *testing.T) {
	for name, c := range map[string]struct {
		want   error
		change func(s store)
	}{
		"going on": {nil, func(s store) {
			_, err := s.Append(t.Context(), spool.Append{Session: "s", Records: []chunk.Record{{Type: "x", Data: []byte("{}")}}})
			must(t, err)
		}},
		"trimmed":    {transfer.ErrChanged, func(s store) { must(t, s.Trim(t.Context(), "s", 200, 0)) }},
		"made again": {transfer.ErrChanged, func(s store) { must(t, s.Delete(t.Context(), "s")); fill(t, s, "s", 300, 0) }},
		"deleted":    {transfer.ErrChanged, func(s store) { must(t, s.Delete(t.Context(), "s")) }},
	} {
		t.Run(name, func(t *testing.T) {
			from := memstore.New(nil)
			fill(t, from, "s", 240, 0)
			before := export(t, from, "s")
			var file bytes.Buffer
			err := transfer.Export(t.Context(), &changing{store: from, n: 2, change: func() { c.change(from) }}, "s", &file)
			if !errors.Is(err, c.want) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			to := memstore.New(nil)
			_, _, err = transfer.Import(t.Context(), bytes.NewReader(file.Bytes()), to, nil)
			must(t, err)
			if a, err := to.Head(t.Context(), "s"); err != nil || a.Seq != 240 || a.Pending {
				t.Fatalf("%+v, %v", a, err)
			}
			if !bytes.Equal(records(export(t, to, "s")), records(before)) {
				t.Fatal("other records are in the file")
			}
		})
	}
}

// forgetful is a store that stores something else than it says.
type forgetful struct {
	store
	spoil func(i *spool.Import)
	value func(hash string) bool // it loses this one
}

func (f *forgetful) Import(ctx context.Context, i spool.Import) (spool.Head, error) {
	if f.spoil != nil {
		f.spoil(&i)
	}
	return f.store.Import(ctx, i)
}

func (f *forgetful) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	if f.value != nil && f.value(hash) {
		return nil
	}
	return f.store.PutBlob(ctx, session, hash, data)
}

// A copy is read back before anybody sees it. If the store has something else than it was
// given, the copy is given up, and the next one begins again.
func TestCopiesAreChecked(t *testing.T) {
	from := memstore.New(nil)
	fill(t, from, "s", 60, 10)
	file := export(t, from, "s")
	for name, spoiled := range map[string]func() *forgetful{
		"a byte": func() *forgetful {
			done := false
			return &forgetful{spoil: func(i *spool.Import) {
				if n := len(i.Records); n > 0 && !done {
					done = true
					i.Records = slices.Clone(i.Records)
					i.Records[n-1].Data = bytes.ToUpper(i.Records[n-1].Data)
				}
			}}
		},
		"a value": func() *forgetful {
			done := false
			return &forgetful{value: func(string) bool { was := done; done = true; return !was }}
		},
	} {
		for _, fromFile := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, fromFile), func(t *testing.T) {
				to := spoiled()
				to.store = open(t)
				run := func() error {
					if fromFile {
						_, _, err := transfer.Import(t.Context(), bytes.NewReader(file), to, nil)
						return err
					}
					_, err := transfer.Session(t.Context(), from, to, "s", nil)
					return err
				}
				if err := run(); !errors.Is(err, transfer.ErrDamaged) {
					t.Fatal(err)
				}
				if page, err := to.Sessions(t.Context(), spool.SessionQuery{}); err != nil || len(page.Sessions) > 0 {
					t.Fatal("the copy can be seen", err)
				}
				must(t, run())
				wantSame(t, from, to, "s")
			})
		}
	}
}

// rotten is a store with values that are not what their hash says.
type rotten struct{ store }

func (r rotten) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	data, err := r.store.GetBlob(ctx, session, hash)
	return append(data, ' '), err
}

// A large value that is not what its hash says is not copied.
func TestDamagedValues(t *testing.T) {
	from, to := memstore.New(nil), memstore.New(nil)
	fill(t, from, "s", 20, 0)
	if err := transfer.Export(t.Context(), rotten{from}, "s", io.Discard); !errors.Is(err, transfer.ErrDamaged) {
		t.Fatal(err)
	}
	if _, err := transfer.Session(t.Context(), rotten{from}, to, "s", nil); !errors.Is(err, transfer.ErrDamaged) {
		t.Fatal(err)
	}
	if _, err := transfer.Session(t.Context(), from, to, "s", nil); err != nil {
		t.Fatal(err)
	}
}

// readOnly is all that copying may use of its source.
type readOnly struct {
	spool.Store // nil: calls of it panic, but for those below
	s           store
}

func (r readOnly) Read(ctx context.Context, id string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	return r.s.Read(ctx, id, after, max)
}
func (r readOnly) ReadKept(ctx context.Context, id string, q spool.KeptQuery) ([]chunk.Record, spool.Head, error) {
	return r.s.ReadKept(ctx, id, q)
}
func (r readOnly) Session(ctx context.Context, id string) (spool.SessionInfo, error) {
	return r.s.Session(ctx, id)
}
func (r readOnly) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	return r.s.Sessions(ctx, q)
}
func (r readOnly) PutBlob(context.Context, string, string, []byte) error { panic("written") }
func (r readOnly) GetBlob(ctx context.Context, id, hash string) ([]byte, error) {
	return r.s.GetBlob(ctx, id, hash)
}

// Copying and exporting only read their source.
func TestSourceIsOnlyRead(t *testing.T) {
	mem, to := memstore.New(nil), memstore.New(nil)
	fill(t, mem, "s", 60, 10)
	before, err := mem.Session(t.Context(), "s")
	must(t, err)
	from := readOnly{s: mem}
	_, err = transfer.Session(t.Context(), from, to, "s", nil)
	must(t, err)
	wantSame(t, mem, to, "s")
	must(t, transfer.Export(t.Context(), from, "s", io.Discard))
	if after, err := mem.Session(t.Context(), "s"); err != nil || after != before {
		t.Fatalf("%+v, was %+v, %v", after, before, err)
	}
}

// Whatever a file says, it is read without a panic, and what is taken can be exported again.
func FuzzImport(f *testing.F) {
	from := memstore.New(nil)
	fill(f, from, "s", 8, 2)
	f.Add(export(f, from, "s"))
	f.Add(sealed(`{"spool":"session","version":1,"session":"s","status":"ended","updated":1,"seq":0,"traceFloor":0,"floor":0,"incarnation":1,"epoch":1}`))
	f.Add(sealed(`{"spool":"session","version":1,"session":"s","status":"ended","updated":1,"seq":2,"traceFloor":2,"floor":1,"incarnation":1,"epoch":1}`, `{"fold":14,"incarnation":1,"seq":1,"base64":"AA=="}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		// The hash stands in the way of nearly every change, so it is made right, too.
		for _, file := range [][]byte{file, sealed(strings.Split(strings.TrimSuffix(string(file), "\n"), "\n")...)} {
			to := memstore.New(nil)
			id, copied, err := transfer.Import(t.Context(), bytes.NewReader(file), to, nil)
			if err != nil {
				if copied {
					continue // begun, and refused by the store
				}
				if page, err := to.Sessions(t.Context(), spool.SessionQuery{}); err != nil || len(page.Sessions) > 0 {
					t.Fatal("something can be seen")
				}
				continue
			}
			again, next := export(t, to, id), memstore.New(nil)
			if _, _, err := transfer.Import(t.Context(), bytes.NewReader(again), next, nil); err != nil {
				t.Fatalf("%v: %s", err, again)
			}
			wantSame(t, to, next, id)
		}
	})
}
