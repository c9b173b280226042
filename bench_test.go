package spool

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
)

// BenchmarkAppendToReader is the time from Append to the record's arrival at a
// waiting reader.
func BenchmarkAppendToReader(b *testing.B)       { benchAppendToReader(b, WriterOptions{}) }
func BenchmarkAppendToReaderMerged(b *testing.B) { benchAppendToReader(b, WriterOptions{Merge: true}) }

func benchAppendToReader(b *testing.B, o WriterOptions) {
	store, g := newTestLog(b, nil)
	w := g.Writer(store.claim("s"), o)
	ctx := b.Context()
	seen := make(chan struct{})
	go func() {
		r := g.Reader(ReadOptions{Follow: true})
		for {
			recs, err := r.Next(ctx)
			if err != nil {
				return
			}
			for range recs {
				seen <- struct{}{}
			}
		}
	}()
	c := text("a delta of a usual length")
	b.ReportAllocs()
	for b.Loop() {
		c.Timestamp = 0
		if err := w.Append(ctx, c); err != nil {
			b.Fatal(err)
		}
		<-seen
	}
}

// BenchmarkWriter is one chunk of a producer that does not wait.
func BenchmarkWriter(b *testing.B) {
	store, g := newTestLog(b, nil)
	w := g.Writer(store.claim("s"), WriterOptions{})
	c := text("a delta of a usual length")
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Append(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// benchFan appends b.N records for readers that each call take until it returns
// false; an operation is one record to all of them.
func benchFan(b *testing.B, readers int, reader func(g *Log) (take func(ctx context.Context) (records int, err error))) {
	store, g := newTestLog(b, nil)
	w := g.Writer(store.claim("s"), WriterOptions{})
	activate(b, w, chunk.StatusActive)
	ctx := b.Context()
	var wg sync.WaitGroup
	var got atomic.Int64
	n := b.N
	for range readers {
		take := reader(g)
		wg.Go(func() {
			for left := n; left > 0; {
				k, err := take(ctx)
				if err != nil {
					b.Error(err)
					return
				}
				left -= k
				got.Add(int64(k))
			}
		})
	}
	c := text("a delta of a usual length")
	b.ReportAllocs()
	b.ResetTimer()
	for i := range n {
		if err := w.Append(ctx, c); err != nil {
			b.Fatal(err)
		}
		if i%10 == 9 { // so that readers wake for about ten records, not for thousands
			if err := w.Flush(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(got.Load()), "ns/delivery")
}

func BenchmarkFanOutRecords(b *testing.B) {
	for _, n := range []int{1, 200, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchFan(b, n, func(g *Log) func(context.Context) (int, error) {
				r := g.Reader(ReadOptions{Follow: true})
				return func(ctx context.Context) (int, error) {
					recs, err := r.Next(ctx)
					return len(recs), err
				}
			})
		})
	}
}

func BenchmarkFanOutFrames(b *testing.B) {
	for _, n := range []int{1, 200, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchFan(b, n, func(g *Log) func(context.Context) (int, error) {
				f := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)}).Follow(Head{}, 0)
				return func(ctx context.Context) (int, error) {
					batch, err := f.Next(ctx)
					return len(batch.Frames), err
				}
			})
		})
	}
}

// BenchmarkFanOutSSE sends to 1000 HTTP readers: through a log and a projection,
// and, for comparison, prepared bytes through the barest of hubs. Compare the
// deliveries a second; the clients run on the same machine.
func BenchmarkFanOutSSE(b *testing.B) {
	const readers = 1000
	c := text("a delta of a usual length")
	frame, err := (&lines{}).Apply(nil, chunk.Record{Seq: 1, Type: chunk.TypeTextDelta, Data: mustEncode(b, c)})
	if err != nil {
		b.Fatal(err)
	}
	line := append([]byte("id: 100000\n"), frame[0].Data...)

	b.Run("log", func(b *testing.B) {
		store, g := newTestLog(b, nil)
		w := g.Writer(store.claim("s"), WriterOptions{})
		activate(b, w, chunk.StatusActive)
		benchSSE(b, readers, func(rw http.ResponseWriter, r *http.Request) {
			flush := rw.(http.Flusher)
			flush.Flush()
			f := g.Projection(ProjectionOptions{Key: "lines", After: 0, New: mkLines(nil)}).Follow(Head{}, 0)
			for {
				batch, err := f.Next(r.Context())
				if err != nil {
					return
				}
				if _, err := rw.Write(batch.Bytes); err != nil {
					return
				}
				flush.Flush()
			}
		}, func() {
			for range 10 {
				if err := w.Append(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("bare", func(b *testing.B) {
		h := hub{wake: make(chan struct{})}
		benchSSE(b, readers, func(rw http.ResponseWriter, r *http.Request) {
			flush := rw.(http.Flusher)
			flush.Flush()
			for at := 0; ; {
				h.mu.Lock()
				next, wake := h.buf[at:len(h.buf):len(h.buf)], h.wake
				h.mu.Unlock()
				if len(next) == 0 {
					select {
					case <-wake:
						continue
					case <-r.Context().Done():
						return
					}
				}
				at += len(next)
				if _, err := rw.Write(next); err != nil {
					return
				}
				flush.Flush()
			}
		}, func() {
			h.mu.Lock()
			for range 10 {
				h.buf = append(h.buf, line...)
			}
			close(h.wake)
			h.wake = make(chan struct{})
			h.mu.Unlock()
		})
	})
}

type hub struct {
	mu   sync.Mutex
	buf  []byte
	wake chan struct{}
}

func mustEncode(b *testing.B, c chunk.Chunk) []byte {
	data, err := chunk.Append(nil, c)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// benchSSE connects clients to a handler and sends b.N bursts of ten events, each
// when all clients have the one before.
func benchSSE(b *testing.B, readers int, handler http.HandlerFunc, burst func()) {
	server := httptest.NewServer(handler)
	defer server.Close()
	var colons atomic.Int64 // two of each event
	conns := make([]net.Conn, readers)
	for i := range conns {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			b.Fatal(err)
		}
		conns[i] = c
		go func() {
			buf := make([]byte, 16<<10)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				colons.Add(int64(bytes.Count(buf[:n], []byte(":"))))
			}
		}()
	}
	time.Sleep(200 * time.Millisecond) // all connected; only steadies the figures
	headers := colons.Load()
	b.ResetTimer()
	for i := range b.N {
		burst()
		for colons.Load()-headers < int64(readers)*int64(2*10*(i+1)) {
			time.Sleep(20 * time.Microsecond)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(readers*10*b.N)/b.Elapsed().Seconds(), "events/s")
}
