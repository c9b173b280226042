//go:build nodes

package redisstore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engines"
)

// look has the process look at its servers now.
func look(t *testing.T, s spool.Store) {
	t.Helper()
	st := s.(instance).Store
	if err := insist(func() error { return st.within(t.Context(), st.check) }); err != nil {
		t.Fatal(err)
	}
}

// goesOn checks that an owner's session was not touched.
func (o *owner) goesOn(s spool.Store) {
	o.t.Helper()
	if err := o.append(1); err != nil {
		o.t.Fatalf("its owner: %v", err)
	}
	var h spool.Head
	if err := insist(func() (err error) { h, err = s.Head(o.t.Context(), o.lease.Session); return err }); err != nil {
		o.t.Fatal(err)
	}
	if h.Incarnation != o.lease.Head.Incarnation || h.Epoch != o.lease.Epoch {
		o.t.Fatalf("%+v; claimed at %+v", h, o.lease.Head)
	}
	wantLog(o.t, s, o.lease.Session, o.acked)
}

// mustBegin checks that owners and readers from before have to begin again.
func (o *owner) mustBegin(s spool.Store) {
	o.t.Helper()
	if err := o.append(1); !errors.Is(err, spool.ErrSuperseded) {
		o.t.Fatalf("an owner from before: %v", err)
	}
	next := own(o.t, s, o.lease.Session).lease
	if next.Head.Incarnation <= o.lease.Head.Incarnation || next.Epoch <= o.lease.Epoch {
		o.t.Fatalf("claimed at %+v, and before at %+v", next.Head, o.lease.Head)
	}
}

// A server that syncs each write loses nothing, however it ends. A process that saw it until
// then says so, and nobody has to begin again.
func TestRestartWithoutALoss(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	p := newPlace(t, server, false, "&buckets=2")
	s, other := p.open(t), p.open(t)
	o := own(t, s, "s")
	ends := map[string]func(){
		"killed":      server.Kill,
		"shut down":   server.Stop,
		"with a save": func() { end(t, server, "SHUTDOWN", "SAVE") },
	}
	for name, stop := range ends {
		t.Log(name)
		if err := o.append(20); err != nil {
			t.Fatal(err)
		}
		look(t, s)
		look(t, other)
		stop()
		server.Start()
		o.goesOn(other)
		look(t, other)
		look(t, s)
		o.goesOn(s)
	}
	fresh := p.open(t)
	o.goesOn(fresh)
}

// end has the server end itself.
func end(t *testing.T, server *engines.Server, command ...string) {
	t.Helper()
	shutdown(t, server, command)
	server.Kill() // waits
}

// A restart counts as a loss if the server might have lost something, or if no process saw it
// until its end.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		fresh bool
		set   []string
	}{
		"everysec":                {args: []string{"--appendfsync", "everysec"}},
		"set to everysec":         {set: []string{"CONFIG", "SET", "appendfsync", "everysec"}},
		"no sync during rewrites": {args: []string{"--no-appendfsync-on-rewrite", "yes"}},
		"snapshots":               {args: []string{"--appendonly", "no", "--save", "3600 1"}},
		"nobody saw it":           {fresh: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := engines.Redis(t, c.args...)
			p := newPlace(t, server, false, "")
			s := p.open(t)
			o := own(t, s, "s")
			if err := o.append(20); err != nil {
				t.Fatal(err)
			}
			if c.set != nil {
				do(t, server, c.set...)
			}
			look(t, s)
			if name == "snapshots" {
				end(t, server, "SHUTDOWN", "SAVE")
			} else {
				server.Kill()
			}
			if c.fresh {
				s.(instance).Close()
			}
			server.Start()
			if c.fresh {
				s = p.open(t)
				o.s = s
			}
			o.mustBegin(s)
			if !strings.HasSuffix(name, "everysec") { // whose last writes may be missing
				wantLog(t, s, "s", o.acked)
			}
		})
	}
}

// A server whose files are those of an earlier time: each process that knows later records says
// so, even if another one has missed nothing before.
func TestServerSetBack(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	p := newPlace(t, server, false, "")
	early, late := p.open(t), p.open(t)
	o := own(t, late, "s")
	if err := o.append(10); err != nil {
		t.Fatal(err)
	}
	look(t, early)
	st := early.(instance).Store
	st.checking.Lock()
	saw := st.saw[0]
	st.checking.Unlock()
	files := filepath.Join(server.Dir(), "appendonlydir")
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	p.ms.Add(1000) // later, by the store's clock
	if err := o.append(10); err != nil {
		t.Fatal(err)
	}
	look(t, late)
	server.Kill()
	if err := errors.Join(os.RemoveAll(files), os.CopyFS(files, os.DirFS(backup))); err != nil {
		t.Fatal(err)
	}
	st.checking.Lock()
	st.saw[0] = saw
	st.checking.Unlock()
	server.Start()
	first, err := early.Head(t.Context(), "s")
	if err := insist(func() error { first, err = early.Head(t.Context(), "s"); return err }); err != nil {
		t.Fatal(err)
	}
	if first.Incarnation != o.lease.Head.Incarnation || first.Seq != 10 {
		t.Fatalf("%+v; claimed at %+v", first, o.lease.Head)
	}
	look(t, late)
	o.mustBegin(late)
	look(t, early)
	look(t, late)
	h, err := late.Head(t.Context(), "s")
	if again, err2 := early.Head(t.Context(), "s"); err != nil || err2 != nil || again != h {
		t.Fatalf("%+v, %v, then %+v, %v", h, err, again, err2)
	}
}

// A server that gets its first replica runs on. Then a replica might take its place, so its
// restart counts as a loss.
func TestFirstReplica(t *testing.T) {
	t.Parallel()
	server := engines.Redis(t)
	s := newPlace(t, server, false, "").open(t)
	o := own(t, s, "s")
	look(t, s)
	engines.RedisReplica(t, server)
	look(t, s)
	o.goesOn(s)
	look(t, s)
	server.Kill()
	server.Start()
	o.mustBegin(s)
}

// On a cluster each server is looked at.
func TestClusterRestarts(t *testing.T) {
	t.Parallel()
	for name, always := range map[string]bool{"always": true, "everysec": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsync := "everysec"
			if always {
				fsync = "always"
			}
			servers := engines.RedisCluster(t, "--appendonly", "yes", "--appendfsync", fsync)
			s := newPlace(t, servers[0], false, "&buckets=9").open(t)
			var owners []*owner
			for _, session := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				o := own(t, s, session)
				if err := o.append(3); err != nil {
					t.Fatal(err)
				}
				owners = append(owners, o)
			}
			look(t, s)
			for _, server := range servers {
				server.Kill()
			}
			for _, server := range servers {
				server.Start()
			}
			for _, o := range owners {
				if always {
					o.goesOn(s)
				} else {
					o.mustBegin(s)
				}
			}
		})
	}
}

// shutdown sends a command that the server does not answer, and returns when it has closed the
// connection.
func shutdown(t *testing.T, server *engines.Server, command []string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\n", strings.Join(command, " ")); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err == nil && len(answer) > 0 {
		t.Fatalf("%v: %s", command, answer)
	}
}
