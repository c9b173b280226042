package storetest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// How a test binary is told that it is the other process.
const (
	jobVariable      = "SPOOL_STORETEST_JOB"
	locationVariable = "SPOOL_STORETEST_LOCATION"
)

// Main is the TestMain of a driver whose stores can be opened by several
// processes at once: it runs the tests or, in a process that a check started,
// the other side of that check. open is given what [Options].Location returned.
func Main(m *testing.M, open func(location string) (spool.Store, error)) {
	job := os.Getenv(jobVariable)
	if job == "" {
		os.Exit(m.Run())
	}
	if job == "linger" {
		fmt.Println("lingers", os.Getpid())
		time.Sleep(watchdog) // it is killed before
	}
	if err := work(job, os.Getenv(locationVariable), open); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// work is what the other process does; it reports in lines.
func work(job, location string, open func(string) (spool.Store, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	defer cancel()
	s, err := open(location)
	if err != nil {
		return err
	}
	fmt.Println("open")
	switch job, arg, _ := strings.Cut(job, ":"); job {
	case "churn":
		return churn(ctx, s, arg)
	case "commands": // 100 commands as fast as it can
		for i := range 100 {
			if _, err := s.Append(ctx, spool.Append{Session: "s", Records: recs(chunk.Kept, fmt.Sprintf("child-%d", i), 3)}); err != nil {
				return err
			}
		}
		fmt.Println("done")
	case "own": // claims and appends until somebody else does
		l, err := s.(spool.Leaser).Claim(ctx, spool.Claim{Owner: "child", Session: "s", Force: true})
		if err != nil {
			return err
		}
		fmt.Println("claimed", l.Epoch)
		for n := 1; ; n++ {
			res, err := s.Append(ctx, spool.Append{
				Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: uint64(n),
				Records: recs(chunk.Trace, fmt.Sprintf("child-%d", n), 5), Row: spool.Row{Status: chunk.StatusActive},
			})
			if errors.Is(err, spool.ErrSuperseded) {
				fmt.Println("superseded")
				break
			}
			if err != nil {
				return err
			}
			fmt.Println("acked", res.Last)
		}
	case "run":
		return run(ctx, s, spool.Claim{Session: cmp.Or(arg, "s"), InProcess: true})
	case "run and become another":
		if err := run(ctx, s, spool.Claim{Session: "s", InProcess: true}); err != nil {
			return err
		}
		return become("linger")
	case "run and linger":
		if err := linger(); err != nil {
			return err
		}
		return run(ctx, s, spool.Claim{Session: "s", InProcess: true})
	case "run unbound":
		return run(ctx, s, spool.Claim{Session: "s"})
	case "wait": // for the parent's command, then for the session to be claimable
		if _, _, err := s.Wait(ctx, "s", spool.Head{}); err != nil {
			return err
		}
		if err := s.(spool.Leaser).AwaitDue(ctx, spool.Claim{Owner: "child", Session: "s"}); err != nil {
			return err
		}
		l, err := s.(spool.Leaser).Claim(ctx, spool.Claim{Owner: "child", Session: "s"})
		if err != nil {
			return err
		}
		fmt.Println("claimed", l.Epoch)
	default:
		return fmt.Errorf("no such job: %s", job)
	}
	return s.(io.Closer).Close()
}

// child is another process with a store on the same data.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Closer // closing it tells the process to go on
	out *bufio.Scanner
}

// start runs a job in another process and waits until it has opened the store.
func (x *suite) start(t testing.TB, s spool.Store, job string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limit(t), exe)
	cmd.Env = append(os.Environ(), jobVariable+"="+job, locationVariable+"="+x.Location(s))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	c.expect("open")
	return c
}

// next returns the child's next line, "" at its end.
func (c *child) next() string {
	if !c.out.Scan() {
		return ""
	}
	return c.out.Text()
}

// expect skips lines up to one with this first word and returns the rest.
func (c *child) expect(word string) string {
	c.t.Helper()
	for {
		line := c.next()
		first, rest, _ := strings.Cut(line, " ")
		switch {
		case first == word:
			return rest
		case line == "" || first == "error":
			c.t.Fatalf("the other process said %q, want %s", line, word)
		}
	}
}

func (c *child) wait() {
	c.t.Helper()
	for c.next() != "" {
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("the other process: %v", err)
	}
}

// apart runs a check for drivers that several processes can open.
func apart(run func(*testing.T, *suite, spool.Store)) func(*testing.T, *suite) {
	return func(t *testing.T, x *suite) {
		if x.Location != nil {
			run(t, x, x.open(t))
		}
	}
}

// Promise: all of it holds between processes, and what was acknowledged to a
// process that is killed is there.
var processChecks = []check{
	{"OneOrder", apart(func(t *testing.T, x *suite, s spool.Store) {
		c := x.start(t, s, "commands")
		for i := range 100 {
			put(t, s, spool.Append{Session: "s", Records: recs(chunk.Kept, fmt.Sprintf("parent-%d", i), 3)})
		}
		c.expect("done")
		c.wait()
		next := map[string]int{}
		all := log(t, s, "s", 0, 100)
		if len(all) != 600 {
			t.Fatalf("%d records, want 600", len(all))
		}
		for i := 0; i < len(all); i += 3 {
			who, rest, _ := strings.Cut(text(all[i]), "-")
			want := fmt.Sprintf("%s-%d", who, next[who])
			if rest == "" {
				t.Fatalf("record %d is %q", i+1, text(all[i]))
			}
			wantTexts(t, all[i:i+3], texts(recs(chunk.Kept, want, 3))...)
			next[who]++
		}
	})},
	{"Fence", apart(func(t *testing.T, x *suite, s spool.Store) {
		c := x.start(t, s, "own")
		for range 5 {
			c.expect("acked")
		}
		l := own(t, s, "s", "parent")
		c.expect("superseded")
		c.wait()
		put(t, s, spool.Append{Session: "s", Epoch: l.Epoch, Records: recs(chunk.Trace, "parent", 2)})
		all := log(t, s, "s", 0, 1000)
		wantTexts(t, all[l.Head.Seq:], "parent/0", "parent/1")
		for i, r := range all[:l.Head.Seq] {
			if want := fmt.Sprintf("child-%d/%d", i/5+1, i%5); text(r) != want {
				t.Fatalf("record %d is %q, want %q", r.Seq, text(r), want)
			}
		}
	})},
	{"Wakes", apart(func(t *testing.T, x *suite, s spool.Store) {
		if x.Advance != nil {
			x.Advance(s, time.Hour) // the other's clock is the machine's: be past its due times
		}
		ctx := limit(t)
		waiter := startWait(ctx, s, "s", spool.Head{})
		due := make(chan error, 1)
		go func() { due <- leaser(t, s).AwaitDue(ctx, spool.Claim{Owner: "parent", Session: "s"}) }()
		c := x.start(t, s, "commands")
		if got := <-waiter; got.err != nil || got.head.Seq == 0 {
			t.Fatalf("Wait: %+v, %v", got.head, got.err)
		}
		if err := <-due; err != nil {
			t.Fatalf("AwaitDue: %v", err)
		}
		c.wait()
	})},
	{"WakesTheOther", apart(func(t *testing.T, x *suite, s spool.Store) {
		c := x.start(t, s, "wait")
		command(t, s, "s", "c")
		epoch := c.expect("claimed")
		c.wait()
		if h := head(t, s, "s"); fmt.Sprint(h.Epoch) != epoch || h.Epoch < 1 {
			t.Fatalf("claimed under epoch %s, head %+v", epoch, h)
		}
	})},
	{"Killed", apart(func(t *testing.T, x *suite, s spool.Store) {
		incarnation := uint64(0)
		for round := range 3 {
			before := uint64(0)
			if round > 0 {
				before = head(t, s, "s").Seq
			}
			c := x.start(t, s, "own")
			var acked uint64
			for range 50 * (round + 1) {
				if _, err := fmt.Sscan(c.expect("acked"), &acked); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for { // it may have acknowledged more before it died
				line := c.next()
				if line == "" {
					break
				}
				fmt.Sscanf(line, "acked %d", &acked)
			}
			if err := c.cmd.Wait(); err == nil {
				t.Fatal("the killed process ended well")
			}
			if round == 1 && x.Reopen != nil {
				s = x.Reopen(t, s)
			}
			h := head(t, s, "s")
			if incarnation == 0 {
				incarnation = h.Incarnation
			}
			if h.Seq < acked || h.Incarnation != incarnation || (h.Seq-before)%5 != 0 {
				t.Fatalf("acknowledged %d, found head %+v", acked, h)
			}
			for i, r := range log(t, s, "s", before, 1000) {
				if want := fmt.Sprintf("child-%d/%d", i/5+1, i%5); text(r) != want {
					t.Fatalf("record %d is %q, want %q", r.Seq, text(r), want)
				}
			}
		}
	})},
}
