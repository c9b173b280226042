package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// calls is every method, for what holds for all.
func calls(s spool.Store) map[string]func(context.Context) error {
	m := map[string]func(context.Context) error{
		"Append": func(ctx context.Context) error {
			_, err := s.Append(ctx, spool.Append{Session: "s", Records: recs(chunk.Kept, "x", 1)})
			return err
		},
		"Read":     func(ctx context.Context) error { _, _, err := s.Read(ctx, "s", 0, 10); return err },
		"ReadKept": func(ctx context.Context) error { _, _, err := s.ReadKept(ctx, "s", spool.KeptQuery{}); return err },
		"Head":     func(ctx context.Context) error { _, err := s.Head(ctx, "s"); return err },
		"Wait":     func(ctx context.Context) error { _, _, err := s.Wait(ctx, "s", spool.Head{}); return err },
	}
	if r, ok := s.(spool.Leaser); ok {
		l := spool.Lease{Session: "s", Epoch: 1, Owner: "o", TTL: time.Minute}
		m["Claim"] = func(ctx context.Context) error { _, err := r.Claim(ctx, spool.Claim{Owner: "o"}); return err }
		m["Renew"] = func(ctx context.Context) error { return r.Renew(ctx, l) }
		m["Release"] = func(ctx context.Context) error { return r.Release(ctx, l) }
		m["AwaitDue"] = func(ctx context.Context) error { return r.AwaitDue(ctx, spool.Claim{Owner: "o"}) }
	}
	if r, ok := s.(spool.Lister); ok {
		m["Sessions"] = func(ctx context.Context) error { _, err := r.Sessions(ctx, spool.SessionQuery{}); return err }
		m["Session"] = func(ctx context.Context) error { _, err := r.Session(ctx, "s"); return err }
	}
	if r, ok := s.(spool.Trimmer); ok {
		m["Trim"] = func(ctx context.Context) error { return r.Trim(ctx, "s", 1, 0) }
		m["Delete"] = func(ctx context.Context) error { return r.Delete(ctx, "s") }
	}
	if r, ok := s.(spool.Measurer); ok {
		m["Usage"] = func(ctx context.Context) error { _, err := r.Usage(ctx, ""); return err }
	}
	if r, ok := s.(spool.Expirer); ok {
		m["Expire"] = func(ctx context.Context) error { return r.Expire(ctx, "s", time.Hour) }
	}
	if r, ok := s.(spool.FoldStore); ok {
		m["SaveFold"] = func(ctx context.Context) error { return r.SaveFold(ctx, "s", "f", spool.SavedFold{Data: []byte("x")}) }
		m["LoadFold"] = func(ctx context.Context) error { _, err := r.LoadFold(ctx, "s", "f"); return err }
	}
	if r, ok := s.(spool.BlobStore); ok {
		m["PutBlob"] = func(ctx context.Context) error { return r.PutBlob(ctx, "s", "sha256:x", []byte("x")) }
		m["GetBlob"] = func(ctx context.Context) error { _, err := r.GetBlob(ctx, "s", "sha256:x"); return err }
	}
	if r, ok := s.(spool.Importer); ok {
		i := spool.Import{Info: spool.SessionInfo{Session: "s", Head: spool.Head{Incarnation: 1, Status: chunk.StatusEnded}}, Epoch: 1}
		m["Import"] = func(ctx context.Context) error { _, err := r.Import(ctx, i); return err }
	}
	if r, ok := s.(spool.Prober); ok {
		m["Probe"] = r.Probe
	}
	return m
}

func isClosed(err error) bool { return errors.Is(err, spool.ErrClosed) }

// Promise: closing, cancelling and restarting mean the same for every method.
var lifeChecks = []check{
	{"Close", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		l := own(t, s, "s", "o")
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 1}})
		seen := head(t, s, "s")
		ctx := limit(t)
		waiting := startWait(ctx, s, "s", seen)
		due := make(chan error, 1)
		go func() { due <- leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "w"}) }()
		closeStore(t, s)
		wantErr(t, (<-waiting).err, spool.ErrClosed)
		wantErr(t, <-due, spool.ErrClosed)
		for name, call := range calls(s) {
			if err := call(limit(t)); err == nil {
				t.Errorf("%s works after Close", name)
			} else {
				wantErr(t, err, spool.ErrClosed)
			}
		}
		closeStore(t, s) // a second time is no error
	}},
	{"CloseUnderLoad", func(t *testing.T, x *suite) {
		s := x.open(t)
		started := make(chan struct{}, 8)
		go func() {
			for range 8 {
				<-started
			}
			closeStore(t, s)
		}()
		parallel(8, func(i int) {
			for n := 0; ; n++ {
				_, err := s.Append(limit(t), spool.Append{Session: fmt.Sprint("s", i%2), Records: recs(chunk.Kept, "x", 3)})
				if n == 0 {
					started <- struct{}{}
				}
				if err != nil {
					if !isClosed(err) {
						t.Errorf("Append during Close: %v", err)
					}
					return
				}
			}
		})
	}},
	{"Cancelled", func(t *testing.T, x *suite) {
		s := x.open(t)
		command(t, s, "s", "c")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range calls(s) {
			if err := call(ctx); err == nil {
				t.Errorf("%s works under a cancelled context", name)
			} else {
				wantErr(t, err, context.Canceled)
			}
		}
		late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
		defer cancel()
		for _, call := range calls(s) {
			wantErr(t, call(late), context.DeadlineExceeded)
		}
		if h := head(t, s, "s"); h.Seq != 1 {
			t.Fatalf("a cancelled call wrote: %+v", h)
		}
		command(t, s, "s", "d") // and the store lives
	}},
	{"Restart", func(t *testing.T, x *suite) {
		if x.Reopen == nil {
			return
		}
		s := x.open(t)
		var want []string
		put(t, s, spool.Append{Session: "s", Records: recs(chunk.Kept, "c", 2), Row: spool.Row{Agent: "a", Principal: "p", Title: "T"}})
		want = append(want, "c/0", "c/1")
		l := mustClaim(t, s, spool.Claim{Owner: "o", TTL: time.Hour})
		var last spool.Appended
		a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w"}
		for i := range 5 {
			a.Ordinal, a.Records = uint64(i+1), recs(chunk.Trace, fmt.Sprint(i), 3)
			a.Row = spool.Row{Status: chunk.StatusActive}
			last = put(t, s, a)
			want = append(want, texts(a.Records)...)
		}
		before := head(t, s, "s")
		if r, ok := s.(spool.BlobStore); ok {
			if err := r.PutBlob(limit(t), "s", "sha256:b", []byte("blob")); err != nil {
				t.Fatal(err)
			}
		}
		if r, ok := s.(spool.FoldStore); ok {
			if err := r.SaveFold(limit(t), "s", "f", spool.SavedFold{Version: 1, Incarnation: 1, Seq: 4, Data: []byte("fold")}); err != nil {
				t.Fatal(err)
			}
		}
		command(t, s, "gone", "x")
		own(t, s, "gone", "o")
		trimmer, trims := s.(spool.Trimmer)
		if trims {
			if err := trimmer.Delete(limit(t), "gone"); err != nil {
				t.Fatal(err)
			}
		}

		s = x.Reopen(t, s)
		if h := head(t, s, "s"); h != before {
			t.Fatalf("head %+v, before the restart %+v", h, before)
		}
		wantTexts(t, log(t, s, "s", 0, 4), want...)
		if again := put(t, s, a); !again.Repeated || again.First != last.First || again.Last != last.Last {
			t.Fatalf("repeat across the restart: %+v, first %+v", again, last)
		}
		_, err := claim(t, s, spool.Claim{Owner: "other"})
		wantErr(t, err, spool.ErrNothingDue) // the lease lives on
		if err := leaser(t, s).Renew(limit(t), l); err != nil {
			t.Fatal(err)
		}
		if h := put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Settle: &spool.Settle{Seen: 1}}).Head; h.Due != before.Due {
			t.Fatalf("the store forgot which commands there were: %+v", h)
		}
		if r, ok := s.(spool.Lister); ok {
			i, err := r.Session(limit(t), "s")
			if err != nil || i.Row != (spool.Row{Status: chunk.StatusActive, Agent: "a", Principal: "p", Title: "T"}) {
				t.Fatalf("row %+v, %v", i, err)
			}
		}
		if r, ok := s.(spool.BlobStore); ok {
			if b, err := r.GetBlob(limit(t), "s", "sha256:b"); err != nil || string(b) != "blob" {
				t.Fatalf("blob %q, %v", b, err)
			}
		}
		if r, ok := s.(spool.FoldStore); ok {
			if f, err := r.LoadFold(limit(t), "s", "f"); err != nil || string(f.Data) != "fold" || f.Seq != 4 {
				t.Fatalf("fold %+v, %v", f, err)
			}
		}
		if trims {
			if h := command(t, s, "gone", "y").Head; h.Incarnation <= 1 || h.Epoch <= 1 {
				t.Fatalf("the tombstone was lost: %+v", h)
			}
		}
	}},
	{"ConnectionLoss", func(t *testing.T, x *suite) {
		if x.Break == nil {
			return
		}
		s := x.open(t)
		l := own(t, s, "s", "o")
		const n = 40
		for i := range n {
			a := spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(i + 1), Records: recs(chunk.Trace, fmt.Sprint(i), 2)}
			var mend func()
			if i%10 == 5 {
				mend = x.Break(t, s)
				// The outcome is unknown, and the same ordinal settles it.
				ctx, cancel := context.WithTimeout(limit(t), time.Second)
				_, err := s.Append(ctx, a)
				cancel()
				mend()
				if err == nil {
					continue
				}
			}
			for {
				_, err := s.Append(limit(t), a)
				if err == nil {
					break
				}
				if limit(t).Err() != nil || isClosed(err) {
					t.Fatalf("append %d after the connection was mended: %v", i, err)
				}
			}
		}
		all := log(t, s, "s", 0, 100)
		if len(all) != 2*n {
			t.Fatalf("%d records, want %d", len(all), 2*n)
		}
		for i, r := range all {
			if want := fmt.Sprintf("%d/%d", i/2, i%2); text(r) != want {
				t.Fatalf("record %d is %q, want %q", r.Seq, text(r), want)
			}
		}
	}},
}
