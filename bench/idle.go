package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// idle prints what readers cost who have read what there is and wait for more.
func idle(runs int) error {
	fmt.Println("\n| server | readers | heap and stacks per reader, KiB (range) | resident per reader, KiB (range) | to the bare handler (range) |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	kinds := []string{"bare", "spool", "spool-hijack"}
	for _, readers := range []int{1000, 5000} {
		inUse, resident := map[string][]float64{}, map[string][]float64{}
		for range runs {
			for _, kind := range kinds {
				m, rss, err := idleOnce(kind, readers)
				if err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				inUse[kind], resident[kind] = append(inUse[kind], m), append(resident[kind], rss)
			}
		}
		for _, kind := range kinds {
			ratios := make([]float64, runs)
			for i := range ratios {
				ratios[i] = inUse[kind][i] / inUse["bare"][i]
			}
			fmt.Printf("| %s | %d | %s | %s | %s |\n", kind, readers, span(inUse[kind]), span(resident[kind]), span(ratios))
		}
	}
	return nil
}

// idleOnce attaches readers to a session that has one record, and returns what each has
// added to the server's memory, in KiB.
func idleOnce(kind string, readers int) (inUse, resident float64, err error) {
	c, err := start("measured", kind)
	if err != nil {
		return 0, 0, err
	}
	defer c.stop()
	p := producer{c: c, session: "s"}
	if err := p.claim(); err != nil {
		return 0, 0, err
	}
	if err := p.send(end); err != nil {
		return 0, 0, err
	}
	conns := make([]net.Conn, 0, readers)
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	attach := func() error {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
		if _, err := fmt.Fprintf(conn, "GET /stream/s?follow=session HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\nUser-Agent: bench\r\n\r\n"); err != nil {
			return err
		}
		for r := bufio.NewReaderSize(conn, 512); ; {
			line, err := r.ReadString('\n')
			if err != nil || strings.Contains(line, end) {
				return err
			}
		}
	}
	if err := attach(); err != nil { // what the first costs is the session's
		return 0, 0, err
	}
	before, rssBefore, err := c.memory()
	if err != nil {
		return 0, 0, err
	}
	for range readers {
		if err := attach(); err != nil {
			return 0, 0, err
		}
	}
	after, rssAfter, err := c.memory()
	per := func(a, b float64) float64 { return (a - b) / float64(readers) / 1024 }
	return per(after, before), per(rssAfter, rssBefore), err
}

// memory asks a measured server for its heap and stacks in use, and reads what is resident.
func (c *child) memory() (inUse, resident float64, err error) {
	res, err := http.Get("http://" + c.addr + "/memory")
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&inUse); err != nil {
		return 0, 0, err
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return inUse, 0, nil // this system does not say
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	if fields := strings.Fields(rest); len(fields) > 0 {
		resident, _ = strconv.ParseFloat(fields[0], 64)
	}
	return inUse, resident * 1024, nil
}

// measured is a server that tells its memory at /memory, after collecting its garbage.
func measured(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("GET /memory", func(w http.ResponseWriter, _ *http.Request) {
		for range 4 { // each halves stacks that have become too large
			runtime.GC()
		}
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprint(w, m.HeapInuse+m.StackInuse)
	})
	return mux
}
