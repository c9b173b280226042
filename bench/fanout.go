package main

import (
	"bytes"
	"fmt"
	"net"
	"time"
)

const end = "THE-END"

// fanout prints deliveries a second of both servers and their ratio. A publisher
// sends one message a request, each when the one before was answered.
func fanout(runs, messages int) error {
	fmt.Println("| readers | bare handler, deliveries/s | Spool, native wire | ratio (range) |")
	fmt.Println("| --- | --- | --- | --- |")
	for _, readers := range []int{1, 200, 1000} {
		n := messages
		switch readers {
		case 1:
			n *= 10
		case 1000:
			n /= 4
		}
		var bare, spool, ratios []float64
		for range runs + 1 {
			b, err := fanoutOnce("bare", readers, n)
			if err != nil {
				return err
			}
			s, err := fanoutOnce("spool", readers, n)
			if err != nil {
				return err
			}
			bare, spool, ratios = append(bare, b), append(spool, s), append(ratios, s/b)
		}
		bare, spool, ratios = bare[1:], spool[1:], ratios[1:] // the first pair warms up
		fmt.Printf("| %d | %.0f | %.0f | %s |\n", readers, median(bare), median(spool), span(ratios))
	}
	return nil
}

func fanoutOnce(kind string, readers, messages int) (float64, error) {
	c, err := start(kind)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	if err := c.post("/bench/open"); err != nil {
		return 0, err
	}
	done := make(chan error, readers)
	attached := make(chan struct{}, readers)
	for range readers {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET /stream/s?follow=session HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return 0, err
		}
		go func() { done <- readToEnd(conn, attached) }()
	}
	for range readers {
		select {
		case <-attached:
		case err := <-done:
			return 0, err
		}
	}
	begun := time.Now()
	for i := range messages {
		last := ""
		if i == messages-1 {
			last = "?last=1"
		}
		if err := c.post("/bench/publish" + last); err != nil {
			return 0, err
		}
	}
	for range readers {
		if err := <-done; err != nil {
			return 0, err
		}
	}
	return float64(readers*messages) / time.Since(begun).Seconds(), nil
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
