package sqlitestore

import (
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// The engine alone: records of the same shape through the same connection and
// inserts, without sessions, fences or leases. What BenchmarkStore adds to this
// is what the store costs.
func BenchmarkBareEngine(b *testing.B) {
	data := []byte(`{"type":"user_message","delta":"` + strings.Repeat("x", 120-34) + `"}`)
	for _, mode := range []string{SyncFull, SyncNormal} {
		for _, size := range []int{1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/Append/batch=%d", mode, size), func(b *testing.B) {
				s := bare(b, mode)
				c, insert := s.w.c, s.w.insert
				seq := int64(0)
				b.ResetTimer()
				for b.Loop() {
					if err := c.exec("BEGIN IMMEDIATE"); err != nil {
						b.Fatal(err)
					}
					for left := size; left > 0; {
						n, sql := 1, insert[0]
						if left >= insertRows {
							n, sql = insertRows, insert[1]
						}
						args := make([]driver.Value, 0, n*columns)
						for range n {
							seq++
							args = append(args, int64(1), seq, "text_delta", "s", int64(0), int64(1), data)
						}
						if err := c.exec(sql, args...); err != nil {
							b.Fatal(err)
						}
						left -= n
					}
					if err := c.exec("COMMIT"); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
	b.Run("Read/20000", func(b *testing.B) {
		s := bare(b, SyncNormal)
		for seq := range 20_000 {
			if err := s.w.c.exec(s.w.insert[0], int64(1), int64(seq+1), "text_delta", "s", int64(0), int64(1), data); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			n := 0
			if err := s.w.c.query(func([]driver.Value) error { n++; return nil }, "SELECT seq, CAST(data AS BLOB) FROM record WHERE sid = 1 AND seq > 0 ORDER BY seq"); err != nil || n != 20_000 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("Read/1", func(b *testing.B) {
		s := bare(b, SyncNormal)
		for seq := range 1000 {
			if err := s.w.c.exec(s.w.insert[0], int64(1), int64(seq+1), "text_delta", "s", int64(0), int64(1), data); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			n := 0
			if err := s.w.c.query(func([]driver.Value) error { n++; return nil }, "SELECT seq, CAST(data AS BLOB) FROM record WHERE sid = 1 AND seq > 500 ORDER BY seq LIMIT 1"); err != nil || n != 1 {
				b.Fatal(n, err)
			}
		}
	})
}

// bare opens a store whose writer stands still, so that its connection is the
// benchmark's.
func bare(b *testing.B, mode string) *Store {
	s, err := Open(filepath.Join(b.TempDir(), "bare.db"), &Options{Sync: mode})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}
