package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/matrix"
)

// What is new in every run: ids, what is made of them, times, and how long a
// repeated model call was put off.
var fresh = regexp.MustCompile(`"delayMs":[0-9]+|[0-9a-f]{8}-[0-9a-f]{4}-[57][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\bt?1[0-9]{12}(-[0-9a-f]{6})?\b|\b[0-9a-f]{16}\b`)

// normal is a text in which what is new in every run is named by the order in which
// it is seen first; times are all the same. It is cut to its digest if it is large.
func (n names) normal(text string) string {
	text = fresh.ReplaceAllStringFunc(text, func(s string) string {
		if s[0] == '"' {
			return `"delayMs":<time>`
		}
		if !strings.Contains(s, "-") && (s[0] == 't' || len(s) == 13) {
			return "<time>"
		}
		if n[s] == "" {
			n[s] = fmt.Sprintf("<%d>", len(n)+1)
		}
		return n[s]
	})
	if len(text) > 64<<10 {
		return digest([]byte(text)) + "\n"
	}
	return text
}

// names are those of what is new.
type names map[string]string

// shown is what a session shows of itself, in normal form. Of one whose agents or
// tools work at the same time it is what does not depend on who was first.
func (s *spoolServer) shown(session string, racing bool) string {
	s.t.Helper()
	id := url.PathEscape(session)
	if racing {
		var snap struct {
			Status, Reason, Code string
			State                json.RawMessage
			Usage                json.RawMessage
			Messages             []struct {
				Role  string
				Parts []json.RawMessage
			}
		}
		s.into(&snap, "GET", "/api/chat/"+id+"/snapshot?agents=summary", nil)
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s %s %s %s\n", snap.Status, snap.Reason, snap.Code, snap.State, snap.Usage)
		for _, m := range snap.Messages {
			var parts []string
			for _, p := range m.Parts {
				parts = append(parts, names{}.normal(string(p)))
			}
			slices.Sort(parts) // data parts stand where they came first
			fmt.Fprintf(&b, "%s\n%s\n", m.Role, strings.Join(parts, "\n"))
		}
		return b.String()
	}
	var b strings.Builder
	seen := names{}
	for _, q := range []question{get("/api/chat/" + id + "/snapshot"), get("/api/chat/" + id + "/checkpoints"), get("/stream/" + id + "/info"), get("/stream/" + id),
		get("/api/chat/" + id + "/stream?ui=6&agents=flatten"), get("/api/chat/" + id + "/stream?ui=7&startIndex=0"), get("/merlin/v2/" + id)} {
		b.WriteString(seen.normal(q.name(session) + "\n" + s.question(q).whole() + "\n"))
	}
	return strings.ReplaceAll(b.String(), `"agentId":"`+session, `"agentId":"*`)
}

// rests waits until nothing of a session is open.
func (s *spoolServer) rests(session string) {
	s.t.Helper()
	if s.ask("GET", "/stream/"+url.PathEscape(session)+"/info", "").status == http.StatusNotFound {
		return // it was deleted
	}
	i := s.info(session)
	s.ask("GET", "/stream/"+url.PathEscape(session)+"?after="+i.cursor(i.Latest), "") // to its end, whatever that is
}

// resumption is something that is done to a session of the stored logs.
type resumption struct {
	session string
	what    string
	do      func(s *spoolServer, session string) []byte // returns what was answered
	racing  bool
}

// act posts to a session, with the session's first approval or checkpoint for a
// sign in the path or body.
func act(method, path string, body object, header ...string) func(*spoolServer, string) []byte {
	return func(s *spoolServer, session string) []byte {
		s.t.Helper()
		path, text := strings.ReplaceAll(path, "*", url.PathEscape(session)), ""
		if body != nil {
			data, err := json.Marshal(body)
			if err != nil {
				s.t.Fatal(err)
			}
			text = string(data)
		}
		for sign, ids := range map[string]func(string) []string{"APPROVAL": s.approvals, "CHECKPOINT": s.checkpoints} {
			if strings.Contains(path+text, sign) {
				id := ids(session)[0]
				path, text = strings.ReplaceAll(path, sign, id), strings.ReplaceAll(text, sign, id)
			}
		}
		r := s.ask(method, path, text, header...)
		var settled struct {
			StreamSequence uint64
			SessionID      string
			Origin         json.RawMessage
		}
		if json.Unmarshal(r.body, &settled) == nil && settled.StreamSequence > 0 {
			// How far the run has come by now is a matter of time.
			r.body = fmt.Appendf(nil, "session %s, origin %s\n", settled.SessionID, settled.Origin)
			r.header.Del("Content-Length")
		}
		return []byte(r.whole())
	}
}

var resumptions = []resumption{
	{session: "waits-approval", what: "approve", do: act("POST", "/api/chat/*/approvals/APPROVAL", object{"approved": true})},
	{session: "waits-approval", what: "deny", do: act("POST", "/api/chat/*/approvals/APPROVAL", object{"approved": false, "reason": "too dear"})},
	{session: "waits-approval", what: "say something else", do: act("POST", "/api/chat/*", object{"message": userMessage("u9", "hello")})},
	{session: "waits-approval", what: "stop", do: act("POST", "/api/chat/*/stop", nil)},
	{session: "waits-approval", what: "approve as the stock client does", do: act("POST", "/api/chat/*", object{"messages": []object{{"id": "a", "role": "assistant", "parts": []object{
		{"type": "dynamic-tool", "toolName": "book_trip", "toolCallId": "call_0", "state": "approval-responded", "input": object{}, "approval": object{"id": "APPROVAL", "approved": true}}}}}})},
	{session: "waits-approval", what: "an unknown approval", do: act("POST", "/api/chat/*/approvals/nothing", object{"approved": true})},
	{session: "waits-client", what: "a result", do: act("POST", "/api/chat/*/tools/call_0", object{"output": object{"lat": 1}})},
	{session: "waits-client", what: "an error", do: act("POST", "/api/chat/*/tools/call_0", object{"error": "no"})},
	{session: "waits-client", what: "a large result", do: act("POST", "/api/chat/*/tools/call_0", object{"output": strings.Repeat("large ", 20_000)})},
	{session: "waits-client", what: "on Merlin", do: act("POST", "/merlin/v2/*", object{"messages": []object{{"id": "a", "role": "assistant", "parts": []object{
		{"type": "dynamic-tool", "toolName": "get_location", "toolCallId": "call_0", "state": "output-available", "input": object{}, "output": "here"}}}}})},
	{session: "waits-meanwhile", what: "approve", do: act("POST", "/api/chat/*/approvals/APPROVAL", object{"approved": true})},
	{session: "waits-agent", what: "approve", do: act("POST", "/api/chat/*/approvals/APPROVAL", object{"approved": true})},
	{session: "waits-agent", what: "deny on the child", do: act("POST", "/api/chat/*.1/approvals/APPROVAL", object{"approved": false})},
	{session: "waits-agent", what: "stop the child", do: act("POST", "/api/chat/*.1/stop", nil)},
	{session: "waits-producer", what: "claim", do: func(s *spoolServer, session string) []byte {
		p := s.claim(session, "")
		p.append(object{"type": "text_delta", "delta": " I am back."}, object{"type": "end"})
		return nil
	}},
	{session: "interrupted", what: "continue", do: act("POST", "/api/chat/*/resume", object{})},
	{session: "interrupted", what: "with a message", do: act("POST", "/api/chat/*/resume", object{"mode": "with_message", "message": userMessage("u9", "hello")})},
	{session: "interrupted", what: "retry", do: act("POST", "/api/chat/*/resume", object{"mode": "retry"})},
	{session: "branched", what: "continue", do: act("POST", "/api/chat/*/resume", object{"mode": "continue"})},
	{session: "branched", what: "a message", do: act("POST", "/api/chat/*", object{"message": userMessage("u9", "branch south")})},
	{session: "fail", what: "retry", do: act("POST", "/api/chat/*/resume", object{"mode": "retry"})},
	{session: "stopped-text", what: "retry", do: act("POST", "/api/chat/*/resume", object{"mode": "retry"})},
	{session: "journey", what: "go back", do: act("POST", "/api/chat/*/resume", object{"mode": "from_checkpoint", "checkpointId": "CHECKPOINT"})},
	{session: "journey", what: "branch", do: act("POST", "/api/chat/*/resume", object{"mode": "branch", "checkpointId": "CHECKPOINT", "sessionId": "new", "message": userMessage("u9", "branch south")})},
	{session: "rolled-back-only", what: "go on", do: act("POST", "/api/chat/*", object{"message": userMessage("u9", "think")})},
	{session: "conversation", what: "edit", do: act("POST", "/api/chat/*", object{"trigger": "submit-message", "messageId": "u3", "message": userMessage("u3", "hello")})},
	{session: "conversation", what: "regenerate", do: act("POST", "/api/chat/*", object{"trigger": "regenerate-message", "messageId": "u2"})},
	{session: "conversation", what: "say it again", do: act("POST", "/api/chat/*", object{"message": userMessage("u4", "hello again")})},
	{session: "trimmed", what: "go on", do: act("POST", "/api/chat/*", object{"message": userMessage("u9", "hello")})},
	{session: "trimmed", what: "go back", do: act("POST", "/api/chat/*/resume", object{"mode": "from_checkpoint", "checkpointId": "CHECKPOINT"})},
	{session: "produced-long", what: "go on", do: act("POST", "/api/chat/*", object{"message": userMessage("u9", "hello")})},
	{session: "agent-approved", what: "go on", do: act("POST", "/api/chat/*", object{"message": userMessage("u9", "think")})},
	{session: "again", what: "delete", do: act("DELETE", "/api/chat/*", nil)},
	{session: "hello", what: "delete and begin anew", do: func(s *spoolServer, session string) []byte {
		act("DELETE", "/api/chat/*", nil)(s, session)
		return act("POST", "/api/chat/*", object{"message": userMessage("u1", "think")})(s, session)
	}},
	{session: "large", what: "go on", do: act("POST", "/api/chat/*", object{"message": userMessage("u9", "hello")})},
}

// Sessions that an earlier version has left go on as they did there.
func TestStoredLogsGoOnUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	for _, dir := range storedLogs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			var rounds [][]resumption // of one thing for each session
			times := map[string]int{}
			for _, r := range resumptions {
				n := times[r.session]
				times[r.session]++
				if n == len(rounds) {
					rounds = append(rounds, nil)
				}
				rounds[n] = append(rounds[n], r)
			}
			all := &answers{}
			for _, round := range rounds {
				s := serveSpool(t, unpack(t, filepath.Join(dir, "runs.db.gz")))
				for _, r := range round {
					name := r.session + ": " + r.what
					all.add(name+", answer", names{}.normal(string(r.do(s, r.session))))
					s.rests(r.session)
					if r.what == "branch" {
						s.rests("new")
						all.add(name+", then new", s.shown("new", r.racing))
					}
					all.add(name+", then", s.shown(r.session, r.racing))
				}
				s.end()
			}
			golden(t, filepath.Join(dir, "resumed.txt"), all)
		})
	}
}

// recovered serves a database whose owner was killed, and waits until nothing in
// it is open.
func recovered(t *testing.T, db string, args ...string) *answers {
	t.Helper()
	s := serveSpool(t, db, args...)
	all := &answers{}
	racing := map[string]bool{}
	for _, r := range lostRuns {
		racing[r.session] = r.racing
	}
	for _, session := range s.sessions() {
		s.rests(session)
		all.add(session, s.shown(session, racing[session]))
	}
	s.must("POST", chatPath(halfBranched)+"/resume", s.halfBranch())
	all.add("half-branch, asked for again", s.shown("half-branch", false))
	s.end()
	return all
}

// Runs whose owner was killed under an earlier version are recovered, or ended, as
// that version did.
func TestLostRunsGoOnUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	for _, dir := range storedLogs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			golden(t, filepath.Join(dir, "recovered.txt"), recovered(t, unpack(t, filepath.Join(dir, "lost.db.gz"))))
			golden(t, filepath.Join(dir, "not-recovered.txt"), recovered(t, unpack(t, filepath.Join(dir, "lost.db.gz")), "--no-recover"))
		})
	}
}
