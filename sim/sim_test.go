// Package sim_test is the simulator: nodes with runners and HTTP servers over one
// store, users, readers of every wire and producers, all in one process and in virtual
// time. One seed decides what goes wrong: lost, late and doubled calls of the store,
// outages, clocks that are wrong, nodes that die, drain and come back, connections that
// are cut, and a store that is set back. When it is over, everything must be as
// docs/guarantees.md says.
//
// A failure prints its seed, what went wrong until then, and how to repeat it. A seed
// decides every fault, but the scheduler decides which goroutine runs first, so a rare
// failure may need several attempts with its seed.
package sim_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/store/storetest"
	"github.com/spool-run/spool/tool"
)

const (
	envSeed  = "SPOOL_SEED"  // only this seed
	envSeeds = "SPOOL_SEEDS" // how many seeds, or for how long: 5000, 1h
)

// Whatever goes wrong between nodes, store and clients: every run settles, each reader
// has the message that the log says, nothing acknowledged is lost, nothing is doubled,
// no finished call is made again, and a session has one owner at a time.
func TestSimulation(t *testing.T) {
	onOneProcessor(t)
	if s := os.Getenv(envSeed); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		simulated(t, seed, map[string]int{})
		return
	}
	n, until := 200, time.Time{}
	first := uint64(1)
	if s := os.Getenv(envSeeds); s != "" {
		first = uint64(time.Now().UnixNano()) // others than every time
		if d, err := time.ParseDuration(s); err == nil {
			n, until = 1<<40, time.Now().Add(d)
		} else if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s=%s is neither a number nor a duration", envSeeds, s)
		}
	}
	seen := map[string]int{}
	done, stride := 0, matrix.Stride(t, 20)
	for i := 0; i < n && (until.IsZero() || time.Now().Before(until)); i += stride {
		simulated(t, first+uint64(i), seen)
		done++
	}
	t.Logf("%d seeds: %v", done, seen)
	for _, what := range append(names[:], "executor_superseded", "executor_handed_over", "step_discarded", "run_suspended", "stop_requested", "interrupt_requested",
		"resume_requested", "history_rewound", "tool_approval_response", "tool_result_submitted", "subagent_end", "answer_started",
		"read on aisdk 6", "read on aisdk 7", "read on aisdk, counted", "read on merlin-v1", "read on merlin-v2") {
		if done >= 100 && seen[what] == 0 {
			t.Errorf("in all these simulations there was no %s", what)
		}
	}
}

// The simulator finds what is broken.
func TestSimulatorFinds(t *testing.T) {
	matrix.WithoutRace(t)
	onOneProcessor(t)
	for _, tt := range []struct {
		name string
		spoiled
		want string
	}{
		{"a store that forgets fencing", spoiled{store: func(e storetest.Engine) storetest.Engine { return &unfenced{Engine: e} }}, "was taken after a claim under epoch"},
		{"a store that repeats appends", spoiled{store: func(e storetest.Engine) storetest.Engine { return &repeating{Engine: e} }}, "records are stored at"},
		{"a store that loses what it has acknowledged", spoiled{store: func(e storetest.Engine) storetest.Engine { return &losing{Engine: e} }}, "records are stored at"},
		{"a store whose leases end early", spoiled{store: func(e storetest.Engine) storetest.Engine { return &hasty{Engine: e} }}, "still had it for"},
		{"reads that leave out a record", spoiled{store: func(e storetest.Engine) storetest.Engine { return &skipping{Engine: e} }}, ""},
		{"a provider that is asked again", spoiled{agent: func(a *agent.Agent) { a.Model = &forgetful{a.Model.(*provider)} }}, "whose answer could be resumed"},
		{"a tool that is called again", spoiled{agent: func(a *agent.Agent) {
			for i, t := range a.Tools {
				a.Tools[i] = tool.With(t, tool.Options{Recovery: tool.RecoverRetry})
			}
		}}, "once is made 2 times"},
		{"a reader that skips an event", spoiled{reader: everyHundredth()}, "on aisdk"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 200; seed++ {
				if r := simulate(t, seed, tt.spoiled); strings.Contains(strings.Join(r.wrong, "\n"), tt.want) && len(r.wrong) > 0 {
					t.Logf("seed %d: %s", seed, r.wrong[0])
					return
				}
			}
			t.Error("it finds nothing")
		})
	}
}

// onOneProcessor makes the order of goroutines as repeatable as it can be.
func onOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// simulated simulates a seed, reports what is wrong, and adds to what was seen.
func simulated(t *testing.T, seed uint64, seen map[string]int) {
	t.Helper()
	r := simulate(t, seed, spoiled{})
	for what, n := range r.seen {
		seen[what] += n
	}
	if len(r.wrong) == 0 {
		return
	}
	const most = 300
	if n := len(r.trace); n > most && os.Getenv(envSeed) == "" {
		r.trace = append([]string{fmt.Sprintf("… %d lines more", n-most)}, r.trace[n-most:]...)
	}
	t.Errorf("seed %d:\n%s\nwhat happened before:\n%s\nagain: %s=%d go test -run 'TestSimulation$' ./sim",
		seed, strings.Join(r.wrong, "\n"), strings.Join(r.trace, "\n"), envSeed, seed)
}
