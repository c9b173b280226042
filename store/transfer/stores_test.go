//go:build nodes

package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/natsstore"
	"github.com/spool-run/spool/store/pgstore"
	"github.com/spool-run/spool/store/redisstore"
	"github.com/spool-run/spool/store/transfer"
)

// stores open an empty store of each kind.
func stores(t *testing.T) map[string]func(t testing.TB) store {
	redis, postgres, nats, n := engines.Redis(t, "--appendfsync", "no"), engines.Postgres(t), engines.NATS(t), 0
	return map[string]func(t testing.TB) store{
		"memory": func(testing.TB) store { return memstore.New(nil) },
		"sqlite": open,
		"redis": func(t testing.TB) store {
			n++
			s, err := redisstore.Open(fmt.Sprintf("redis://%s/0?prefix=t%d", redis.Addr(), n), nil)
			must(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		},
		"nats": func(t testing.TB) store {
			n++
			s, err := natsstore.Open("nats://"+nats.Addr(), &natsstore.Options{Prefix: fmt.Sprint("t", n)})
			must(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		},
		"postgres": func(t testing.TB) store {
			n++
			s, err := pgstore.Open(t.Context(), fmt.Sprintf("%s&schema=t%d", engines.PostgresURL(postgres.Addr()), n), nil)
			must(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		},
	}
}

// A session goes from each store to each other one, as a copy and as a file. The file of a
// session is the same, whichever store writes it. A copy that is cut anywhere is completed.
func TestEveryStoreToEveryOther(t *testing.T) {
	all := stores(t)
	origin := memstore.New(nil)
	sessions := map[string]uint64{"whole": 0, "trimmed": 30, "settled": 60, "odd": 29}
	files := map[string][]byte{}
	for session, floor := range sessions {
		fill(t, origin, session, 60, floor)
		files[session] = export(t, origin, session)
	}
	for a, openA := range all {
		from := openA(t)
		for session, file := range files {
			if _, copied, err := transfer.Import(t.Context(), bytes.NewReader(file), from, nil); err != nil || !copied {
				t.Fatalf("%s: %v, %v", a, copied, err)
			}
			wantAlike(t, origin, from, session)
			if !bytes.Equal(records(export(t, from, session)), records(file)) {
				t.Fatalf("%s writes another file of %s", a, session)
			}
		}
		for b, openB := range all {
			t.Run(a+" to "+b, func(t *testing.T) {
				to := openB(t)
				for session := range sessions {
					if copied, err := transfer.Session(t.Context(), from, to, session, nil); err != nil || !copied {
						t.Fatal(copied, err)
					}
					wantAlike(t, from, to, session)
					if copied, err := transfer.Session(t.Context(), from, to, session, nil); err != nil || copied {
						t.Fatalf("a second time: %v, %v", copied, err)
					}
				}
				for n := 1; ; n++ {
					cut := &cutting{store: openB(t), left: n, after: n%2 == 0}
					_, err := transfer.Session(t.Context(), from, cut, "trimmed", nil)
					if err == nil {
						break // it has fewer parts
					}
					if !errors.Is(err, errCut) {
						t.Fatal(err)
					}
					if _, err := transfer.Session(t.Context(), from, cut, "trimmed", nil); err != nil {
						t.Fatalf("after part %d: %v", n, err)
					}
					wantAlike(t, from, cut, "trimmed")
				}
			})
		}
	}
}
