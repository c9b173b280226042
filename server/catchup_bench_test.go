package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// BenchmarkCatchUp is a reader of a finished log of 20,000 records, from the request to
// the last frame, without a network.
func BenchmarkCatchUp(b *testing.B) {
	b.Run("memstore", func(b *testing.B) { benchmarkCatchUp(b, memstore.New(nil), "") })
	b.Run("memstore/lean", func(b *testing.B) { benchmarkCatchUp(b, memstore.New(nil), "?framing=lean") })
	b.Run("sqlitestore", func(b *testing.B) {
		store, err := sqlitestore.Open(filepath.Join(b.TempDir(), "log.db"), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { store.Close() })
		benchmarkCatchUp(b, store, "")
	})
}

func benchmarkCatchUp(b *testing.B, store spool.Store, query string) {
	const records = 20_000
	read := finishedLog(b, store, records, query)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(read()))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
}

// A reader that catches up costs allocations for each page, not for each record.
func TestCatchUpAllocations(t *testing.T) {
	const records = 10_000
	read := finishedLog(t, memstore.New(nil), records, "")
	if n := testing.AllocsPerRun(3, func() { read() }); n > records/10 {
		t.Errorf("%v allocations for %d records", n, records)
	}
}

// A batch of a reader that catches up is one write, and each page of records one flush: each
// of them ends with packets of its own.
func TestCatchUpWrites(t *testing.T) {
	const records = 10_000
	out := counter{header: http.Header{}}
	finishedServer(t, memstore.New(nil), records).ServeHTTP(&out, httptest.NewRequest("GET", "/stream/s", nil))
	// A batch has at least 64 KiB. The opening and the last one may be shorter, as may be those
	// that come from the shared frames.
	if most := out.n/(64<<10) + 8; out.writes > most {
		t.Errorf("%d writes for %d bytes, want at most %d", out.writes, out.n, most)
	}
	// The first pages are smaller than the thousand records of the others.
	if most := records/1000 + 8; out.flushes > most {
		t.Errorf("%d flushes for %d records, want at most %d", out.flushes, records, most)
	}
}

// finishedLog makes a log of so many records and returns a function that reads it and
// returns the length.
func finishedLog(tb testing.TB, store spool.Store, records int, query string) (read func() int) {
	srv := finishedServer(tb, store, records)
	return func() int {
		out := counter{header: http.Header{}}
		srv.ServeHTTP(&out, httptest.NewRequest("GET", "/stream/s"+query, nil))
		if out.n < records*100 {
			tb.Fatalf("only %d bytes", out.n)
		}
		return out.n
	}
}

// finishedServer makes a log of so many records, and a server that has it.
func finishedServer(tb testing.TB, store spool.Store, records int) *server.Server {
	const batch = 1000
	logs := spool.NewLogs(store, nil)
	tb.Cleanup(func() { logs.Close() })
	srv := server.New(logs, nil)
	epoch := 0
	post := func(path, body string, seq int) []byte {
		req := httptest.NewRequest("POST", path, strings.NewReader(body))
		req.Header.Set(server.HeaderProducerEpoch, strconv.Itoa(epoch))
		req.Header.Set(server.HeaderProducerSeq, strconv.Itoa(seq))
		w := httptest.NewRecorder()
		if srv.ServeHTTP(w, req); w.Code != http.StatusOK {
			tb.Fatalf("%d: %s", w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	var claim struct{ Epoch int }
	if err := json.Unmarshal(post("/stream/s?claim", "", 0), &claim); err != nil {
		tb.Fatal(err)
	}
	epoch = claim.Epoch
	body := strings.Repeat(`{"type":"custom","eventName":"m","data":{"text":"`+strings.Repeat("some words ", 8)+`"}}`+"\n", batch)
	for seq := 0; seq < records; seq += batch {
		post("/stream/s", body, seq)
	}
	post("/stream/s", `{"type":"end"}`, records)
	return srv
}

// counter is a response of which only the length is kept, and how it was written.
type counter struct {
	header          http.Header
	n               int
	writes, flushes int
}

func (c *counter) Header() http.Header         { return c.header }
func (c *counter) WriteHeader(int)             {}
func (c *counter) Flush()                      { c.flushes++ }
func (c *counter) Write(p []byte) (int, error) { c.n += len(p); c.writes++; return len(p), nil }
