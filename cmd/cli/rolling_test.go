package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// balancer sends requests to the server that is in service.
type balancer struct{ to atomic.Pointer[url.URL] }

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	to := b.to.Load()
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// serve puts a server into service.
func (b *balancer) serve(t *testing.T, s *spoolServer) {
	t.Helper()
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	b.to.Store(to)
}

// A server is replaced by another on the same file again and again, while users send
// messages and read the answers. Nobody notices: no message, no record and no outcome of a
// call is lost or doubled, all answers are whole, and each run that was left in the middle
// was handed over, so that nothing was recovered.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const users, handOvers = 6, 4 // that were seen by readers
	db := filepath.Join(t.TempDir(), "rolling.db")
	start := func() *spoolServer {
		return serveSpool(t, db, "--demo-rate", "200", "--drain-grace", "1h", "--heartbeat", "1s")
	}
	old, lb := start(), &balancer{}
	lb.serve(t, old)
	c, err := client.New("http://spool", &client.Options{HTTP: &http.Client{Transport: lb}, Retry: client.Retry{Max: -1, Base: time.Millisecond, Cap: 100 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}

	var handed atomic.Int64
	midway := make(chan struct{}, 1) // somebody has read the beginning of an answer of several steps
	over := make(chan struct{})
	var workers sync.WaitGroup
	for user := range users {
		workers.Go(func() {
			for turn := 0; ; turn++ {
				select {
				case <-over:
					return
				default:
				}
				if err := rollingTurn(t.Context(), c.Session(fmt.Sprintf("rolling-%d-%d", user, turn)), &handed, midway); err != nil {
					t.Errorf("user %d, turn %d: %v", user, turn, err)
					tell(midway)
					return
				}
			}
		})
	}
	for handed.Load() < handOvers && !t.Failed() {
		<-midway
		next := start()
		lb.serve(t, next)
		old.end()
		old = next
	}
	close(over)
	workers.Wait()
	old.end()
}

// tell wakes whoever reads a channel of one element.
func tell(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// rollingTurn is a user's message, and its answer as a reader of the log sees it.
func rollingTurn(ctx context.Context, s *client.Session, handed *atomic.Int64, midway chan<- struct{}) error {
	if _, err := s.Send(ctx, client.Message{ID: "u1", Text: "tools"}); err != nil {
		return err
	}
	var types []string
	var said strings.Builder
	log := s.Log(ctx, client.LogOptions{})
	defer log.Close()
	for last := uint64(0); ; {
		e, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w, after %v", err, types)
		}
		if last++; e.Seq != last {
			return fmt.Errorf("record %d comes after %d", e.Seq, last-1)
		}
		types = append(types, string(e.Type))
		switch v := e.Chunk.(type) {
		case *chunk.TextDelta:
			said.WriteString(v.Delta)
		case *chunk.ToolStart:
			types = append(types, "start "+v.ToolCallID)
			tell(midway)
		case *chunk.ToolEnd:
			types = append(types, "end "+v.ToolCallID)
		case *chunk.ExecutorHandedOver:
			handed.Add(1)
		case *chunk.RunFinished:
			types = append(types, "finished "+string(v.Outcome))
		}
	}
	count := func(of string) (n int) {
		for _, typ := range types {
			if typ == of {
				n++
			}
		}
		return n
	}
	for _, never := range []chunk.Type{chunk.TypeExecutorSuperseded, chunk.TypeStepDiscarded} {
		if slices.Contains(types, string(never)) {
			return fmt.Errorf("the log has a %s: %v", never, types)
		}
	}
	for of, want := range map[string]int{"user_message": 1, "run_started": 1, "finished completed": 1, "step_committed": 3, "tool_start": 3, "tool_end": 3} {
		if got := count(of); got != want {
			return fmt.Errorf("%d × %s, want %d: %v", got, of, want, types)
		}
	}
	for _, typ := range types {
		if call, ok := strings.CutPrefix(typ, "start "); ok && (count(typ) != 1 || count("end "+call) != 1) {
			return fmt.Errorf("the call %s was made %d times and ended %d times", call, count(typ), count("end "+call))
		}
	}
	if text := said.String(); !strings.Contains(text, "three steps and three tool calls") {
		return fmt.Errorf("it said %q", text)
	}
	snap, err := s.Snapshot(ctx, client.SnapshotOptions{})
	if err != nil {
		return err
	}
	if snap.Status != chunk.StatusEnded || len(snap.Messages) != 2 {
		return fmt.Errorf("the snapshot is %s with %d messages", snap.Status, len(snap.Messages))
	}
	return nil
}
