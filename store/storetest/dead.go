package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// aLongTime is a TTL that no check waits for.
const aLongTime = time.Hour

// run is what the other process does in a "run": it claims a session, opens a run in it,
// and goes on with a line of input.
func run(ctx context.Context, s spool.Store, c spool.Claim) error {
	c.Owner, c.TTL, c.Force = "child", aLongTime, true
	l, err := s.(spool.Leaser).Claim(ctx, c)
	if err != nil {
		return err
	}
	a := spool.Append{Session: c.Session, Epoch: l.Epoch, Records: recs(chunk.Kept, "child", 1), Row: spool.Row{Status: chunk.StatusActive}}
	if _, err := s.Append(ctx, a); err != nil {
		return err
	}
	fmt.Println("claimed", l.Epoch)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil && err != io.EOF {
		return err
	}
	_, err = s.Append(ctx, a)
	if errors.Is(err, spool.ErrSuperseded) {
		fmt.Println("superseded")
		return nil
	}
	return err
}

// linger starts a process that gets what its parent has open, if the parent lets it, and
// lives until it is killed.
func linger() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), jobVariable+"=linger")
	cmd.Stdout = os.Stdout
	return cmd.Start()
}

// runs starts a process that owns the session "s" and answers when it does.
func (x *suite) runs(t testing.TB, s spool.Store, job string) *child {
	t.Helper()
	c := x.start(t, s, job)
	c.expect("claimed")
	_, err := claim(t, s, spool.Claim{Session: "s"})
	wantErr(t, err, spool.ErrNothingDue) // the other lives
	return c
}

func (c *child) kill() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Wait(); err == nil {
		c.t.Fatal("the killed process ended well")
	}
}

// knowing runs a check for drivers that know which processes are dead.
func knowing(run func(*testing.T, *suite, spool.Store)) func(*testing.T, *suite) {
	return apart(func(t *testing.T, x *suite, s spool.Store) {
		if x.KnowsDead {
			run(t, x, s)
		}
	})
}

// Promise: a lease that is bound to its owner's process can be claimed once that is dead,
// long before it expires, and not while it lives.
var deadChecks = []check{
	{"Claimed", knowing(func(t *testing.T, x *suite, s spool.Store) {
		last := uint64(0)
		for round := range uint64(3) {
			c := x.runs(t, s, "run")
			c.kill()
			if round == 1 && x.Reopen != nil {
				s = x.Reopen(t, s)
			}
			want := spool.Claim{Owner: "parent", InProcess: true}
			if round == 2 {
				want.Session = "s"
			}
			l := mustClaim(t, s, want)
			if l.Session != "s" || l.Epoch <= last || l.Head.Seq != round+1 {
				t.Fatalf("claimed %+v", l)
			}
			last = l.Epoch
			_, err := claim(t, s, spool.Claim{Session: "s"})
			wantErr(t, err, spool.ErrNothingDue)
		}
	})},
	{"WakesWhoWaits", knowing(func(t *testing.T, x *suite, s spool.Store) {
		c := x.runs(t, s, "run")
		due := make(chan error, 1)
		go func() { due <- leaser(t, s).AwaitDue(limit(t), spool.Claim{Owner: "parent"}) }()
		c.kill()
		if err := <-due; err != nil {
			t.Fatal(err)
		}
		mustClaim(t, s, spool.Claim{Session: "s"})
	})},
	{"Stopped", knowing(func(t *testing.T, x *suite, s spool.Store) {
		c := x.runs(t, s, "run")
		goOn, err := pause(c.cmd.Process)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			_, err := claim(t, s, spool.Claim{Session: "s"})
			wantErr(t, err, spool.ErrNothingDue)
		}
		if x.Advance != nil {
			x.Advance(s, 2*aLongTime)
			mustClaim(t, s, spool.Claim{Session: "s"})
		}
		if err := errors.Join(goOn(), c.in.Close()); err != nil {
			t.Fatal(err)
		}
		if x.Advance != nil {
			c.expect("superseded")
		}
		c.wait()
	})},
	{"ItsChildLives", knowing(func(t *testing.T, x *suite, s spool.Store) {
		c := x.start(t, s, "run and linger")
		var pid int
		for claimed := false; pid == 0 || !claimed; { // in either order
			line := c.next()
			if line == "" {
				t.Fatal("the other process is gone")
			}
			claimed = claimed || strings.HasPrefix(line, "claimed")
			_, _ = fmt.Sscanf(line, "lingers %d", &pid)
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		c.kill()
		_, claimed := claim(t, s, spool.Claim{Session: "s"})
		if err := p.Kill(); err != nil {
			t.Fatalf("the child was gone: %v", err)
		}
		wantErr(t, claimed, nil)
	})},
	{"ItsIDIsInUse", knowing(func(t *testing.T, x *suite, s spool.Store) {
		if runtime.GOOS == "windows" {
			return // a process cannot become another program
		}
		c := x.runs(t, s, "run and become another")
		if err := c.in.Close(); err != nil {
			t.Fatal(err)
		}
		if pid := c.expect("lingers"); pid != fmt.Sprint(c.cmd.Process.Pid) {
			t.Fatalf("process %s lives, want %d", pid, c.cmd.Process.Pid)
		}
		mustClaim(t, s, spool.Claim{Session: "s"})
		c.kill()
	})},
	{"OneOfTwo", knowing(func(t *testing.T, x *suite, s spool.Store) {
		lives := x.start(t, s, "run:other")
		lives.expect("claimed")
		c := x.runs(t, s, "run")
		c.kill()
		mustClaim(t, s, spool.Claim{})
		for _, session := range []string{"", "other", "s"} {
			_, err := claim(t, s, spool.Claim{Session: session})
			wantErr(t, err, spool.ErrNothingDue)
		}
		lives.kill()
		if l := mustClaim(t, s, spool.Claim{}); l.Session != "other" {
			t.Fatalf("claimed %+v", l)
		}
	})},
	{"NotBound", apart(func(t *testing.T, x *suite, s spool.Store) {
		c := x.runs(t, s, "run unbound")
		c.kill()
		_, err := claim(t, s, spool.Claim{Session: "s"})
		wantErr(t, err, spool.ErrNothingDue) // the owner may be elsewhere, and comes back
		put(t, s, spool.Append{Session: "s", Epoch: head(t, s, "s").Epoch, Records: recs(chunk.Kept, "back", 1)})
		if x.Advance != nil {
			x.Advance(s, 2*aLongTime)
			mustClaim(t, s, spool.Claim{Session: "s"})
		}
	})},
}
