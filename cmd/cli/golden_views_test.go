package cli

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/matrix"
)

// storedLogs are the folders of databases that earlier versions have written. See
// testdata/logs/README.md.
func storedLogs(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("testdata/logs/*/runs.db.gz")
	if err != nil || len(found) == 0 {
		t.Fatalf("there are no stored logs: %v", err)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// Every GET of sessions that an earlier version has written is answered byte by
// byte as by that version.
func TestStoredLogsAreServedUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	for _, dir := range storedLogs(t) {
		for _, name := range []string{"runs", "library", "wires", "wires-agents"} {
			t.Run(filepath.Base(dir)+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := serveSpool(t, unpack(t, filepath.Join(dir, name+".db.gz")))
				listed := &answers{}
				for _, q := range serverQuestions {
					listed.record(q.name("*"), s.question(q))
				}
				golden(t, filepath.Join(dir, "served", name+".txt"), listed)
				files := map[string]bool{}
				for _, session := range s.sessions() {
					file := filepath.Join(dir, "served", name, fileName(session)+".txt")
					if files[file] {
						t.Errorf("two sessions have the file %s", file)
					}
					files[file] = true
					t.Run(session, func(t *testing.T) {
						t.Parallel()
						s, all := s.with(t), &answers{}
						for _, q := range s.questions(session, name != "runs" || slices.Contains(inFull, session)) {
							all.record(q.name(session), s.question(q))
						}
						golden(t, file, all)
					})
				}
				staleFiles(t, filepath.Join(dir, "served", name), files)
			})
		}
	}
}

// serverQuestions are about no session, or one that does not exist.
var serverQuestions = []question{
	get("/sessions"), get("/sessions?limit=3"), get("/sessions?status=paused"), get("/sessions?status=failed&limit=2"), get("/sessions?status=active"),
	get("/sessions?status=copying"), get("/sessions?limit=-1"), get("/sessions?after=x"),
	get("/api/info"), get("/healthz"), get("/readyz"), {"HEAD", "/sessions", nil}, {"DELETE", "/sessions", nil}, {"PUT", "/api/chat/nobody", nil},
	get("/api/nothing"), get("/api/chat"), get("/api/chat/nobody/nothing"), get("/stream"), get("/nothing"), get("/nothing.txt"), {"POST", "/nothing", nil},
	get("/api/chat/nobody"), get("/api/chat/nobody/stream"), get("/api/chat/nobody/snapshot"), get("/api/chat/nobody/messages"), get("/api/messages/nobody"),
	get("/api/chat/nobody/checkpoints"), get("/stream/nobody"), get("/stream/nobody/info"), get("/merlin/v1/nobody"), get("/merlin/v2/nobody"),
	get("/api/chat/nobody/blobs/sha256:00"), get("/api/chat/nobody/stream?after=1"), get("/api/chat/nobody/stream?startIndex=0"), get("/api/chat/nobody.1/snapshot"),
	get("/api/chat/hello.99/snapshot"), get("/api/chat/hello.99"), get("/stream/hello.99"), get("/api/chat/hello/blobs/nothing"),
	get("/api/chat/a%2Fb"), get("/api/chat/a%00b/snapshot"), get("/api/chat/..%2F/snapshot"), get("/api/chat/" + strings.Repeat("x", 257)), get("/stream/%FF"), get("/api/chat//snapshot"),
	get("/api/info", "Host: elsewhere.example"), get("/api/info", "Origin: https://elsewhere.example"), get("/api/info", "Origin: http://localhost:3000"),
	{"POST", "/api/chat/nobody/stop", []string{"Origin: https://elsewhere.example"}},
	{"OPTIONS", "/api/chat/nobody", []string{"Origin: http://localhost:3000", "Access-Control-Request-Method: POST"}},
	{"OPTIONS", "/api/chat/nobody", []string{"Origin: https://elsewhere.example", "Access-Control-Request-Method: POST"}},
}

// inFull are the sessions that are asked everything; the others are asked what
// shows the rest of them.
var inFull = strings.Fields(`hello think fail tools journey agents conversation approved located agent-approved waits-approval waits-meanwhile
	waits-client waits-agent waits-producer edited regenerated message-forms rolled-back rolled-back-only branched again large produced
	produced-long trimmed trimmed-half stopped-text stopped-tools stopped-agents stopped-long interrupted interrupted-continued cut-in steered
	answered-early`)

var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func fileName(session string) string { return notInFileNames.ReplaceAllString(session, "-") }

// sessions are the ids of all sessions, sorted.
func (s *spoolServer) sessions() (ids []string) {
	s.t.Helper()
	var page struct{ Sessions []struct{ Session string } }
	s.into(&page, "GET", "/sessions?limit=1000", nil)
	for _, i := range page.Sessions {
		ids = append(ids, i.Session)
	}
	slices.Sort(ids)
	return ids
}

// question is a request whose answer is known from earlier.
type question struct {
	method, path string
	header       []string
}

// name is the question in a session's golden file, where * is the session.
func (q question) name(session string) string {
	name := q.method + " " + strings.ReplaceAll(q.path, url.PathEscape(session), "*")
	for _, h := range q.header {
		name += " [" + h + "]"
	}
	return name
}

// question asks, and takes the clock out of the answer, of which snapshots alone
// have one: when they were made.
func (s *spoolServer) question(q question) *reply {
	s.t.Helper()
	r := s.ask(q.method, q.path, "", q.header...)
	r.records = strings.HasPrefix(q.path, "/stream/")
	if strings.Contains(q.path, "/snapshot") {
		if i := strings.LastIndex(string(r.body), clockMember); i >= 0 {
			at := i + len(clockMember)
			end := at
			for end < len(r.body) && r.body[end] >= '0' && r.body[end] <= '9' {
				end++
			}
			r.body = slices.Concat(r.body[:at], []byte("0"), r.body[end:])
		}
	}
	return r
}

const clockMember = `"timestamp":`

// questions are all that is asked about a session, and about the agents below it.
func (s *spoolServer) questions(session string, full bool) (list []question) {
	s.t.Helper()
	children := s.children(session)
	ask := func(session string, full, agents bool) {
		if full {
			list = append(list, s.allOf(session, agents)...)
		} else {
			list = append(list, s.someOf(session)...)
		}
	}
	ask(session, full, len(children) > 0)
	for n, child := range children {
		ask(child, full && n == 0, len(s.children(child)) > 0)
	}
	return list
}

// children are the agents below a session's, of any generation.
func (s *spoolServer) children(session string) (list []string) {
	s.t.Helper()
	for n := 1; ; n++ {
		child := session + "." + strconv.Itoa(n)
		if s.ask("GET", "/stream/"+url.PathEscape(child)+"/info", "").status != 200 {
			return list
		}
		list = append(append(list, child), s.children(child)...)
	}
}

// someOf asks how a session ended, and a little of each stream.
func (s *spoolServer) someOf(session string) []question {
	s.t.Helper()
	id, i := url.PathEscape(session), s.info(session)
	chat, native := "/api/chat/"+id, "/stream/"+id
	half, plan := "after="+i.cursor(i.Latest/2), "Last-Event-ID: p4-"+i.cursor(i.Latest)
	return []question{
		get(chat + "/snapshot"), get(chat + "/messages"), get(chat + "/checkpoints"), get(native + "/info"),
		get(native), get(native + "?" + half), get(native + "?agent=self"),
		get(chat + "/stream?ui=6"), get(chat + "/stream?ui=6&" + half), get(chat+"/stream?ui=6", plan), get(chat + "/stream?ui=6&startIndex=-4"),
		get(chat + "/stream?ui=7"), get(chat + "/stream?ui=7&" + half), get(chat + "/stream?ui=7&startIndex=0"), get(chat + "/stream?ui=7&agents=flatten"),
		get("/merlin/v1/" + id), get("/merlin/v1/" + id + "?" + half), get("/merlin/v2/" + id), get("/merlin/v2/" + id + "?" + half),
	}
}

func get(path string, header ...string) question { return question{"GET", path, header} }

// cursor is a position in the session's log, as its readers have it.
func (i streamInfo) cursor(seq uint64) string {
	if i.Incarnation > 1 {
		return fmt.Sprintf("%d.%d", seq, i.Incarnation)
	}
	return fmt.Sprint(seq)
}

// positions are where readers of a session may stand: at its ends, around what was
// trimmed, somewhere between, and where it has not come to yet.
func (i streamInfo) positions() []uint64 {
	last := i.Latest
	list := []uint64{0, 1, last / 4, last / 2, last - 1, last, last + 1}
	if i.TraceFloor > 0 {
		list = append(list, i.TraceFloor-1, i.TraceFloor, i.Floor)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// allOf asks everything.
func (s *spoolServer) allOf(session string, agents bool) []question {
	s.t.Helper()
	i := s.info(session)
	list := s.stateOf(session, agents)
	id := url.PathEscape(session)
	for _, blob := range slices.Compact(slices.Sorted(slices.Values(blobHash.FindAllString(string(s.ask("GET", "/stream/"+id, "").body), -1)))) {
		list = append(list, get("/api/chat/"+id+"/blobs/"+blob), question{"HEAD", "/api/chat/" + id + "/blobs/" + blob, nil})
	}
	list = append(list, nativeOf(session, i)...)
	list = append(list, chatOf(session, i, agents)...)
	return append(list, merlinOf(session, i, agents)...)
}

// stateOf asks what is no stream.
func (s *spoolServer) stateOf(session string, agents bool) (list []question) {
	s.t.Helper()
	id := url.PathEscape(session)
	chat := "/api/chat/" + id
	for _, path := range []string{chat + "/snapshot", chat + "/snapshot?checkpoint=nothing", chat + "/snapshot?agents=all",
		chat + "/messages", "/api/messages/" + id + "?offset=1&limit=1", "/api/messages/" + id + "?offset=9999", "/api/messages/" + id + "?limit=-1",
		chat + "/checkpoints", chat + "/checkpoints?order=desc&limit=2&offset=1", chat + "/checkpoints?order=random", "/stream/" + id + "/info"} {
		list = append(list, get(path))
	}
	if ids := s.checkpoints(session); len(ids) > 0 {
		for _, n := range slices.Compact([]int{0, len(ids) / 2, len(ids) - 1}) {
			list = append(list, get(chat+"/snapshot?checkpoint="+url.QueryEscape(ids[n])))
		}
	}
	for _, as := range []string{"nest", "summary", "flatten"} {
		if agents {
			list = append(list, get(chat+"/snapshot?agents="+as), get(chat+"/messages?agents="+as))
		}
	}
	return list
}

var blobHash = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// nativeOf asks for the records.
func nativeOf(session string, i streamInfo) []question {
	native := "/stream/" + url.PathEscape(session)
	half := i.cursor(i.Latest / 2)
	list := []question{get(native), {"HEAD", native, nil}, get(native + "?framing=event"), get(native + "?framing=event&after=" + half), get(native + "?agent=self"),
		get(native, "Last-Event-ID: "+half), get(native, "Last-Event-ID: nonsense")}
	for _, p := range i.positions() {
		list = append(list, get(native+"?after="+i.cursor(p)))
	}
	for _, wrong := range []string{"after=x", "after=p1-" + half, "after=" + fmt.Sprint(i.Latest) + ".9", "after=01", "framing=x", "follow=x", "agent=x"} {
		list = append(list, get(native+"?"+wrong))
	}
	return list
}

// chatOf asks for the AI SDK wire, in each of its views.
func chatOf(session string, i streamInfo, agents bool) []question {
	id := url.PathEscape(session)
	chat, last := "/api/chat/"+id, fmt.Sprint(i.Latest)
	list := []question{{"HEAD", chat, nil}, get(chat), get(chat + "/" + id + "/stream?ui=6")}
	half, end := i.cursor(i.Latest/2), i.cursor(i.Latest)
	for _, ui := range []string{"6", "7"} {
		stream := chat + "/stream?ui=" + ui
		list = append(list, get(stream))
		for _, p := range i.positions() {
			list = append(list, get(stream+"&after="+i.cursor(p)))
		}
		for _, plan := range []string{"p1-" + end, "p4-" + end, "p9999-" + end, "p2-" + half} {
			list = append(list, get(chat+"/stream", "Last-Event-ID: "+plan, "X-Spool-UI: "+ui))
		}
		for _, at := range []string{"0", fmt.Sprint(i.Latest / 2), last} {
			list = append(list, get(stream, "X-Resume-From-Sequence: "+at))
		}
		for _, n := range []int{0, 3, 9999, -1, -4, -9999} {
			list = append(list, get(fmt.Sprintf("%s&startIndex=%d", stream, n)))
		}
		for _, as := range []string{"summary", "flatten"} {
			if agents {
				list = append(list, get(stream+"&agents="+as), get(stream+"&startIndex=0&agents="+as), get(stream+"&agents="+as, "Last-Event-ID: p3-"+end))
				for _, p := range i.positions() {
					list = append(list, get(stream+"&agents="+as+"&after="+i.cursor(p)))
				}
			}
		}
	}
	list = append(list, get(chat+"/stream", "X-Resume-At: "+fmt.Sprint(i.Latest/4)), get(chat+"/stream", "X-Resume-From-Sequence: "+fmt.Sprint(i.Latest+1)),
		get(chat+"/stream", "Last-Event-ID: nonsense", "X-Resume-At: "+last))
	for _, wrong := range []string{"after=x", "after=" + last + ".9", "startIndex=x", "agents=x"} {
		list = append(list, get(chat+"/stream?"+wrong))
	}
	return list
}

// merlinOf asks for the Merlin wires.
func merlinOf(session string, i streamInfo, agents bool) (list []question) {
	for _, wire := range []string{"/merlin/v1/", "/merlin/v2/"} {
		wire += url.PathEscape(session)
		list = append(list, get(wire), get(wire+"?agents=flatten"), get(wire, "Last-Event-ID: p2-"+i.cursor(i.Latest)), get(wire, "Last-Event-ID: p2-"+i.cursor(i.Latest/2)))
		for _, p := range i.positions() {
			list = append(list, get(wire+"?after="+i.cursor(p)))
		}
		if agents {
			list = append(list, get(wire+"?agents=summary"), get(wire+"?agents=summary&after="+i.cursor(i.Latest/2)))
		}
	}
	return list
}
