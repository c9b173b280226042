package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

func TestAddresses(t *testing.T) {
	for _, address := range []string{
		"", "host", "mysql://host/db", "postgres://u:secret@host:x/db", "postgres://u:secret@host/db?schema=A", "postgres://u:secret@host/db?schema=pg_x",
		"postgres://u:secret@host/db?schema=" + strings.Repeat("x", 49), "postgres://u:secret@host/db?connections=0", "postgres://u:secret@host/db?connections=many",
		"postgres://u:secret@host/db?sslmode=perhaps",
	} {
		_, err := Open(context.Background(), address, nil)
		if !errors.Is(err, chunk.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	s, err := configure("postgresql://u:p@host/db?schema=mine&connections=3&sslmode=disable", Options{Schema: "other", Connections: 9})
	if err != nil || s.schema != "mine" || s.config.MaxConns != 3 || s.config.ConnConfig.Host != "host" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Open(context.Background(), "postgres://u:secret@127.0.0.1:1/db", nil); !errors.Is(err, spool.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("without a server: %v", err)
	}
}

func TestSchema(t *testing.T) {
	sql, err := Schema("", `a"b`)
	if err != nil || !strings.Contains(sql, "CREATE SCHEMA spool;") || !strings.Contains(sql, "CREATE TABLE session (") || !strings.Contains(sql, `TO "a""b";`) {
		t.Errorf("%v\n%s", err, sql)
	}
	for _, names := range [][2]string{{"a b", ""}, {"a", strings.Repeat("x", 64)}, {"a", "b\x00"}} {
		if _, err := Schema(names[0], names[1]); !errors.Is(err, chunk.ErrInvalid) {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// A call that the server does not answer fails with an error of the store, and one that its
// caller has cancelled with the caller's.
func TestWhyACallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{}
		s.ctx, s.stop = context.WithCancel(context.Background())
		end := func(ctx context.Context, cause func(), want error) {
			t.Helper()
			ctx, cancel := s.bound(ctx)
			defer cancel()
			cause()
			<-ctx.Done()
			if err := s.ended(ctx, ctx.Err()); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		end(t.Context(), func() {}, spool.ErrUnavailable)
		mine, leave := context.WithCancel(t.Context())
		end(mine, leave, context.Canceled)
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		end(late, func() {}, context.DeadlineExceeded)
		end(t.Context(), s.stop, spool.ErrClosed)
	})
}
