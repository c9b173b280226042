//go:build nodes

package pgstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	server := engines.Postgres(b)
	storetest.Bench(b, func(t testing.TB) spool.Store {
		p := newPlace(t, server.Addr())
		p.proxy = nil // it would be measured, too
		return p.open(t)
	})
}

// BenchmarkBareEngine inserts the same records with one statement and commit for each batch, in
// one round trip: what the engine itself can do.
func BenchmarkBareEngine(b *testing.B) {
	server := engines.Postgres(b)
	s, err := Open(b.Context(), engines.PostgresURL(server.Addr()), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := []byte(`{"type":"user_message","delta":"` + strings.Repeat("x", 120-34) + `"}`)
	for i, size := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("Append/batch=%d", size), func(b *testing.B) {
			pc, err := s.pool.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer pc.Release()
			for seq := int64(0); b.Loop(); {
				var x records
				for range size {
					seq++
					x.sid, x.seq, x.time = append(x.sid, int64(-1-i)), append(x.seq, seq+int64(b.N)<<32), append(x.time, 1)
					x.typ, x.agent, x.trace, x.data = append(x.typ, "user_message"), append(x.agent, "s"), append(x.trace, 0), append(x.data, data)
				}
				batch := &pgx.Batch{}
				batch.Queue(insertRecords, x.sid, x.seq, x.typ, x.agent, x.time, x.trace, x.data)
				if err := pc.Conn().SendBatch(b.Context(), batch).Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
