// Command bench measures Spool against the physical floor: client and server in
// separate processes on loopback, the two sides of each comparison in turn, and
// the median of their ratios.
//
//	go run . fanout   100 streams to a reader each, one to 1, 200 and 1,000, against a bare handler
//	go run . catchup  a stream of 20,000 records to one reader, against a bare handler
//	go run . attach   a finished long answer, compacted against delta by delta
//	go run . ingest   provider streams of 20,000 deltas, against the official SDKs
//	go run . herd     2,000 readers of one session that come back after a restart
//	go run . idle     readers that wait for more, in memory, against a bare handler
//	go run . latency  from the provider's socket to the client's, against a copying handler
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

func main() {
	runs := flag.Int("runs", 5, "runs of each side")
	messages := flag.Int("messages", 2000, "messages of one fan-out run")
	records := flag.Int("records", 20000, "records of one run of catching up")
	readers := flag.Int("readers", 2000, "readers that come back")
	words := flag.Int("words", 400, "words of one latency run")
	serve := flag.String("serve", "", "internal: be the server of this kind")
	flag.Parse()
	if *serve != "" {
		fail(serveKind(*serve, flag.Args()))
		return
	}
	what := flag.Arg(0)
	if what == "" || what == "fanout" {
		fail(fanout(*runs, *messages))
	}
	if what == "" || what == "catchup" {
		fail(catchup(*runs, *records))
	}
	if what == "" || what == "attach" {
		fail(attach(*runs))
	}
	if what == "" || what == "herd" {
		fail(herd(*runs, *readers))
	}
	if what == "" || what == "idle" {
		fail(idle(*runs))
	}
	if what == "" || what == "ingest" {
		fail(ingest(*runs))
	}
	if what == "" || what == "latency" {
		fail(latency(*runs, *words))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// child is a server in a process of its own.
type child struct {
	cmd  *exec.Cmd
	addr string
}

func start(kind string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"-serve", kind}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s did not start: %w", kind, err)
	}
	return &child{cmd, strings.TrimSpace(addr)}, nil
}

func (c *child) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// cpu is the CPU time that the server has used, in seconds; 0 where the system
// does not say.
func (c *child) cpu() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var ticks float64
	for _, f := range fields[11:13] { // user and system time
		n, _ := strconv.ParseFloat(f, 64)
		ticks += n
	}
	return ticks / 100
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

func span(v []float64) string {
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median(v), slices.Min(v), slices.Max(v))
}
