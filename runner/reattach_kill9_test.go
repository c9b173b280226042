package runner_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/tool"
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
	_, err = play(store, args[0], overheard(args[1]), true)
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
				eachEvent(background(t, name), 8, func(round, number int) {
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
				if r.Type == spool.TypeAnswerStarted {
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
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s", envListener, dir, o.URL()))
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	if err := child.Wait(); err == nil {
		t.Fatalf("%s: it lived", where)
	}
	lease, err := store.Claim(t.Context(), spool.Claim{Owner: "undertaker", Session: "s", Force: true})
	if err == nil {
		err = store.Release(t.Context(), lease)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := play(store, dir, overheard(o.URL()), false)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if got := said(f); got != want || b.Asked() != len(recordings[name]) || len(b.Cancelled()) != 0 {
		t.Errorf("%s: asked %d times, cancelled %v\n%s\nundisturbed:\n%s", where, b.Asked(), b.Cancelled(), got, want)
	}
	records, err := store.Read(t.Context(), "s", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	nothingRetracted(t, records, where)
}
