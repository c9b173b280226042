package runner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/stream"
)

// aging are the logs of a store with a policy, in a bubble.
type aging struct {
	*testing.T
	store *memstore.Store
	logs  *spool.Logs
}

func inAging(t *testing.T, p spool.Policy, test func(a *aging)) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		a := &aging{t, store, spool.NewLogs(store, &spool.Options{Policy: p})}
		test(a)
		_ = a.logs.Close()
		_ = store.Close()
	})
}

// sweep has a process of its own sweep until it is stopped.
func (a *aging) sweep(logs *spool.Logs) (stop func()) {
	a.Helper()
	ctx, cancel := context.WithCancel(a.Context())
	done := make(chan error)
	go func() { done <- runner.Sweep(ctx, logs, runner.Retention{}) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			a.Error(err)
		}
	}
}

func (a *aging) say(session, id string, row spool.Row) {
	a.Helper()
	g, err := a.logs.Log(session)
	if err != nil {
		a.Fatal(err)
	}
	if _, err := g.Command(a.Context(), row, say(id, "hello")); err != nil {
		a.Fatal(err)
	}
}

// sessions are the sessions that the store lists, in order of their ids.
func (a *aging) sessions() string {
	a.Helper()
	synctest.Wait()
	page, err := a.store.Sessions(a.Context(), spool.SessionQuery{})
	if err != nil {
		a.Fatal(err)
	}
	var ids []string
	for _, i := range page.Sessions {
		ids = append(ids, i.Session)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// Sessions are deleted at their age and not before, by the limits of their agents and
// principals. What is used, or has an owner, stays.
func TestIdleSessionsAreDeleted(t *testing.T) {
	guests := func(agent, principal string) spool.Limits {
		switch {
		case principal == "guest":
			return spool.Limits{TTL: 2 * time.Hour}
		case agent == "brief":
			return spool.Limits{TTL: 4 * time.Hour}
		}
		return spool.Limits{}
	}
	inAging(t, spool.Policy{Of: guests}, func(a *aging) {
		a.say("guest", "m", spool.Row{Principal: "guest"})
		a.say("brief", "m", spool.Row{Agent: "brief", Principal: "ann"})
		a.say("kept", "m", spool.Row{Agent: "other", Principal: "ann"})
		a.say("used", "m0", spool.Row{Principal: "guest"})
		x := stream.NewExternal(a.logs, &stream.ExternalOptions{TTL: 3 * time.Hour})
		run, err := x.Claim(a.Context(), "owned", stream.ExternalClaim{Row: spool.Row{Principal: "guest"}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.sweep(a.logs)()
		for i, want := range []string{ // what is there after so many hours and 25 minutes: two sweeps later
			"brief guest kept owned used",
			"brief guest kept owned used",
			"brief kept owned used",
			"brief kept used", // its owner's lease has expired
			"kept used",
		} {
			if i == 0 {
				time.Sleep(25 * time.Minute)
			} else {
				time.Sleep(time.Hour)
			}
			a.say("used", fmt.Sprint("u", i), spool.Row{})
			if got := a.sessions(); got != want {
				t.Errorf("after %d h 25 min: %q, want %q", i, got, want)
			}
		}
		if _, err := x.Append(a.Context(), "owned", run.Epoch, 0, []chunk.Chunk{&chunk.TextDelta{Delta: "late"}}); !errors.Is(err, stream.ErrProducerFenced) {
			t.Errorf("the owner of a deleted session is told %v", err)
		}
	})
}

// notes are what the processes of a test did since they were read last.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, what)
}

func (n *notes) take() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

// loggedTo notes what a process lists and deletes.
type loggedTo struct {
	*memstore.Store
	process string
	did     *notes
}

func (s loggedTo) Expire(ctx context.Context, session string, idle time.Duration) error {
	s.did.add(s.process + " " + session)
	return s.Store.Expire(ctx, session, idle)
}

func (s loggedTo) Sessions(ctx context.Context, q spool.SessionQuery) (spool.SessionPage, error) {
	page, err := s.Store.Sessions(ctx, q)
	if q.Idle > 0 {
		s.did.add(fmt.Sprint(s.process, " read ", len(page.Sessions)))
	}
	return page, err
}

// Of several processes one sweeps at a time, another goes on when it stops, and a sweep reads
// only what it may delete.
func TestOneSweeps(t *testing.T) {
	inAging(t, spool.Policy{Limits: spool.Limits{TTL: time.Hour}}, func(a *aging) {
		var did notes
		stops := map[string]func(){}
		for i, process := range []string{"a", "b", "c"} {
			logs := spool.NewLogs(loggedTo{a.store, process, &did}, &spool.Options{Policy: *a.logs.Policy()})
			defer logs.Close()
			stop := a.sweep(logs)
			stops[process] = sync.OnceFunc(stop)
			defer stops[process]()
			if i == 0 { // the others begin later
				time.Sleep(time.Minute)
			}
		}
		for i := range 150 {
			a.say(fmt.Sprint("s", i), "m", spool.Row{})
		}
		time.Sleep(59 * time.Minute)
		early := did.take()
		for _, d := range early {
			if !strings.HasSuffix(d, "read 0") {
				t.Errorf("before the TTL: %s", d)
			}
		}
		if n := len(early); n < 5 || n > 10 {
			t.Errorf("%d sweeps in an hour of three processes: %q", n, early)
		}
		time.Sleep(20 * time.Minute)
		if got := a.sessions(); got != "" {
			t.Errorf("left %q", got)
		}
		deleted := map[string]int{}
		sweeper := ""
		for _, d := range did.take() {
			process, what, _ := strings.Cut(d, " ")
			if !strings.HasPrefix(what, "read") {
				sweeper = process
				deleted[what]++
			}
		}
		for session, n := range deleted {
			if n != 1 {
				t.Errorf("%s was deleted %d times", session, n)
			}
		}
		if len(deleted) != 150 {
			t.Errorf("%d were deleted", len(deleted))
		}
		stops[sweeper]()
		did.take()
		a.say("next", "m", spool.Row{})
		time.Sleep(90 * time.Minute)
		later := did.take()
		if got := a.sessions(); got != "" || len(later) == 0 || slices.ContainsFunc(later, func(d string) bool { return strings.HasPrefix(d, sweeper) }) {
			t.Errorf("left %q after %s had stopped: %q", got, sweeper, later)
		}
	})
}

// A store that cannot delete by age is refused with a policy that wants it.
func TestTTLNeedsAStore(t *testing.T) {
	store := struct {
		spool.Store
		spool.Leaser
		spool.Lister
		spool.Trimmer
	}{}
	mem := memstore.New(nil)
	store.Store, store.Leaser, store.Lister, store.Trimmer = mem, mem, mem, mem
	logs := spool.NewLogs(store, &spool.Options{Policy: spool.Policy{Limits: spool.Limits{TTL: time.Hour}}})
	defer logs.Close()
	if err := runner.Sweep(t.Context(), logs, runner.Retention{}); !errors.Is(err, spool.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := runner.New(logs, []*agent.Agent{demo(nil)}, nil); !errors.Is(err, spool.ErrUnsupported) {
		t.Error(err)
	}
}

// The process that swept last says how much the store holds, and how old it is.
func TestStoreMetrics(t *testing.T) {
	inAging(t, spool.Policy{}, func(a *aging) {
		a.say("s", "m", spool.Row{Agent: "elsewhere"})
		info, err := a.store.Session(a.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		var texts [2]func() string
		for i := range texts {
			m := new(runner.Metrics)
			r, err := runner.New(a.logs, []*agent.Agent{demo(nil)}, &runner.Options{Metrics: m})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(a.Context())
			done := make(chan error)
			go func() { done <- r.Run(ctx) }()
			defer func() { cancel(); <-done }()
			texts[i] = func() string { return scrape(t, m) }
			time.Sleep(time.Minute)
		}
		if strings.Contains(texts[0](), "\nspool_store_bytes") {
			t.Error("known before a sweep")
		}
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		first := texts[0]()
		for _, want := range []string{"\nspool_store_sessions 1\n", fmt.Sprintf("\nspool_store_bytes %d\n", info.Bytes),
			fmt.Sprintf("\nspool_store_largest_session_bytes %d\n", info.Bytes), "\nspool_store_oldest_session_seconds 600\n"} {
			if !strings.Contains(first, want) {
				t.Errorf("no %q in\n%s", want, first)
			}
		}
		if strings.Contains(texts[1](), "\nspool_store_bytes") {
			t.Error("both say it")
		}
	})
}
