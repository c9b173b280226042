package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// holder holds sessions at a record: a server that is told of it asks before each
// of its appends, which then have one record each.
type holder struct {
	t     *testing.T
	url   string
	mu    sync.Mutex
	holds map[string]*hold
}

// hold is a session that is to be held before its nth record of a type.
type hold struct {
	typ     string
	n       int
	reached chan struct{}
	free    chan struct{}
}

func newHolder(t *testing.T) *holder {
	h := &holder{t: t, holds: map[string]*hold{}}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	h.url = srv.URL
	return h
}

func (h *holder) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	path, _ := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/"))
	session := path[:strings.LastIndexByte(path, '/')]
	h.mu.Lock()
	held := h.holds[session]
	wait := held != nil && held.n <= 0
	if held != nil && slices.Contains(strings.Split(r.URL.Query().Get("types"), ","), held.typ) {
		if held.n--; held.n == 0 {
			close(held.reached)
			wait = true
		}
	}
	h.mu.Unlock()
	if wait {
		select {
		case <-held.free:
		case <-r.Context().Done():
		}
	}
}

// at holds a session before its nth record of a type from now on.
func (h *holder) at(session, typ string, n int) {
	h.mu.Lock()
	h.holds[session] = &hold{typ: typ, n: n, reached: make(chan struct{}), free: make(chan struct{})}
	h.mu.Unlock()
}

// wait returns when the session has come to where it is held.
func (h *holder) wait(session string) {
	h.mu.Lock()
	held := h.holds[session]
	h.mu.Unlock()
	<-held.reached
}

// release lets a session go on.
func (h *holder) release(session string) {
	h.mu.Lock()
	held := h.holds[session]
	delete(h.holds, session)
	h.mu.Unlock()
	close(held.free)
}

// meanwhile sends a request while a session is held, and returns when it has become
// a record; what it is answered comes later.
func (s *spoolServer) meanwhile(session, method, path string, body any) (answered func() []byte) {
	s.t.Helper()
	before := s.info(session).Latest
	done := make(chan []byte, 1)
	go func() { done <- s.must(method, path, body) }()
	for s.info(session).Latest == before {
		select {
		case answer := <-done:
			if done <- answer; s.info(session).Latest == before {
				s.t.Errorf("%s %s became no record: %s", method, path, answer)
			}
			return func() []byte { return <-done }
		default:
		}
	}
	return func() []byte { return <-done }
}

// begin posts a message whose run will be held, and returns when it is.
func (h *holder) begin(s *spoolServer, session, text, typ string, n int) (answered func()) {
	s.t.Helper()
	h.at(session, typ, n)
	res := s.open("POST", chatPath(session), `{"message":{"id":"u1","role":"user","parts":[{"type":"text","text":"`+text+`"}]}}`)
	h.wait(session)
	return func() { _ = res.Body.Close() }
}

// during has a session held, does something meanwhile, and lets it go on to its
// rest.
func (h *holder) during(s *spoolServer, session, text, typ string, n int, path string, body any) {
	s.t.Helper()
	defer h.begin(s, session, text, typ, n)()
	answered := s.meanwhile(session, "POST", path, body)
	h.release(session)
	answered()
	s.must("GET", "/stream/"+url.PathEscape(session), nil)
}

// heldScenes are played by a server that waits at chosen records. All of them are
// cut off or interrupted at a point in time, and so race.
func heldScenes(h *holder) []scene {
	stop := func(session string) string { return chatPath(session) + "/stop" }
	interrupt := func(s *spoolServer, session string) {
		h.during(s, session, "tools", "tool_end", 1, chatPath(session)+"/interrupt", object{"reason": "lunch"})
	}
	return []scene{
		{session: "stopped-text", play: func(s *spoolServer, session string) {
			h.during(s, session, "hello", "text_delta", 9, stop(session), object{"reason": "enough"})
		}},
		{session: "stopped-thinking", play: func(s *spoolServer, session string) {
			h.during(s, session, "think", "thinking", 9, stop(session), nil)
		}},
		{session: "stopped-arguments", play: func(s *spoolServer, session string) {
			h.during(s, session, "tools", "tool_arg_stream_delta", 5, stop(session), nil)
		}},
		{session: "stopped-tools", play: func(s *spoolServer, session string) {
			h.during(s, session, "tools", "tool_end", 1, stop(session), nil)
		}},
		{session: "stopped-agents", play: func(s *spoolServer, session string) {
			h.during(s, session, "agents", "text_delta", 12, stop(session), nil)
		}},
		{session: "stopped-child", play: func(s *spoolServer, session string) {
			h.during(s, session, "agents-approve", "text_delta", 12, stop(session+".1"), nil)
		}},
		{session: "stopped-then-retried", play: func(s *spoolServer, session string) {
			h.during(s, session, "branch", "text_delta", 8, stop(session), nil)
			s.resume(session, object{"mode": "retry"})
		}},
		{session: "interrupted", play: interrupt},
		{session: "interrupted-continued", play: func(s *spoolServer, session string) {
			interrupt(s, session)
			s.resume(session, object{})
		}},
		{session: "interrupted-message", play: func(s *spoolServer, session string) {
			interrupt(s, session)
			s.say(session, "u2", "hello")
		}},
		{session: "interrupted-retried", play: func(s *spoolServer, session string) {
			interrupt(s, session)
			s.resume(session, object{"mode": "retry"})
		}},
		{session: "queued", play: func(s *spoolServer, session string) {
			h.during(s, session, "hello", "text_delta", 5, chatPath(session), object{"message": userMessage("u2", "think"), "whenBusy": "queue"})
		}},
		{session: "cut-in", play: func(s *spoolServer, session string) {
			h.during(s, session, "think", "thinking", 5, chatPath(session), object{"message": userMessage("u2", "hello"), "whenBusy": "interrupt"})
		}},
		{session: "steered", play: func(s *spoolServer, session string) {
			h.during(s, session, "branch", "tool_end", 1, chatPath(session), object{"message": userMessage("u2", "branch south"), "whenBusy": "steer"})
		}},
		{session: "regenerated-amid", play: func(s *spoolServer, session string) {
			h.during(s, session, "hello", "text_delta", 5, chatPath(session), object{"trigger": "regenerate-message"})
		}},
		{session: "answered-early", play: func(s *spoolServer, session string) {
			defer h.begin(s, session, "meanwhile", "tool_end", 1)()
			answered := s.meanwhile(session, "POST", chatPath(session)+"/approvals/"+s.earlyApproval(session), object{"approved": true})
			h.release(session)
			answered()
			s.must("GET", "/stream/"+session, nil)
		}},
	}
}

// stopHung holds the owner of two runs for ever, and has another server stop them,
// which takes them from it after some seconds.
func stopHung(h *holder, s *spoolServer, db string) {
	for session, at := range map[string]string{"stopped-by-force": "tools tool_end 1", "stopped-long": "bulk text_delta 300"} {
		text, typ, n := "", "", 0
		if _, err := fmt.Sscan(at, &text, &typ, &n); err != nil {
			s.t.Fatal(err)
		}
		defer h.begin(s, session, text, typ, n)()
	}
	other := serveSpool(s.t, db)
	var stops sync.WaitGroup
	for _, session := range []string{"stopped-by-force", "stopped-long"} {
		stops.Go(func() { other.must("POST", chatPath(session)+"/stop", nil) })
	}
	stops.Wait()
	other.end()
	s.kill()
}

// earlyApproval is the approval that a run which still works asks for: only its
// records show it.
func (s *spoolServer) earlyApproval(session string) (id string) {
	s.t.Helper()
	s.until(session, func(records string) bool {
		_, rest, asked := strings.Cut(records, `"approvalId":"`)
		if !asked {
			return false
		}
		id, _, asked = strings.Cut(rest, `"`)
		return asked
	})
	return id
}

// until reads a session's records until they are enough.
func (s *spoolServer) until(session string, enough func(records string) bool) {
	s.t.Helper()
	res := s.open("GET", "/stream/"+session, "")
	defer res.Body.Close()
	var seen []byte
	for buf := make([]byte, 4096); !enough(string(seen)); {
		n, err := res.Body.Read(buf)
		seen = append(seen, buf[:n]...)
		if err != nil {
			s.t.Fatalf("%s ends: %v\n%s", session, err, seen)
		}
	}
}

// lostRun is a run whose owner is killed before its nth record of a type.
type lostRun struct {
	session, text string
	typ           string
	n             int
	// then happens while the run is held, and before its owner is killed.
	then func(s *spoolServer, session string)
	// racing runs do several things at once when they go on, and were those that were
	// doing so when they were lost.
	racing, were bool
}

var lostRuns = []lostRun{
	{session: "lost-due", text: "hello", typ: "run_started", n: 1},
	{session: "lost-begun", text: "hello", typ: "step_started", n: 1},
	{session: "lost-text", text: "hello", typ: "text_delta", n: 9},
	{session: "lost-thinking", text: "think", typ: "thinking", n: 9},
	{session: "lost-between-blocks", text: "think", typ: "text_delta", n: 4},
	{session: "lost-arguments", text: "branch", typ: "tool_arg_stream_delta", n: 3},
	{session: "lost-asked", text: "branch", typ: "assistant_message", n: 1},
	{session: "lost-dispatch", text: "branch", typ: "tool_start", n: 1},
	{session: "lost-tool", text: "branch", typ: "tool_end", n: 1},
	{session: "lost-tools", text: "tools", typ: "tool_end", n: 1, racing: true, were: true},
	{session: "lost-second-tool", text: "tools", typ: "tool_end", n: 2, were: true},
	{session: "lost-commit", text: "branch", typ: "step_committed", n: 1},
	{session: "lost-checkpoint", text: "branch", typ: "checkpoint_created", n: 1},
	{session: "lost-second-step", text: "branch", typ: "step_started", n: 2},
	{session: "lost-second-text", text: "branch", typ: "text_delta", n: 9},
	{session: "lost-end", text: "hello", typ: "run_finished", n: 1},
	{session: "lost-pause", text: "approve", typ: "run_suspended", n: 1},
	{session: "lost-child-text", text: "agents-approve", typ: "text_delta", n: 13},
	{session: "lost-child-end", text: "research", typ: "run_finished", n: 1},
	{session: "lost-children", text: "agents", typ: "text_delta", n: 20, racing: true, were: true},
	{session: "lost-interrupted", text: "branch", typ: "tool_end", n: 1, then: func(s *spoolServer, session string) {
		s.orphan(session, chatPath(session)+"/interrupt", nil)
	}},
	{session: "lost-queued", text: "hello", typ: "text_delta", n: 5, then: func(s *spoolServer, session string) {
		s.orphan(session, chatPath(session), object{"message": userMessage("u2", "think"), "whenBusy": "queue"})
	}},
	{session: "lost-steered", text: "branch", typ: "tool_end", n: 1, then: func(s *spoolServer, session string) {
		s.orphan(session, chatPath(session), object{"message": userMessage("u2", "hello"), "whenBusy": "steer"})
	}},
	{session: "lost-answered", text: "meanwhile", typ: "tool_end", n: 1, then: func(s *spoolServer, session string) {
		s.orphan(session, chatPath(session)+"/approvals/"+s.earlyApproval(session), object{"approved": true})
	}, racing: true, were: true},
}

// orphan sends a request that nobody will answer, and returns when it has become a
// record.
func (s *spoolServer) orphan(session, path string, body any) {
	s.t.Helper()
	before := s.info(session).Latest
	go s.try(path, body)
	for s.info(session).Latest == before {
		continue // the package's deadline is the only one
	}
}

// try posts what may never be answered.
func (s *spoolServer) try(path string, body any) {
	if req, err := http.NewRequest("POST", s.url+path, jsonBody(body)); err == nil {
		if res, err := asker.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}
}

const halfBranched = "half-branched"

func (s *spoolServer) halfBranch() object {
	s.t.Helper()
	return object{"mode": "branch", "checkpointId": s.checkpoints(halfBranched)[2], "sessionId": "half-branch"}
}

// loseRuns leaves a database behind whose owner was killed in the middle of all of
// that, and one run that was lost twice.
func loseRuns(t *testing.T, h *holder, db string) {
	s := serveSpoolGated(t, db, h.url)
	defer h.begin(s, "lost-twice", "think", "text_delta", 4)()
	s.kill()
	execSQL(t, db, endLeases)

	h.at("lost-twice", "text_delta", 6)
	s = serveSpoolGated(t, db, h.url)
	h.wait("lost-twice")
	for _, r := range lostRuns {
		defer h.begin(s, r.session, r.text, r.typ, r.n)()
		if r.then != nil {
			r.then(s, r.session)
		}
	}
	p := s.claim("lost-producer", "")
	p.append(object{"type": "text_delta", "delta": "I will be "})
	// An answer was given, and its owner died before the tool had done its work.
	s.say("lost-after-answer", "u1", "approve")
	h.at("lost-after-answer", "tool_end", 1)
	s.must("POST", chatPath("lost-after-answer")+"/approvals/"+s.approvals("lost-after-answer")[0], object{"approved": true})
	h.wait("lost-after-answer")
	// A branch that is copied in part is seen by nobody until somebody asks again.
	s.say(halfBranched, "u1", "branch")
	h.at("half-branch", "step_committed", 2)
	go s.try(chatPath(halfBranched)+"/resume", s.halfBranch())
	h.wait("half-branch")
	// After some seconds a stop takes a run from an owner that does not hear it: on a
	// slow machine that may come before the end of this one.
	defer h.begin(s, "lost-stopped", "hello", "text_delta", 5)()
	s.orphan("lost-stopped", chatPath("lost-stopped")+"/stop", nil)
	// The next process that opens the file may take all of them over at once, and finds it as
	// it was left: not even this changes more than the write-ahead log.
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	execSQL(t, db, endLeases)
	s.kill()
}
