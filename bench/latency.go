package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// pace is how often the provider says a word.
const pace = 5 * time.Millisecond

// latency measures the way of a word from the provider's socket to the client's,
// through the whole server and through a handler that does nothing but copy.
func latency(runs, words int) error {
	p, err := newProvider(words)
	if err != nil {
		return err
	}
	defer p.close()
	kinds := []string{"proxy", "chat-memory", "chat-sqlite"}
	all := map[string][]float64{}
	for n := range runs + 1 {
		for _, kind := range kinds {
			took, err := p.measure(kind)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			if n > 0 { // the first round warms up
				all[kind] = append(all[kind], took...)
			}
		}
	}
	fmt.Printf("\n| a word every %v, ms from the provider's socket to the client's | p50 | p99 |\n| --- | --- | --- |\n", pace)
	for _, kind := range kinds {
		v := slices.Sorted(slices.Values(all[kind]))
		fmt.Printf("| %s | %.2f | %.2f |\n", map[string]string{"proxy": "copying handler", "chat-memory": "Spool, memory", "chat-sqlite": "Spool, SQLite"}[kind],
			v[len(v)/2], v[len(v)*99/100])
	}
	return nil
}

// provider says words and remembers when.
type provider struct {
	l     net.Listener
	words int

	mu   sync.Mutex
	said []time.Time
}

func newProvider(words int) (*provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{l: l, words: words}
	go func() { _ = http.Serve(l, p) }() // until close
	return p, nil
}

func (p *provider) close() { p.l.Close() }

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range p.words {
		<-tick.C
		frame := fmt.Appendf(nil, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"w%06d "},"finish_reason":null}]}`+"\n\n", i)
		p.mu.Lock()
		p.said = append(p.said, time.Now())
		p.mu.Unlock()
		if _, err := w.Write(frame); err != nil || flush() != nil {
			return
		}
	}
	fmt.Fprint(w, `data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
}

// measure has a server of a kind ask the provider, and returns how long each word
// took, in ms.
func (p *provider) measure(kind string) ([]float64, error) {
	p.mu.Lock()
	p.said = nil
	p.mu.Unlock()
	dir, err := os.MkdirTemp("", "spool-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	c, err := start(kind, "http://"+p.l.Addr().String(), dir)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	res, err := http.Post("http://"+c.addr+"/api/chat/s", "application/json", bytes.NewReader([]byte(`{"message":"go"}`)))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var got []time.Time
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		now := time.Now()
		// One frame may hold several words, in order.
		for line := lines.Bytes(); ; {
			i := bytes.IndexByte(line, 'w')
			if i < 0 || i+7 > len(line) {
				break
			}
			if n, err := strconv.Atoi(string(line[i+1 : i+7])); err == nil && n == len(got) {
				got = append(got, now)
			}
			line = line[i+1:]
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(got) != p.words || len(p.said) < p.words {
		return nil, fmt.Errorf("%d words said, %d arrived, not %d", len(p.said), len(got), p.words)
	}
	took := make([]float64, len(got))
	for i := range got {
		took[i] = float64(got[i].Sub(p.said[i]).Microseconds()) / 1000
	}
	return took, nil
}
