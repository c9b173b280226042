package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/wire/aisdk"
)

// Many sessions at once, their readers cut at random and coming back each way,
// some runs stopped, for half a minute (SPOOL_SOAK says otherwise): every reader
// ends with the message that the snapshot holds, and nothing is left running.
func TestSoak(t *testing.T) {
	length := 30 * time.Second
	if s := os.Getenv("SPOOL_SOAK"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine()
	turns := soak(t, length)
	t.Logf("%d turns", turns)
	if turns == 0 {
		t.Error("nothing happened")
	}
	http.DefaultClient.CloseIdleConnections()
	for runtime.NumGoroutine() > before+2 {
		time.Sleep(10 * time.Millisecond) // they are on their way out; if not, the test's timeout says where they are
	}
}

func soak(t *testing.T, length time.Duration) int64 {
	store, err := sqlitestore.Open(filepath.Join(t.TempDir(), "soak.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	logs, end := runAgent(t, store, demoAgent(scripted.New(&scripted.Options{Rate: 2000}), 2000, demoLimits{}))
	defer end()
	srv := server.New(logs, nil)
	h := httptest.NewServer(srv)
	defer h.Close()
	defer srv.Shutdown(context.Background())

	var turns atomic.Int64
	var workers sync.WaitGroup
	over := time.Now().Add(length)
	for worker := range 12 {
		workers.Go(func() {
			s := soaker{url: h.URL, rnd: rand.New(rand.NewPCG(1, uint64(worker)))}
			for n := 0; time.Now().Before(over) && !t.Failed(); n++ {
				session := fmt.Sprintf("soak-%d-%d", worker, n)
				for turn := range 1 + s.rnd.IntN(3) {
					if err := s.turn(session, turn); err != nil {
						t.Errorf("%s, turn %d: %v", session, turn, err)
						return
					}
					turns.Add(1)
				}
			}
		})
	}
	workers.Wait()
	return turns.Load()
}

// soaker is one user with bad connections.
type soaker struct {
	url string
	rnd *rand.Rand
}

func (s *soaker) turn(session string, turn int) error {
	scene := []string{"hello", "think", "tools", "fail"}[s.rnd.IntN(4)]
	body, _ := json.Marshal(map[string]any{"id": session, "message": map[string]any{
		"id": fmt.Sprintf("u%d", turn), "role": "user", "parts": []any{map[string]string{"type": "text", "text": scene}}}})
	if s.rnd.IntN(4) == 0 {
		defer time.AfterFunc(time.Duration(s.rnd.IntN(100))*time.Millisecond, func() {
			if res, err := http.Post(s.url+"/api/chat/"+session+"/stop", "application/json", nil); err == nil {
				_ = res.Body.Close()
			}
		}).Stop()
	}
	seen, err := s.read(session, body)
	if err != nil {
		return err
	}
	return s.compare(session, seen)
}

// read follows the answer to its end, across cuts.
func (s *soaker) read(session string, body []byte) (*aisdk.Client, error) {
	client := &aisdk.Client{}
	id := ""
	for tries := 0; tries < 100; tries++ {
		req, err := http.NewRequest("GET", s.url+"/api/chat/"+session+"/stream", nil)
		switch {
		case err != nil:
			return nil, err
		case id == "": // nothing was kept: the same message again is the same turn
			if req, err = http.NewRequest("POST", s.url+"/api/chat/"+session, bytes.NewReader(body)); err != nil {
				return nil, err
			}
		case s.rnd.IntN(3) == 0: // a page that is loaded again
			client = &aisdk.Client{}
		default:
			req.Header.Set("Last-Event-ID", id)
		}
		done, err := s.follow(req, client, &id)
		if err != nil {
			return nil, fmt.Errorf("%s after %q: %w", req.Method, req.Header.Get("Last-Event-ID"), err)
		}
		if done {
			return client, nil
		}
	}
	return nil, errors.New("the answer never ended")
}

// follow reads until the end or a cut of its own. Events without an id are kept
// with the next one that has one.
func (s *soaker) follow(req *http.Request, client *aisdk.Client, id *string) (done bool, err error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return false, fmt.Errorf("%s %s", res.Status, text)
	}
	left := 1 + s.rnd.IntN(200)
	var held bytes.Buffer
	last := ""
	for events := sse.NewReader(res.Body, nil); ; left-- {
		e, err := events.Next()
		if err != nil {
			return false, fmt.Errorf("the stream broke off: %w", err)
		}
		if left == 0 {
			return false, nil
		}
		fmt.Fprintf(&held, "data: %s\n\n", e.Data)
		if string(e.ID) == last {
			continue
		}
		last = string(e.ID)
		if err := client.Write(held.Bytes()); err != nil {
			return false, err
		}
		held.Reset()
		*id = last
		if client.Done {
			return true, nil
		}
	}
}

// compare holds what was seen against the snapshot.
func (s *soaker) compare(session string, seen *aisdk.Client) error {
	res, err := http.Get(s.url + "/api/chat/" + session + "/snapshot")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var snapshot struct {
		Status   string
		Messages []json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&snapshot); err != nil {
		return err
	}
	if snapshot.Status == "active" || len(snapshot.Messages) == 0 {
		return fmt.Errorf("status %s, %d messages after the end", snapshot.Status, len(snapshot.Messages))
	}
	streamed, _ := json.Marshal(seen.Message)
	var a, b any
	if err := errors.Join(json.Unmarshal(streamed, &a), json.Unmarshal(snapshot.Messages[len(snapshot.Messages)-1], &b)); err != nil {
		return err
	}
	if diff := cmp.Diff(a, b); diff != "" {
		return fmt.Errorf("streamed and stored differ (-streamed +stored):\n%s", strings.TrimSpace(diff))
	}
	return nil
}
