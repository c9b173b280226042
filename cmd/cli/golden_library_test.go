package cli

import (
	"errors"
	"iter"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/wire/wiretest"
)

// libraryScene is a session that the binary's own agent cannot have: of a program
// with agents of its own.
type libraryScene struct {
	session string
	agent   func(free <-chan struct{}) *agent.Agent
	play    func(s *spoolServer, session string, free chan<- struct{})
	once    bool // it comes out differently every time
}

type workInput struct {
	N int `json:"n"`
}

// work is a tool that does something at once; rest waits until it may go on.
func workTools(free <-chan struct{}) []tool.Tool {
	again := tool.Options{Recovery: tool.RecoverRetry}
	return []tool.Tool{
		tool.With(tool.New("work", "", func(ctx tool.Context, in workInput) (map[string]int, error) {
			if in.N < 0 {
				return nil, errors.New("there is no such work")
			}
			return map[string]int{"done": in.N}, nil
		}), again),
		tool.With(tool.New("gated", "", func(ctx tool.Context, in workInput) (map[string]int, error) {
			return map[string]int{"done": in.N}, nil
		}), tool.Options{Recovery: tool.RecoverRetry, Approval: true}),
		tool.With(tool.New("rest", "", func(ctx tool.Context, in struct{}) (string, error) {
			select {
			case <-free:
				return "rested", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}), again),
	}
}

func calls(list ...string) scripted.Step {
	var made []scripted.ToolCall
	for i, c := range list {
		name, arguments, _ := strings.Cut(c, " ")
		made = append(made, scripted.ToolCall{ID: "c" + string(rune('a'+i)), Name: name, Arguments: arguments})
	}
	return scripted.Say(scripted.Calls(made...))
}

// actor is an agent that plays scenes, and says so in the end.
func actor(name string, free <-chan struct{}, scenes map[string][]scripted.Step) *agent.Agent {
	all := map[string]scripted.Scene{}
	for word, steps := range scenes {
		all[word] = scripted.Steps(append(steps, scripted.Say(scripted.Reasoning("All is done."), scripted.Text("That was all.")))...)
	}
	return &agent.Agent{Name: name, Model: scripted.New(&scripted.Options{Scenes: all}), Tools: workTools(free)}
}

// company is an agent with companions of both modes.
func company(free <-chan struct{}) *agent.Agent {
	kid := func(name string) *agent.Agent {
		return actor(name, free, map[string][]scripted.Step{
			"dig": {calls(`work {"n":1}`)}, "deeper": {calls(`work {"n":2}`)}, "book": {calls(`gated {"n":3}`)}, "rest": {calls(`rest {}`)},
		})
	}
	a := actor("demo", free, map[string][]scripted.Step{
		"companions": {
			scripted.Say(scripted.Text("Go: "), calls(`companion__spawnAgent {"agent":"digger","task":"dig there"}`, `companion__spawnAgent {"agent":"adviser","task":"dig here"}`).Parts),
			calls(`companion__sendMessage {"childId":"companions.2","message":"deeper"}`, `companion__waitForResult {"childId":"companions.1"}`,
				`work {"n":-1}`, `companion__sendMessage {"childId":"companions.9","message":"hello"}`),
			calls(`companion__terminateChild {"childId":"companions.1"}`),
			calls(`companion__listChildren {}`, `companion__getChildStatus {"childId":"companions.2"}`),
		},
		"later":   {calls(`companion__sendMessage {"childId":"companions.2","message":"dig"}`)},
		"book":    {calls(`companion__spawnAgent {"agent":"digger","task":"book it"}`, `companion__spawnAgent {"agent":"adviser","task":"book that"}`)},
		"resting": {calls(`companion__spawnAgent {"agent":"digger","task":"rest"}`), calls(`rest {}`)},
	})
	a.Companions = []agent.Companion{{Agent: kid("digger"), Mode: chunk.ChildBackground, Description: "Digs."}, {Agent: kid("adviser"), Description: "Advises."}}
	return a
}

// family is an agent whose sub-agents have sub-agents, one of which fails.
func family(free <-chan struct{}) *agent.Agent {
	grandchild := actor("grandchild", free, map[string][]scripted.Step{"dive": {calls(`work {"n":1}`, `work {"n":2}`)}, "drown": {{Err: &model.Error{Code: model.CodeAuthentication, Message: "no air"}}}})
	child := actor("child", free, map[string][]scripted.Step{
		"go":  {scripted.Say(scripted.Text("Deeper. "), calls(`subagent__grandchild {"task":"dive"}`).Parts), calls(`subagent__grandchild {"task":"drown"}`)},
		"ask": {calls(`gated {"n":1}`)},
	})
	child.Tools = append(child.Tools, agent.SubAgent(grandchild, agent.SubAgentOptions{}))
	a := actor("demo", free, map[string][]scripted.Step{
		"family": {scripted.Say(scripted.Text("All of you. "), calls(`subagent__child {"task":"go"}`, `subagent__child {"task":"go"}`).Parts), calls(`work {"n":3}`)},
		"ask":    {calls(`subagent__child {"task":"ask"}`, `subagent__child {"task":"ask"}`)},
	})
	a.Tools = append(a.Tools, agent.SubAgent(child, agent.SubAgentOptions{}))
	return a
}

type soundness struct {
	Sound bool `json:"sound"`
}

// judge has to answer in a shape, and does not at first.
func judge(<-chan struct{}) *agent.Agent {
	a := &agent.Agent{Name: "demo", Output: agent.OutputOf[soundness](), Model: scripted.New(&scripted.Options{
		Default: func(c scripted.Call) iter.Seq2[model.Part, error] {
			text := "It is sound, I think."
			if last := c.Request.Messages[len(c.Request.Messages)-1]; strings.Contains(last.Text(), "not accepted") {
				text = `{"sound":true}`
			}
			return scripted.Steps(scripted.Say(scripted.Text(text)))(c)
		}})}
	return a
}

func saysOnce(text string) func(*spoolServer, string, chan<- struct{}) {
	return func(s *spoolServer, session string, _ chan<- struct{}) { s.say(session, "u1", text) }
}

var libraryScenes = []libraryScene{
	{session: "companions", agent: company, play: func(s *spoolServer, session string, _ chan<- struct{}) {
		saying("companions", "later")(s, session)
	}},
	{session: "companions-wait", agent: company, play: saysOnce("book")},
	{session: "companions-decided", agent: company, play: func(s *spoolServer, session string, _ chan<- struct{}) {
		s.say(session, "u1", "book")
		ids := s.approvals(session)
		for i, id := range ids {
			s.must("POST", chatPath(session)+"/approvals/"+id, object{"approved": i == 0})
		}
		s.must("GET", "/stream/"+session, nil)
	}},
	{session: "companions-interrupted", agent: company, play: func(s *spoolServer, session string, free chan<- struct{}) {
		res := s.open("POST", chatPath(session), `{"message":"resting"}`)
		defer res.Body.Close()
		s.until(session, func(records string) bool { // until both of them rest
			return strings.Count(records, `"type":"tool_start"`) == 3
		})
		answered := s.meanwhile(session, "POST", chatPath(session)+"/interrupt", nil)
		close(free)
		answered()
	}, once: true},
	{session: "family", agent: family, play: saysOnce("family")},
	{session: "family-waits", agent: family, play: saysOnce("ask")},
	{session: "judged", agent: judge, play: saysOnce("is it?")},
	{session: "limited", agent: func(free <-chan struct{}) *agent.Agent {
		a := actor("demo", free, map[string][]scripted.Step{"work": {calls(`work {"n":1}`), calls(`work {"n":2}`), calls(`work {"n":3}`)}})
		a.MaxSteps = 2
		return a
	}, play: saysOnce("work")},
	{session: "metadata", agent: func(free <-chan struct{}) *agent.Agent {
		a := actor("demo", free, map[string][]scripted.Step{"work": {calls(`work {"n":1}`, `work {"n":-1}`, `nothing {}`, `work {"n":"x"}`)}})
		a.FinishMetadata = agent.TokenMetadata("actor")
		return a
	}, play: saysOnce("work")},
}

// writeLibraryLogs plays the library's scenes on a store.
func writeLibraryLogs(t *testing.T, db string) {
	store, err := sqlitestore.Open(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, c := range libraryScenes {
		free := make(chan struct{})
		logs, end := runAgent(t, store, c.agent(free))
		handler := httptest.NewServer(server.New(logs, nil))
		c.play(&spoolServer{t: t, url: handler.URL, log: &lines{}}, c.session, free)
		handler.CloseClientConnections()
		handler.Close()
		end()
	}
}

// Sessions of programs with agents of their own go on as before.
func TestLibraryRunsGoOnUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	for _, dir := range storedLogs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			all := &answers{}
			store, err := sqlitestore.Open(unpack(t, filepath.Join(dir, "library.db.gz")), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			for _, c := range []struct {
				agent    *agent.Agent
				sessions []string
			}{{company(nil), []string{"companions-wait", "companions-interrupted", "companions"}}, {family(nil), []string{"family-waits"}}} {
				logs, end := runAgent(t, store, c.agent)
				handler := httptest.NewServer(server.New(logs, nil))
				s := &spoolServer{t: t, url: handler.URL, log: &lines{}}
				for _, session := range c.sessions {
					switch session {
					case "companions":
						s.say(session, "u9", "later")
					case "companions-interrupted":
						s.resume(session, object{})
					default:
						for i, id := range s.approvals(session) {
							s.must("POST", chatPath(session)+"/approvals/"+id, object{"approved": i == 0})
						}
					}
					s.rests(session)
					all.add(session, s.shown(session, true))
				}
				handler.CloseClientConnections()
				handler.Close()
				end()
			}
			golden(t, filepath.Join(dir, "library-resumed.txt"), all)
		})
	}
}

// writeWireLogs stores the logs that the wires are tested with. Both are of a
// session of the same id, so each has a file of its own.
func writeWireLogs(t *testing.T, db string, records []chunk.Record) {
	store, err := sqlitestore.Open(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	state := fold.New(wiretest.Session)
	for _, r := range records {
		if err := state.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := store.Claim(t.Context(), spool.Claim{Session: wiretest.Session, Owner: "test", Force: true})
	if err == nil {
		_, err = store.Append(t.Context(), spool.Append{Session: wiretest.Session, Epoch: lease.Epoch, Records: records,
			Row: spool.Row{Status: state.Status, Agent: "demo", Title: "corpus"}})
	}
	if err == nil {
		err = store.Release(t.Context(), lease)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// trim has retention's work done now: the binary does it once a session has
// rested for a day.
func trim(t *testing.T, db string, session string, traceFloor, floor uint64) {
	store, err := sqlitestore.Open(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Trim(t.Context(), session, traceFloor, floor), store.Close()); err != nil {
		t.Fatal(err)
	}
}
