package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const end = "THE-END"

// producers keep their connections, however many there are.
var producers = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}

// fanout prints deliveries a second of both servers, their ratio, and the ratio of
// the servers' CPU time for a delivery. A producer claims the session and sends one
// delta a request over HTTP, each when the one before was answered.
func fanout(runs, messages int) error {
	fmt.Println("| streams | readers of each | bare handler, deliveries/s | Spool, native wire | ratio (range) | CPU for a delivery, ratio (range) |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, c := range []struct{ streams, readers, messages int }{{1, 1, 10 * messages}, {100, 1, messages / 4}, {1, 200, messages}, {1, 1000, messages / 4}} {
		var bare, spool, ratios, costs []float64
		for range runs + 1 {
			b, bareCPU, err := fanoutOnce("bare", c.streams, c.readers, c.messages)
			if err != nil {
				return err
			}
			s, spoolCPU, err := fanoutOnce("spool", c.streams, c.readers, c.messages)
			if err != nil {
				return err
			}
			bare, spool, ratios = append(bare, b), append(spool, s), append(ratios, s/b)
			costs = append(costs, spoolCPU/bareCPU)
		}
		bare, spool, ratios, costs = bare[1:], spool[1:], ratios[1:], costs[1:] // the first pair warms up
		fmt.Printf("| %d | %d | %.0f | %.0f | %s | %s |\n", c.streams, c.readers, median(bare), median(spool), span(ratios), span(costs))
	}
	return nil
}

func fanoutOnce(kind string, streams, readers, messages int) (perSecond, cpu float64, err error) {
	c, err := start(kind)
	if err != nil {
		return 0, 0, err
	}
	defer c.stop()
	all := make([]producer, streams)
	for i := range all {
		all[i] = producer{c: c, session: fmt.Sprint("s", i)}
		if err := all[i].claim(); err != nil {
			return 0, 0, err
		}
	}
	done := make(chan error, streams*readers+streams)
	attached := make(chan struct{}, streams*readers)
	for i := range streams * readers {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return 0, 0, err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET /stream/s%d?follow=session HTTP/1.1\r\nHost: bench\r\n\r\n", i%streams); err != nil {
			return 0, 0, err
		}
		go func() { done <- readToEnd(conn, attached) }()
	}
	for range streams * readers {
		select {
		case <-attached:
		case err := <-done:
			return 0, 0, err
		}
	}
	begun, before := time.Now(), c.cpu()
	for i := range all {
		go func() { done <- all[i].sendEach(messages) }()
	}
	for range streams*readers + streams {
		if err := <-done; err != nil {
			return 0, 0, err
		}
	}
	n := float64(streams * readers * messages)
	return n / time.Since(begun).Seconds(), (c.cpu() - before) / n, nil
}

// producer writes a session from outside, as programs in other languages do.
type producer struct {
	c       *child
	session string
	epoch   uint64
	sent    int
}

// sendEach sends so many deltas, the last of which is the end.
func (p *producer) sendEach(n int) error {
	for range n - 1 {
		if err := p.send("the next few words "); err != nil {
			return err
		}
	}
	return p.send(end)
}

func (p *producer) claim() error {
	var run struct {
		Epoch uint64 `json:"epoch"`
	}
	body, err := p.post("/stream/"+p.session+"?claim", "")
	if err == nil {
		err = json.Unmarshal(body, &run)
	}
	p.epoch = run.Epoch
	return err
}

func (p *producer) send(text string) error { return p.sendAll(1, text) }

// sendAll sends n deltas in one request.
func (p *producer) sendAll(n int, text string) error {
	_, err := p.post("/stream/"+p.session, strings.Repeat(`{"type":"text_delta","delta":"`+text+`"}`+"\n", n))
	p.sent += n
	return err
}

func (p *producer) post(path, body string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+p.c.addr+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Producer-Epoch", strconv.FormatUint(p.epoch, 10))
	req.Header.Set("Producer-Seq", strconv.Itoa(p.sent))
	res, err := producers.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s %s", path, res.Status, answer)
	}
	return answer, err
}

// readToEnd reads until the last message has come. It looks for nothing else,
// so that both servers cost the client the same.
func readToEnd(conn net.Conn, attached chan<- struct{}) error {
	buf := make([]byte, 64<<10)
	kept := 0
	for first := true; ; first = false {
		n, err := conn.Read(buf[kept:])
		if err != nil {
			return fmt.Errorf("reader: %w", err)
		}
		if first {
			if !bytes.HasPrefix(buf, []byte("HTTP/1.1 200 ")) {
				return fmt.Errorf("reader: %q", buf[:n])
			}
			attached <- struct{}{}
		}
		got := buf[:kept+n]
		if bytes.Contains(got[max(0, kept-len(end)):], []byte(end)) {
			return nil
		}
		kept = copy(buf, got[max(0, len(got)-len(end)):])
	}
}
