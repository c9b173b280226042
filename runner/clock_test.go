package runner_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/tool"
)

// wrongly returns a second process on the world's store, with a clock that is wrong by skew.
func (w *world) wrongly(skew time.Duration) *world {
	other := &world{t: w.t, store: w.store, ends: w.ends}
	other.logs = spool.NewLogs(w.store, &spool.Options{
		NewID: func() string { return fmt.Sprintf("skewed-%06d", other.ids.Add(1)) },
		Now:   func() time.Time { return time.Now().Add(skew) },
	})
	*w.ends = append(*w.ends, func() { _ = other.logs.Close() })
	return other
}

// A pause lasts as long as it should, by the store's clock, whatever the owners' clocks
// say, and nobody claims the session again and again meanwhile.
func TestPausesExpireByTheStoresClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -5 * time.Second, 200 * time.Millisecond, 5 * time.Second, time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			inWorld(t, func(w *world) {
				node := w.wrongly(skew)
				s, e := waitingWorld(node, "client", 10*time.Minute)
				begun := time.Now()
				other := w.wrongly(-skew)
				for _, n := range []*world{node, other} {
					n.start(s.agent(e.add), nil)
				}
				before, err := w.log("s").Head(w.t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.until("s", chunk.TypeRunFinished, nil)
				if took := time.Since(begun); took < 9*time.Minute || took > 11*time.Minute {
					t.Errorf("it waited %v", took)
				}
				synctest.Wait()
				after, err := w.log("s").Head(w.t.Context())
				if err != nil || after.Epoch > before.Epoch+2 {
					t.Errorf("claimed %d times: %v", after.Epoch-before.Epoch, err)
				}
			})
		})
	}
}

// A reader is told that the turn is over when it is, and not before, if the session's
// owner, the store and the reader's process have different clocks.
func TestReadersOfOtherClocks(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -200 * time.Millisecond, 200 * time.Millisecond, time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var s scenario
				for _, s = range scenarios() {
					if s.title() == "client" {
						break
					}
				}
				reader := w.wrongly(skew)
				a := s.agent(func(tool.Call) {})
				a.WaitLimit = time.Hour
				w.say("s", "u1", s.name)
				_, stop := w.wrongly(-skew).start(a, nil)
				if f := w.fold("s"); f.Status != chunk.StatusPaused {
					t.Fatalf("it does not wait: %s", outcome(f))
				}
				stop()
				if !w.reply(s, w.fold("s")) {
					t.Fatal("nothing to answer")
				}
				// The answer is in the log and nobody has acted on it yet: more will follow.
				var seen []chunk.Type
				go func() {
					for r, err := range reader.log("s").Records(w.t.Context(), spool.ReadOptions{}) {
						if err != nil {
							t.Error(err)
						}
						seen = append(seen, r.Type)
					}
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				w.start(a, &runner.Options{})
				w.settled("s")
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(seen) == 0 || seen[len(seen)-1] != chunk.TypeRunFinished {
					t.Errorf("the reader ended after %v", seen)
				}
			})
		})
	}
}
