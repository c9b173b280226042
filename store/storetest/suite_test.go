package storetest_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// faultVariable names the fault that this process runs the suite with.
const faultVariable = "SPOOL_STORETEST_FAULT"

func TestMain(m *testing.M) {
	if fault := os.Getenv(faultVariable); fault != "" {
		storetest.SetWatchdog(5 * time.Second) // for faults by which calls hang
		if groupOf(fault) != "" {
			storetest.SetStarved(1000)
		}
	}
	storetest.Main(m, nil)
}

// place is an engine with its instances, and the fault that the environment names.
type place struct {
	fault  string
	engine *memstore.Store
	clock  *storetest.Clock
	all    []*storetest.Rewound
	notes  sync.Map // of the fault, for all instances
	deaf   atomic.Bool
	twice  atomic.Bool // notifications are doubled
}

// member is an instance of a place.
type member struct {
	*storetest.Rewound
	place *place
}

// spoilt returns an instance's view of the engine.
func (p *place) spoilt() storetest.Engine {
	if make := engineFaults[p.fault].make; make != nil {
		return make(p.engine, p)
	}
	f := &fault{Store: p.engine, wait: p.wait}
	if make := faults[p.fault].make; make != nil {
		make(f)
	}
	return f
}

// wait is Wait of a store that gets notifications and looks every 100 ms as well.
func (p *place) wait(ctx context.Context, s *memstore.Store, session string, seen spool.Head) (spool.Head, []chunk.Record, error) {
	for p.deaf.Load() {
		if h, err := s.Head(ctx, session); err != nil || h != seen {
			return h, nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return s.Wait(ctx, session, seen)
}

// notify implements [storetest.Options].Notify.
func (p *place) notify(times int) (undo func()) {
	p.deaf.Store(times == 0)
	p.twice.Store(times == 2)
	return func() { p.notify(1) }
}

func (p *place) instance() spool.Store {
	r := storetest.NewRewound(p.spoilt())
	p.all = append(p.all, r)
	return &member{r, p}
}

// rewind notes the engine's state, and returns what sets all instances back to it.
func (p *place) rewind() (back func()) {
	early := p.engine.Fork(&memstore.Options{Now: p.clock.Now})
	return func() {
		if raise := engineFaults[p.fault].raise; raise != nil {
			raise(early)
		} else {
			early.Raise()
		}
		p.engine = early
		for _, r := range p.all {
			r.Set(p.spoilt())
		}
	}
}

// TestSuite runs the suite on the store that the environment names.
func TestSuite(t *testing.T) {
	storetest.Run(t, func(t testing.TB) spool.Store {
		clock := storetest.NewClock()
		p := &place{fault: os.Getenv(faultVariable), engine: memstore.New(&memstore.Options{Now: clock.Now}), clock: clock}
		return p.instance()
	}, storetest.Options{
		Advance: func(s spool.Store, d time.Duration) { s.(*member).place.clock.Advance(d) },
		Another: func(_ testing.TB, s spool.Store) spool.Store { return s.(*member).place.instance() },
		Rewind:  func(_ testing.TB, s spool.Store) func() { return s.(*member).place.rewind() },
		Notify:  func(_ testing.TB, s spool.Store, times int) func() { return s.(*member).place.notify(times) },
		Break:   func(_ testing.TB, s spool.Store) func() { return s.(*member).Cut() },
	})
}

// groupOf returns in which group a fault must show; "": it is none.
func groupOf(fault string) string {
	if f, ok := engineFaults[fault]; ok {
		return f.group
	}
	return faults[fault].group
}

func TestFaultsAreFound(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(faults)), maps.Keys(engineFaults)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := groupOf(name)
			// That it fails is enough: nobody reads the shortest sequence.
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestSuite$/^"+group, "-rapid.nofailfile", "-rapid.shrinktime=1ms")
			cmd.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if group == "" {
				if err != nil {
					t.Fatalf("the suite fails without a fault:\n%s", out)
				}
				return
			}
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestSuite/"+group) || strings.Contains(string(out), "panic:") {
				t.Fatalf("not found by %s (%v):\n%s", group, err, out)
			}
		})
	}
}
