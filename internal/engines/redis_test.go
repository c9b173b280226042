//go:build nodes

package engines

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A server has its data after every way of ending, on the same address; one that is frozen
// answers nothing until it goes on.
func TestRedis(t *testing.T) {
	s := Redis(t)
	addr := s.Addr()
	call := func(command, want string) {
		t.Helper()
		got, err := redisCall(context.Background(), s.Addr(), command)
		if err != nil || got != want {
			t.Fatalf("%s answers %q and %v, want %q", command, got, err, want)
		}
	}
	call("SET key one", "OK")
	s.Stop()
	s.Start()
	call("GET key", "one")
	call("SET key two", "OK")
	s.Kill()
	if _, err := redisCall(context.Background(), addr, "PING"); err == nil {
		t.Fatal("a server that was killed answers")
	}
	s.Start()
	call("GET key", "two")
	s.Freeze()
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := redisCall(short, addr, "PING"); err == nil {
		t.Fatal("a frozen server answers")
	}
	s.Thaw()
	call("GET key", "two")
	s.Freeze()
	s.Stop() // lets it go on first
	s.Start()
	if s.Addr() != addr {
		t.Errorf("the address changed from %s to %s", addr, s.Addr())
	}
	if out := s.Output(); !strings.Contains(out, "Ready to accept connections") {
		t.Errorf("the output is %q", out)
	}
	r := RedisReplica(t, s)
	if got, err := redisCall(context.Background(), r.Addr(), "GET key"); err != nil || got != "two" {
		t.Errorf("the replica has %q and %v", got, err)
	}
}
