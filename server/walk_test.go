package server_test

import (
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/tool"
)

// gate lets the calls of a tool pass one by one.
type gate struct {
	enter chan struct{} // one for each call that has begun
	pass  chan struct{}
	fail  atomic.Bool // the model fails in a turn's last step
}

func (g *gate) open(n int) {
	for range n {
		<-g.enter
		g.pass <- struct{}{}
	}
}

// walking runs an agent that walks two steps, each through the gate, adds them to
// the state, and says where it has come to.
func (k *kit) walking() *gate {
	k.Helper()
	g := &gate{enter: make(chan struct{}, 16), pass: make(chan struct{})}
	step := func(name string) scripted.Step {
		return scripted.Say(scripted.Text(name+" "), scripted.Calls(scripted.ToolCall{ID: "c", Name: "walk", Arguments: `{}`}))
	}
	walk := scripted.Steps(step("one"), step("two"), scripted.Say(scripted.Text("there")))
	a := &agent.Agent{Name: "walker",
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
			"walk": func(c scripted.Call) iter.Seq2[model.Part, error] {
				if c.Round == 2 && g.fail.Load() {
					return func(yield func(model.Part, error) bool) {
						if yield(model.TextDelta{ID: "t", Delta: "th"}, nil) {
							yield(nil, errors.New("out of breath"))
						}
					}
				}
				return walk(c)
			},
			"hello": scripted.Steps(scripted.Say(scripted.Text("hello"))),
			"wipe":  scripted.Steps(scripted.Say(scripted.Text("may I? "), scripted.Calls(scripted.ToolCall{ID: "c", Name: "wipe", Arguments: `{}`})), scripted.Say(scripted.Text("so be it"))),
		}}),
		Tools: []tool.Tool{
			tool.New("walk", "", func(ctx tool.Context, _ struct{}) (string, error) {
				g.enter <- struct{}{}
				select {
				case <-g.pass:
				case <-ctx.Done():
					return "", ctx.Err()
				}
				return "ok", tool.UpdateState(ctx, func(s *struct {
					Steps int `json:"steps"`
				}) error {
					s.Steps++
					return nil
				})
			}),
			tool.With(tool.New("wipe", "", func(tool.Context, struct{}) (string, error) { return "wiped", nil }), tool.Options{Approval: true}),
		}}
	k.execute(a)
	return g
}

// command posts to one of a session's routes and returns what it settled.
func (k *kit) command(path, body string) (s chat.Settled) {
	k.Helper()
	if err := json.Unmarshal(k.status(http.StatusOK, "POST", path, body), &s); err != nil {
		k.Fatal(err)
	}
	return s
}

// later posts to one of a session's routes beside the test.
func (k *kit) later(path, body string) <-chan chat.Settled {
	got := make(chan chat.Settled, 1)
	go func() {
		res, err := k.http.Client().Post(k.http.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			close(got)
			return
		}
		defer res.Body.Close()
		var s chat.Settled
		_ = json.NewDecoder(res.Body).Decode(&s)
		got <- s
	}()
	return got
}

// until waits for a record.
func (k *kit) until(session string, match func(chunk.Record) bool) {
	k.Helper()
	g, err := k.logs.Log(session)
	if err != nil {
		k.Fatal(err)
	}
	for r, err := range g.Records(k.Context(), spool.ReadOptions{Follow: true}) {
		if err != nil {
			k.Fatal(err)
		}
		if match(r) {
			return
		}
	}
}

func ofType(typ chunk.Type) func(chunk.Record) bool {
	return func(r chunk.Record) bool { return r.Type == typ }
}

// interrupted walks one step and is interrupted there.
func (k *kit) interrupted(session string) (g *gate, post []event, s chat.Settled) {
	k.Helper()
	g = k.walking()
	e := k.say(session, "u1", "walk")
	<-g.enter
	settled := k.later("/api/chat/"+session+"/interrupt", `{"reason":"wait"}`)
	k.until(session, ofType(chunk.TypeInterruptRequested))
	g.pass <- struct{}{}
	return g, e.all(), <-settled
}

// walked has a session that walked both steps, and its checkpoints.
func (k *kit) walked(session string) (*gate, []fold.Checkpoint) {
	k.Helper()
	g := k.walking()
	e := k.say(session, "u1", "walk")
	g.open(2)
	e.all()
	return g, k.settled(session).Checkpoints
}

func body(fields ...string) string {
	m := map[string]any{}
	for i := 0; i < len(fields); i += 2 {
		m[fields[i]] = fields[i+1]
	}
	return mustJSON(m)
}
