package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// catchup prints how fast one reader gets a stream of so many records that is there already,
// from each store and from the bare handler. Each run has a new server process, and is its
// first read.
func catchup(runs, records int) error {
	fmt.Println("| store | bare handler, records/s | Spool, native wire | ratio (range) |")
	fmt.Println("| --- | --- | --- | --- |")
	for _, kind := range []string{"spool", "spool-sqlite"} {
		var bare, spool, ratios []float64
		for range runs {
			b, err := catchupOnce("bare", records)
			if err != nil {
				return err
			}
			s, err := catchupOnce(kind, records)
			if err != nil {
				return err
			}
			bare, spool, ratios = append(bare, b), append(spool, s), append(ratios, s/b)
		}
		fmt.Printf("| %s | %.0f | %.0f | %s |\n", kind, median(bare), median(spool), span(ratios))
	}
	return nil
}

func catchupOnce(kind string, records int) (perSecond float64, err error) {
	dir, err := os.MkdirTemp("", "spool-bench")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	c, err := start(kind, dir)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	p := producer{c: c, session: "s"}
	if err := p.claim(); err != nil {
		return 0, err
	}
	const batch = 100
	text := strings.Repeat("the next few words ", 6)
	for p.sent < records-batch {
		if err := p.sendAll(batch, text); err != nil {
			return 0, err
		}
	}
	if err := p.sendAll(records-p.sent-1, text); err != nil {
		return 0, err
	}
	if err := p.send(end); err != nil {
		return 0, err
	}
	begun := time.Now()
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /stream/s?follow=session HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
		return 0, err
	}
	if err := readToEnd(conn, make(chan struct{}, 1)); err != nil {
		return 0, err
	}
	return float64(records) / time.Since(begun).Seconds(), nil
}
