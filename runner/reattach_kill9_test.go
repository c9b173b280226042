package runner_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/wire/aisdk"
)

// The environment of a child that listens to a background provider until it is
// killed: its directory and the provider's address.
const envListener = "SPOOL_TEST_LISTENER"

func overheard(url string) scenario {
	return scenario{name: "go", agent: func(func(tool.Call)) *agent.Agent { return listener(openai.Options{BaseURL: url}) }}
}

func openIn(dir string) (*sqlitestore.Store, error) {
	return sqlitestore.Open(filepath.Join(dir, "spool.db"), &sqlitestore.Options{Sync: sqlitestore.SyncNormal})
}

func listen(args []string) error {
	store, err := openIn(args[0])
	if err != nil {
		return err
	}
	_, err = play(store, args[0], overheard(args[1]), false)
	return errors.Join(err, store.Close())
}

// A process is killed with SIGKILL when the provider is about to send some event,
// and another goes on: with the same answer, asked for once.
func TestKill9WhileTheProviderGoesOn(t *testing.T) {
	for _, name := range []string{"tools", "parallel", "server"} {
		t.Run(name, func(t *testing.T) {
			want := ""
			inWorld(t, func(w *world) {
				w.start(inMemory(background(t, name)), nil)
				w.say("s", "u1", "go")
				want = said(w.fold("s"))
			})
			t.Run("", func(t *testing.T) { // so that the bubble above is alone
				t.Parallel()
				eachEvent(t, background(t, name), 8, 3, func(round, number int) {
					killedAt(t, name, round, number, want)
				})
			})
		})
	}
}

func killedAt(t *testing.T, name string, round, number int, want string) {
	t.Helper()
	where := fmt.Sprintf("killed at event %d of answer %d", number, round)
	dir := t.TempDir()
	store, err := openIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	g, err := logs.Log("s")
	if err != nil {
		t.Fatal(err)
	}

	b := background(t, name)
	var (
		child *exec.Cmd
		once  sync.Once
	)
	started := make(chan struct{})
	b.Before = func(e modeltest.Event) modeltest.Fate {
		if e.Round != round || e.Number != number || e.Connection != 0 {
			return modeltest.Send
		}
		once.Do(func() {
			<-started
			known := 0 // the log knows of the answer: what it knew else is the child's luck
			for r, err := range g.Records(t.Context(), spool.ReadOptions{Follow: true}) {
				if err != nil {
					t.Error(err)
					break
				}
				if r.Type == chunk.TypeAnswerStarted {
					known++
				}
				if known > round {
					break
				}
			}
			_ = child.Process.Kill()
		})
		return modeltest.Stall
	}
	o, err := modeltest.NewOutage(b)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Down()
	if _, err := g.Command(t.Context(), spool.Row{}, say("u1", "go")); err != nil {
		t.Fatal(err)
	}
	watched := watch(t, logs)
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s", envListener, dir, o.URL()))
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	if err := child.Wait(); err == nil {
		t.Fatalf("%s: it lived", where)
	}
	f, err := play(store, dir, overheard(o.URL()), false)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if got := said(f); got != want || b.Asked() != len(recordings[name]) || len(b.Cancelled()) != 0 {
		t.Errorf("%s: asked %d times, cancelled %v\n%s\nundisturbed:\n%s", where, b.Asked(), b.Cancelled(), got, want)
	}
	records, _, err := store.Read(t.Context(), "s", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	nothingRetracted(t, records, where)
	seen := <-watched
	if seen.err != nil || !strings.HasSuffix(seen.stream, "data: [DONE]\n\n") || strings.Contains(seen.stream, "resync") || strings.Contains(seen.stream, "discarded") {
		t.Errorf("%s: a reader saw %v\n%s", where, seen.err, seen.stream)
	}
	if got, want := text(seen.message), f.Messages[1].Text(); got != want || want == "" {
		t.Errorf("%s: a reader saw %q, not %q", where, got, want)
	}
}

// watched is what a reader on the AI SDK wire got.
type watched struct {
	stream  string
	message aisdk.UIMessage
	err     error
}

// watch attaches a reader over HTTP that stays to the end, whichever process dies.
func watch(t *testing.T, logs *spool.Logs) <-chan watched {
	t.Helper()
	h := server.New(logs, nil)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	resp, err := http.Get(s.URL + "/api/chat/s/stream")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan watched, 1)
	go func() {
		defer resp.Body.Close()
		stream, err := io.ReadAll(resp.Body)
		c := &aisdk.Client{}
		err = errors.Join(err, c.Write(stream))
		done <- watched{string(stream), c.Message, err}
	}()
	return done
}

func text(m aisdk.UIMessage) (all string) {
	for _, p := range m.Parts {
		if p.Type == "text" {
			all += p.Text
		}
	}
	return all
}
