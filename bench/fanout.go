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

// fanout prints deliveries a second of both servers, their ratio, and the ratio of
// the servers' CPU time for a delivery. A producer claims the session and sends one
// delta a request over HTTP, each when the one before was answered.
func fanout(runs, messages int) error {
	fmt.Println("| readers | bare handler, deliveries/s | Spool, native wire | ratio (range) | CPU for a delivery, ratio (range) |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for _, readers := range []int{1, 200, 1000} {
		n := messages
		switch readers {
		case 1:
			n *= 10
		case 1000:
			n /= 4
		}
		var bare, spool, ratios, costs []float64
		for range runs + 1 {
			b, bareCPU, err := fanoutOnce("bare", readers, n)
			if err != nil {
				return err
			}
			s, spoolCPU, err := fanoutOnce("spool", readers, n)
			if err != nil {
				return err
			}
			bare, spool, ratios = append(bare, b), append(spool, s), append(ratios, s/b)
			costs = append(costs, spoolCPU/bareCPU)
		}
		bare, spool, ratios, costs = bare[1:], spool[1:], ratios[1:], costs[1:] // the first pair warms up
		fmt.Printf("| %d | %.0f | %.0f | %s | %s |\n", readers, median(bare), median(spool), span(ratios), span(costs))
	}
	return nil
}

func fanoutOnce(kind string, readers, messages int) (perSecond, cpu float64, err error) {
	c, err := start(kind)
	if err != nil {
		return 0, 0, err
	}
	defer c.stop()
	p := producer{c: c}
	if err := p.claim(); err != nil {
		return 0, 0, err
	}
	done := make(chan error, readers)
	attached := make(chan struct{}, readers)
	for range readers {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return 0, 0, err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET /stream/s?follow=session HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return 0, 0, err
		}
		go func() { done <- readToEnd(conn, attached) }()
	}
	for range readers {
		select {
		case <-attached:
		case err := <-done:
			return 0, 0, err
		}
	}
	begun, before := time.Now(), c.cpu()
	for i := range messages {
		text := "the next few words "
		if i == messages-1 {
			text = end
		}
		if err := p.send(text); err != nil {
			return 0, 0, err
		}
	}
	for range readers {
		if err := <-done; err != nil {
			return 0, 0, err
		}
	}
	n := float64(readers * messages)
	return n / time.Since(begun).Seconds(), (c.cpu() - before) / n, nil
}

// producer writes a session from outside, as programs in other languages do.
type producer struct {
	c     *child
	epoch uint64
	sent  int
}

func (p *producer) claim() error {
	var run struct {
		Epoch uint64 `json:"epoch"`
	}
	body, err := p.post("/stream/s?claim", "")
	if err == nil {
		err = json.Unmarshal(body, &run)
	}
	p.epoch = run.Epoch
	return err
}

func (p *producer) send(text string) error { return p.sendAll(1, text) }

// sendAll sends n deltas in one request.
func (p *producer) sendAll(n int, text string) error {
	_, err := p.post("/stream/s", strings.Repeat(`{"type":"text_delta","delta":"`+text+`"}`+"\n", n))
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
	res, err := http.DefaultClient.Do(req)
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
