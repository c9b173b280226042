package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/sqlitestore"
)

const herdDeltas = 20_000

// herd restarts a server on whose one session all readers were, and has them come back at
// once: near the end of the log, anywhere in it, or as pages that are loaded again.
func herd(runs, readers int) error {
	dir, err := os.MkdirTemp("", "herd")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := herdLog(dir); err != nil {
		return err
	}
	fmt.Printf("\n| %d readers come back | reads of the store | records read, per record of the log | heads | to the last reader, ms (range) | memory at most, MiB |\n", readers)
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, at := range []struct {
		who  string
		path func() string
	}{
		{"native, up to 500 records behind", func() string {
			return fmt.Sprintf("/stream/s?after=%d", herdDeltas-rand.IntN(500))
		}},
		{"native, anywhere", func() string { return fmt.Sprintf("/stream/s?after=%d", rand.IntN(herdDeltas)) }},
		{"AI SDK, up to 500 records behind", func() string {
			return fmt.Sprintf("/api/chat/s/stream?after=%d", herdDeltas-rand.IntN(500))
		}},
		{"AI SDK, page loaded again", func() string { return "/api/chat/s/stream" }},
	} {
		var ms, memory []float64
		var said herdCounts
		for range runs {
			took, counts, peak, err := herdOnce(dir, readers, at.path)
			if err != nil {
				return fmt.Errorf("%s: %w", at.who, err)
			}
			ms, memory, said = append(ms, took), append(memory, peak), counts
		}
		fmt.Printf("| %s | %d | %.2f | %d | %s | %.0f |\n", at.who, said.Reads, float64(said.Records)/herdDeltas, said.Heads, span(ms), median(memory))
	}
	return nil
}

// herdLog writes a run of a producer that is still open.
func herdLog(dir string) error {
	c, err := start("herd", dir)
	if err != nil {
		return err
	}
	defer c.stop()
	p := producer{c: c, session: "s"}
	if err := p.claim(); err != nil {
		return err
	}
	delta := `{"type":"text_delta","delta":"the next few words "}`
	for range herdDeltas / 1000 {
		if _, err := p.post("/stream/s", "["+strings.Repeat(delta+",", 999)+delta+"]"); err != nil {
			return err
		}
		p.sent += 1000
	}
	return p.send(end)
}

func herdOnce(dir string, readers int, path func() string) (ms float64, counts herdCounts, peak float64, err error) {
	c, err := start("herd", dir)
	if err != nil {
		return 0, counts, 0, err
	}
	defer c.stop()
	done := make(chan error, readers)
	conns := make([]net.Conn, readers)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", c.addr); err != nil {
			return 0, counts, 0, err
		}
		defer conns[i].Close()
	}
	begun := time.Now()
	for _, conn := range conns {
		go func() {
			if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", path()); err != nil {
				done <- err
				return
			}
			done <- readToEnd(conn, make(chan struct{}, 1))
		}()
	}
	for range readers {
		if err := <-done; err != nil {
			return 0, counts, 0, err
		}
	}
	ms = float64(time.Since(begun).Microseconds()) / 1000
	res, err := http.Get("http://" + c.addr + "/counts")
	if err != nil {
		return 0, counts, 0, err
	}
	defer res.Body.Close()
	return ms, counts, c.peak(), json.NewDecoder(res.Body).Decode(&counts)
}

// peak is the most memory that the server has used, in MiB; 0 where the system does not say.
func (c *child) peak() (mib float64) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	for line := range strings.Lines(string(data)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	return 0
}

type herdCounts struct{ Reads, Records, Heads int64 }

// counted counts what is read from a store.
type counted struct {
	*sqlitestore.Store
	reads, records, heads atomic.Int64
}

func (s *counted) Head(ctx context.Context, session string) (spool.Head, error) {
	s.heads.Add(1)
	return s.Store.Head(ctx, session)
}

func (s *counted) Read(ctx context.Context, session string, after uint64, max int) ([]chunk.Record, spool.Head, error) {
	recs, h, err := s.Store.Read(ctx, session, after, max)
	s.reads.Add(1)
	s.records.Add(int64(len(recs)))
	return recs, h, err
}

// newHerd is the real server on a SQLite file, with what it has read at /counts.
func newHerd(dir string) (http.Handler, error) {
	store, err := sqlitestore.Open(filepath.Join(dir, "spool.db"), nil)
	if err != nil {
		return nil, err
	}
	s := &counted{Store: store}
	mux := http.NewServeMux()
	mux.Handle("/", server.New(spool.NewLogs(s, nil), nil))
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(herdCounts{s.reads.Load(), s.records.Load(), s.heads.Load()})
	})
	return mux, nil
}
