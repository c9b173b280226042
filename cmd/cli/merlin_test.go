package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/replay"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/wire/merlin"
)

// live serves an agent.
func live(t *testing.T, a *agent.Agent, flags ...string) (url string) {
	t.Helper()
	logs, end := runAgent(t, memstore.New(nil), a)
	f := wires.ServeFlags{Flags: wires.Flags{Literal: flags}, Pacing: "none"}
	o, err := f.Options()
	if err != nil {
		t.Fatal(err)
	}
	srv := server.New(logs, &server.Options{Wires: o})
	h := httptest.NewServer(srv)
	t.Cleanup(func() {
		_ = srv.Shutdown(context.Background())
		h.Close()
		end()
	})
	return h.URL
}

// merlinSays posts a message and reads the answer as a Go client does. One that is
// cut, because what it has seen is taken back, comes again with nothing.
func merlinSays(t *testing.T, url, message string) merlin.Client {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"message": message})
	res, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { res.Body.Close() }()
	r, c := merlin.NewReader(res.Body), merlin.Client{}
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return c
		case errors.Is(err, io.ErrUnexpectedEOF) && !c.Ended:
			res.Body.Close()
			if res, err = http.Get(url); err != nil {
				t.Fatal(err)
			}
			r, c = merlin.NewReader(res.Body), merlin.Client{}
		case err != nil:
			t.Fatalf("%s: %v", message, err)
		default:
			c.Apply(e)
		}
	}
}

// Each recorded provider stream, played through its client, the agent, the log and
// the server, reaches a Merlin client as the provider meant it.
func TestRecordingsOnMerlin(t *testing.T) {
	m, err := replay.New(corpus, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	url := live(t, &agent.Agent{Name: "recordings", Model: m, FailPartial: true})
	n := 0
	for from, ingest := range ingesters {
		for file, data := range modeltest.Streams(t, filepath.Join(corpus, from), "*.sse") {
			said := foldParts(ingest(bytes.NewReader(data), nil))
			if len(data) > 32<<10 || said.Error != nil && said.Error.Retryable && said.Text == "" || bytes.Contains(data, []byte("pause_turn")) {
				continue // asked again, after a while
			}
			for _, version := range []string{"v1", "v2"} {
				n++
				c := merlinSays(t, fmt.Sprintf("%s/merlin/%s/s%d", url, version, n), from+"/"+filepath.Base(file))
				text := c.Text()
				if version == "v1" {
					text = markers.ReplaceAllString(text, "")
				}
				if !c.Ended || text != said.Text || (c.Error != nil) != (said.Error != nil) {
					t.Errorf("%s, %s: %q, ended %v, %v; the provider said %q, %v", file, version, text, c.Ended, c.Error, said.Text, said.Error)
				}
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d recordings were played", n)
	}
}

// An agent's hooks show what they do through an event manager, as tools do.
func TestEventsOfAHook(t *testing.T) {
	a := &agent.Agent{Name: "guide", Model: scripted.New(&scripted.Options{}), Hooks: &agent.Hooks{
		BeforeModel: func(h agent.HookContext, _ *model.Request) error {
			events, err := merlin.NewEventManager(h.EmitProgress, &merlin.EventOptions{Name: "Getting ready", Icon: merlin.IconGlobe})
			if err != nil {
				return err
			}
			step, err := events.CreateEvent("Looking around", "")
			if err != nil {
				return err
			}
			return errors.Join(step.Send(merlin.Text("all clear")), step.End(), events.End())
		},
	}}
	url := live(t, a)
	v2 := merlinSays(t, url+"/merlin/v2/s", "hello")
	if len(v2.Blocks) < 2 || len(v2.Blocks[0].Steps) != 1 || v2.Blocks[0].Heading == nil || v2.Blocks[0].Heading.Name != "Getting ready" ||
		v2.Blocks[0].Steps[0].Status != merlin.Done || len(v2.Blocks[0].Steps[0].Values) != 1 || v2.Text() == "" {
		t.Errorf("V2 shows %+v", v2)
	}
	v1 := merlinSays(t, url+"/merlin/v1/s1", "hello")
	if len(v1.Steps) != 1 || v1.Steps[0].Status != merlin.Done || v1.Heading == nil || v1.Text() != v2.Text() {
		t.Errorf("V1 shows %+v", v1)
	}
}

func TestMerlinFlags(t *testing.T) {
	if _, err := (&wires.Flags{Literal: []string{"end", "nonsense"}}).Options(); err == nil {
		t.Error("nonsense is taken for a literal behaviour")
	}
	o, err := (&wires.Flags{Literal: []string{"all"}}).Options()
	if want := (merlin.Literal{End: true, Suppression: true, FirstCall: true, EmptyArguments: true, Citations: true, Union: true, Progress: true, Errors: true}); err != nil || o.Merlin.Literal != want {
		t.Errorf("all are %+v, %v", o.Merlin.Literal, err)
	}
	suppress := func(types ...string) func(string) bool {
		o, err := (&wires.Flags{Suppress: types}).Options()
		if err != nil {
			t.Fatal(err)
		}
		return o.Merlin.Suppress
	}
	if all, some := suppress("*"), suppress("scout"); !all("x") || some("x") || !some("scout") || suppress() != nil {
		t.Error("the wrong agents are suppressed")
	}
	url := live(t, &agent.Agent{Name: "a", Model: scripted.New(&scripted.Options{})}, "end", "union")
	res, err := http.Post(url+"/merlin/v2/s", "application/json", strings.NewReader(`{"message":"hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Contains(body, []byte(`{"type":"DONE"}`)) || bytes.Contains(body, []byte("event: end")) {
		t.Errorf("with literal ends the stream is %s, %v", body, err)
	}
}
