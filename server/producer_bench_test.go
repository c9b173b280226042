package server_test

import (
	"encoding/json"
	"fmt"
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

// BenchmarkProducerPOST is a producer's append of so many chunks, from the request
// to the answer, without a network.
func BenchmarkProducerPOST(b *testing.B) {
	for _, n := range []int{1, 20} {
		b.Run(fmt.Sprintf("deltas=%d", n), func(b *testing.B) {
			benchmarkPOST(b, memstore.New(nil), n, `{"type":"text_delta","delta":"some words of an answer "}`)
		})
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			benchmarkPOST(b, memstore.New(nil), n, `{"type":"custom","eventName":"m","data":{"seq":12,"words":"`+strings.Repeat("some words ", 9)+`"}}`)
		})
	}
}

// BenchmarkProducerPOSTToSQLite is an append of one delta to a file. The bare engine's commit
// is BenchmarkBareEngine of package sqlitestore.
func BenchmarkProducerPOSTToSQLite(b *testing.B) {
	for _, sync := range []string{sqlitestore.SyncFull, sqlitestore.SyncNormal} {
		b.Run(sync, func(b *testing.B) {
			store, err := sqlitestore.Open(filepath.Join(b.TempDir(), "log.db"), &sqlitestore.Options{Sync: sync})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			benchmarkPOST(b, store, 1, `{"type":"text_delta","delta":"some words of an answer "}`)
		})
	}
}

func benchmarkPOST(b *testing.B, store spool.Store, n int, line string) {
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	srv := server.New(logs, nil)
	body := strings.Repeat(line+"\n", n)
	post := func(path, body string, epoch, seq int) []byte {
		req := httptest.NewRequest("POST", path, strings.NewReader(body))
		req.Header.Set(server.HeaderProducerEpoch, strconv.Itoa(epoch))
		req.Header.Set(server.HeaderProducerSeq, strconv.Itoa(seq))
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, req)
		if w.Code != http.StatusOK {
			b.Fatalf("%d: %s", w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	var run struct{ Epoch int }
	path, seq := "", 0
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%2000 == 0 { // no answer is longer
			path, seq = fmt.Sprintf("/stream/s%d", i), 0
			if err := json.Unmarshal(post(path+"?claim", "", 0, 0), &run); err != nil {
				b.Fatal(err)
			}
		}
		post(path, body, run.Epoch, seq)
		seq += n
	}
}
