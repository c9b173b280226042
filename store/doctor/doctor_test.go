package doctor_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/doctor"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// finding returns what an examination says about a subject.
func finding(t *testing.T, found []contract.Finding, check string) contract.Finding {
	t.Helper()
	for _, f := range found {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("nothing about %s in %+v", check, found)
	return contract.Finding{}
}

// An examination leaves nothing behind, and says what it has found out.
func TestExamine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool.db")
	var files [2]*sqlitestore.Store
	for i := range files {
		var err error
		if files[i], err = sqlitestore.Open(path, nil); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	memory := memstore.New(nil)
	for name, x := range map[string]struct {
		store   spool.Store
		another spool.Store
		kept    contract.Level
	}{
		"memory": {memory, nil, contract.Warning},
		"sqlite": {files[0], files[1], contract.OK},
	} {
		t.Run(name, func(t *testing.T) {
			found := doctor.Examine(t.Context(), x.store, x.another)
			for _, check := range []string{"reach", "clock"} {
				if f := finding(t, found, check); f.Level != contract.OK || f.Hint != "" {
					t.Errorf("%+v", f)
				}
			}
			for _, check := range []string{"append", "wake"} { // how long they take is this machine's
				if f := finding(t, found, check); f.Level == contract.Problem || !strings.Contains(f.Text, "of 20") {
					t.Errorf("%+v", f)
				}
			}
			if f := finding(t, found, "durability"); f.Level != x.kept || (f.Hint == "") != (x.kept == contract.OK) {
				t.Errorf("%+v", f)
			}
			for _, f := range found {
				if f.Level == contract.Problem {
					t.Errorf("%+v", f)
				}
			}
			for _, hidden := range []bool{false, true} {
				page, err := x.store.(spool.Lister).Sessions(t.Context(), spool.SessionQuery{Hidden: hidden})
				if err != nil || len(page.Sessions) > 0 {
					t.Errorf("left behind: %+v, %v", page.Sessions, err)
				}
			}
		})
	}
}

// ailing is a store some of whose calls fail.
type ailing struct {
	*memstore.Store
	head, append, wait, delete error
}

func (s *ailing) Head(ctx context.Context, session string) (spool.Head, error) {
	if s.head != nil {
		return spool.Head{}, s.head
	}
	return s.Store.Head(ctx, session)
}

func (s *ailing) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if s.append != nil {
		return spool.Appended{}, s.append
	}
	return s.Store.Append(ctx, a)
}

func (s *ailing) Wait(ctx context.Context, session string, h spool.Head) (spool.Head, []chunk.Record, error) {
	if s.wait != nil {
		return spool.Head{}, nil, s.wait
	}
	return s.Store.Wait(ctx, session, h)
}

func (s *ailing) Delete(ctx context.Context, session string) error {
	return errors.Join(s.Store.Delete(ctx, session), s.delete)
}

// What fails is a problem, with the store's hint, and without its secrets.
func TestExamineAilingStore(t *testing.T) {
	broken := spool.ErrUnavailable.With("", errors.New("redis://user:secret-password@host: refused"))
	for check, s := range map[string]*ailing{
		"reach":  {head: broken},
		"write":  {append: broken},
		"wake":   {wait: broken},
		"delete": {delete: broken},
	} {
		t.Run(check, func(t *testing.T) {
			s.Store = memstore.New(nil)
			found := doctor.Examine(t.Context(), s, nil)
			f := finding(t, found, check)
			if f.Level != contract.Problem || f.Hint != spool.ErrUnavailable.Hint || strings.Contains(f.Text, "secret-password") {
				t.Errorf("%+v", f)
			}
		})
	}
	apart := memstore.New(&memstore.Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	if f := finding(t, doctor.Examine(t.Context(), apart, nil), "clock"); f.Level != contract.Warning || !strings.Contains(f.Text, "1h0m0s") || f.Hint == "" {
		t.Errorf("%+v", f)
	}
	if f := finding(t, doctor.Examine(t.Context(), struct{ spool.Store }{memstore.New(nil)}, nil), "roles"); f.Level != contract.Warning || !strings.Contains(f.Text, "leases") {
		t.Errorf("%+v", f)
	}
}
