package cli

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scene is how a session of the stored logs came about: what was asked of a
// server, by HTTP alone.
type scene struct {
	session string
	play    func(s *spoolServer, session string)
	// racing scenes do several things at once, or are cut off somewhere: their logs
	// are not the same every time.
	racing bool
	// The scripted model's words in a reworded scene are others than those in the
	// latest stored logs.
	reworded bool
}

type object = map[string]any

func userMessage(id, text string) object {
	return object{"id": id, "role": "user", "parts": []object{{"type": "text", "text": text}}}
}

func chatPath(session string) string { return "/api/chat/" + url.PathEscape(session) }

// say posts a message and reads the answer to its end.
func (s *spoolServer) say(session, id, text string) []byte {
	s.t.Helper()
	return s.must("POST", chatPath(session), object{"message": userMessage(id, text)})
}

// saying is a scene of messages u1, u2, …
func saying(texts ...string) func(*spoolServer, string) {
	return func(s *spoolServer, session string) {
		s.t.Helper()
		for i, text := range texts {
			s.say(session, "u"+string(rune('1'+i)), text)
		}
	}
}

// approvals are the ids of the decisions that a session's message asks for.
func (s *spoolServer) approvals(session string) (ids []string) {
	s.t.Helper()
	text := string(s.must("GET", chatPath(session)+"/snapshot", nil))
	for {
		_, rest, ok := strings.Cut(text, `"approval":{"id":"`)
		if !ok {
			break
		}
		id, after, _ := strings.Cut(rest, `"`)
		if text = after; !slices.Contains(ids, id) { // a child's is its root's as well
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		s.t.Fatalf("%s asks for no approval: %s", session, text)
	}
	return ids
}

// decide answers the session's approval, and waits for what comes of it.
func (s *spoolServer) decide(session string, approved bool, reason string) {
	s.t.Helper()
	body := object{"approved": approved}
	if reason != "" {
		body["reason"] = reason
	}
	s.must("POST", chatPath(session)+"/approvals/"+s.approvals(session)[0], body)
	s.must("GET", "/stream/"+url.PathEscape(session), nil)
}

// submit answers a call of the client's, and waits for what comes of it.
func (s *spoolServer) submit(session, call string, body object) {
	s.t.Helper()
	s.must("POST", chatPath(session)+"/tools/"+url.PathEscape(call), body)
	s.must("GET", "/stream/"+url.PathEscape(session), nil)
}

// checkpoints are the ids of a session's checkpoints, oldest first.
func (s *spoolServer) checkpoints(session string) (ids []string) {
	s.t.Helper()
	var page struct{ Items []struct{ ID string } }
	s.into(&page, "GET", chatPath(session)+"/checkpoints?limit=1000", nil)
	for _, c := range page.Items {
		ids = append(ids, c.ID)
	}
	return ids
}

// resume lets a session go on and waits for what comes of it. It returns the
// session that goes on, which is another one for a branch.
func (s *spoolServer) resume(session string, body object) string {
	s.t.Helper()
	var settled struct{ SessionID string }
	s.into(&settled, "POST", chatPath(session)+"/resume", body)
	s.must("GET", "/stream/"+url.PathEscape(settled.SessionID), nil)
	return settled.SessionID
}

// answered plays a scene and then answers what it waits for.
func answered(text string, answer func(s *spoolServer, session string)) func(*spoolServer, string) {
	return func(s *spoolServer, session string) {
		s.say(session, "u1", text)
		answer(s, session)
	}
}

func deciding(approved bool, reason string) func(*spoolServer, string) {
	return func(s *spoolServer, session string) { s.decide(session, approved, reason) }
}

// plainScenes are played by a server that nothing holds up.
var plainScenes = []scene{
	{session: "hello", play: saying("hello")},
	{session: "think", play: saying("think")},
	{session: "tour", play: saying("what is this?"), reworded: true},
	{session: "fail", play: saying("fail")},
	{session: "tools", play: saying("tools"), racing: true},
	{session: "journey", play: saying("branch")},
	{session: "research", play: saying("research")},
	{session: "agents", play: saying("agents"), racing: true},
	{session: "conversation", play: saying("hello", "think about it", "branch south", "hello again", "fail")},
	{session: "Lisboa café & co", play: saying("hello")},

	{session: "approved", play: answered("approve", deciding(true, ""))},
	{session: "denied", play: answered("approve", deciding(false, "too dear"))},
	{session: "meanwhile", play: answered("meanwhile", deciding(true, "")), racing: true},
	{session: "located", play: answered("client-tool", func(s *spoolServer, session string) {
		s.submit(session, "call_0", object{"output": object{"lat": 38.7, "lon": -9.1}})
	})},
	{session: "not-located", play: answered("client-tool", func(s *spoolServer, session string) {
		s.submit(session, "call_0", object{"error": "the user said no"})
	})},
	{session: "answered-by-chat", play: answered("client-tool", func(s *spoolServer, session string) {
		s.must("POST", chatPath(session), object{"messages": []object{{"id": "a1", "role": "assistant", "parts": []object{
			{"type": "dynamic-tool", "toolName": "get_location", "toolCallId": "call_0", "state": "output-available", "input": object{}, "output": "here"}}}}})
	})},
	{session: "agent-approved", play: answered("agents-approve", deciding(true, "go on"))},
	{session: "agent-denied", play: answered("agents-approve", deciding(false, ""))},
	{session: "answered-by-message", play: saying("approve", "hello")},
	{session: "stopped-pause", play: answered("approve", func(s *spoolServer, session string) {
		s.must("POST", chatPath(session)+"/stop", object{"reason": "never mind"})
		s.rests(session)
	})},

	{session: "waits-approval", play: saying("hello", "approve")},
	{session: "waits-meanwhile", play: saying("meanwhile"), racing: true},
	{session: "waits-client", play: saying("client-tool")},
	{session: "waits-agent", play: saying("agents-approve")},

	{session: "edited", play: func(s *spoolServer, session string) {
		saying("hello", "think", "hello")(s, session)
		s.must("POST", chatPath(session), object{"trigger": "submit-message", "messageId": "u2", "message": userMessage("u2", "branch south")})
	}},
	{session: "edited-first", play: func(s *spoolServer, session string) {
		saying("hello")(s, session)
		s.must("POST", chatPath(session), object{"trigger": "submit-message", "messageId": "u1", "message": userMessage("u1", "think")})
	}},
	{session: "regenerated", play: func(s *spoolServer, session string) {
		saying("hello", "think")(s, session)
		for range 2 {
			s.must("POST", chatPath(session), object{"trigger": "regenerate-message"})
		}
	}},
	{session: "message-forms", play: func(s *spoolServer, session string) {
		s.must("POST", chatPath(session), object{"message": "hello", "commandId": "c1", "metadata": object{"from": "<phone> & co"}})
		s.must("POST", "/api/chat", object{"sessionId": session, "messages": []object{{"role": "user", "content": "hello", "id": "u2"}}})
		s.must("POST", "/api/chat", object{"id": session, "messages": []object{{"id": "u3", "role": "user", "metadata": object{"n": 3}, "parts": []object{
			{"type": "text", "text": "hello, look at \u2028this 🧵\n\nhere\r\n"},
			{"type": "file", "url": "data:text/plain,hello", "mediaType": "text/plain", "filename": "hello.txt"},
			{"type": "data-note", "id": "n1", "data": object{"a": []int{1, 2}}}}}}})
		s.must("POST", "/merlin/v1/"+session, object{"message": userMessage("u4", "hello")})
		s.must("POST", "/merlin/v2/"+session, object{"message": userMessage("u5", "hello")})
	}},

	{session: "retried", play: func(s *spoolServer, session string) {
		saying("branch", "fail")(s, session)
		s.resume(session, object{"mode": "retry"})
	}},
	{session: "rolled-back", play: func(s *spoolServer, session string) {
		saying("hello", "branch")(s, session)
		s.resume(session, object{"mode": "from_checkpoint", "checkpointId": s.checkpoints(session)[1], "message": userMessage("u3", "branch south")})
	}},
	{session: "rolled-back-on", play: func(s *spoolServer, session string) {
		saying("branch")(s, session)
		s.resume(session, object{"mode": "from_checkpoint", "checkpointId": s.checkpoints(session)[1]})
	}},
	{session: "rolled-back-only", play: func(s *spoolServer, session string) {
		saying("hello", "think")(s, session)
		s.resume(session, object{"mode": "from_checkpoint", "checkpointId": s.checkpoints(session)[0]})
	}},
	{session: "resumed-with-message", play: func(s *spoolServer, session string) {
		saying("hello")(s, session)
		s.resume(session, object{"mode": "with_message", "message": userMessage("u2", "think")})
	}},
	{session: "branched", play: func(s *spoolServer, _ string) {
		s.resume("journey", object{"mode": "branch", "checkpointId": s.checkpoints("journey")[1], "sessionId": "branched"})
	}},
	{session: "branched-south", play: func(s *spoolServer, session string) {
		s.resume("journey", object{"mode": "branch", "checkpointId": s.checkpoints("journey")[0], "sessionId": session, "message": userMessage("b1", "branch south")})
	}},
	{session: "branched-end", play: func(s *spoolServer, session string) {
		last := s.checkpoints("conversation")
		s.resume("conversation", object{"mode": "branch", "checkpointId": last[len(last)-1], "sessionId": session})
		s.say(session, "b2", "think")
	}},
	{session: "branched-agents", play: func(s *spoolServer, session string) {
		last := s.checkpoints("agents")
		s.resume("agents", object{"mode": "branch", "checkpointId": last[len(last)-1], "sessionId": session})
	}, racing: true},

	{session: "again", play: func(s *spoolServer, session string) {
		saying("think")(s, session)
		s.must("DELETE", chatPath(session), nil)
		saying("hello")(s, session)
	}},
	{session: "large", play: func(s *spoolServer, session string) {
		s.must("POST", chatPath(session), object{"message": object{"id": "u1", "role": "user", "parts": []object{
			{"type": "text", "text": "client-tool " + strings.Repeat("and this is a long question ", 4000)},
			{"type": "file", "url": "data:text/plain," + strings.Repeat("A", 100_000), "mediaType": "text/plain", "filename": "a.txt"}}}})
		s.submit(session, "call_0", object{"output": object{"rows": strings.Repeat("x", 200_000), "$blob": "no reference"}})
	}},

	{session: "produced", play: func(s *spoolServer, session string) {
		p := s.claim(session, "narrator")
		p.append(object{"type": "text_delta", "delta": "Once "}, object{"type": "text_delta", "delta": "upon a time "},
			object{"type": "thinking", "content": "What comes next?", "isComplete": true})
		p.append(object{"type": "tool_start", "toolCallId": "c1", "toolName": "look", "arguments": object{"at": "the sky"}},
			object{"type": "progress", "id": "c1", "label": "looking", "percent": 50},
			object{"type": "custom", "eventName": "cloud", "id": "one", "data": object{"like": "a horse"}},
			object{"type": "tool_end", "toolCallId": "c1", "toolName": "look", "result": "clouds", "success": true})
		p.append(object{"type": "text_delta", "delta": "there were clouds."}, object{"type": "usage", "usage": object{"inputTokens": 3, "outputTokens": 9}},
			object{"type": "state_patch", "patches": []object{{"op": "add", "path": "/clouds", "value": 1}}})
		p.append(object{"type": "end", "finishReason": "stop"})
		p = s.claim(session, "")
		p.append(object{"type": "text_delta", "delta": "And then"}, object{"type": "fail", "error": "the narrator fell asleep", "code": "agent_failed"})
	}},
	{session: "produced-paused", play: func(s *spoolServer, session string) {
		p := s.claim(session, "")
		p.append(object{"type": "text_delta", "delta": "To be "}, object{"type": "pause"})
		p = s.claim(session, "")
		p.append(object{"type": "text_delta", "delta": "continued."}, object{"type": "error", "error": "a hiccup", "recoverable": true}, object{"type": "end"})
	}},
	{session: "waits-producer", play: func(s *spoolServer, session string) {
		p := s.claim(session, "")
		p.append(object{"type": "text_delta", "delta": "Wait for me."}, object{"type": "pause"})
	}},
	{session: "produced-large", play: func(s *spoolServer, session string) {
		p := s.claim(session, "")
		p.append(object{"type": "custom", "eventName": "photo", "id": "p", "data": object{"pixels": strings.Repeat("0123456789", 10_000)}}, object{"type": "end"})
	}},
	// Long enough that its fold is saved beside it.
	{session: "produced-long", play: func(s *spoolServer, session string) {
		for range 3 {
			p := s.claim(session, "")
			for range 2 {
				var chunks []object
				for range 400 {
					chunks = append(chunks, object{"type": "text_delta", "delta": "tick tock "})
				}
				p.append(chunks...)
			}
			p.append(object{"type": "end"})
			s.info(session)
			s.must("GET", chatPath(session)+"/snapshot", nil)
		}
	}},
}

// producer is a program outside that writes a run.
type externalProducer struct {
	s       *spoolServer
	session string
	epoch   uint64
	n       int
}

func (s *spoolServer) claim(session, agent string) *externalProducer {
	s.t.Helper()
	p := &externalProducer{s: s, session: session}
	var claimed struct{ Epoch uint64 }
	s.into(&claimed, "POST", "/stream/"+url.PathEscape(session)+"?claim&agent="+agent, nil)
	p.epoch = claimed.Epoch
	return p
}

func (p *externalProducer) append(chunks ...object) {
	p.s.t.Helper()
	epoch, _ := json.Marshal(p.epoch)
	n, _ := json.Marshal(p.n)
	p.s.must("POST", "/stream/"+url.PathEscape(p.session), chunks, "Producer-Epoch: "+string(epoch), "Producer-Seq: "+string(n))
	p.n += len(chunks)
}

// recordings are providers' streams of which each became a session.
var recordings = map[string][]string{
	"anthropic": {"web-search", "code-execution", "documents", "thinking-redacted", "refusal", "error-amid-text", "server-tool-failed", "mcp-tool",
		"restart", "tools", "tool-max-tokens"},
	"openai-chat":      {"annotations", "image", "citation-blocks", "error-event", "deepseek-reasoning", "length", "content-filter"},
	"openai-responses": {"image-partial", "file-search", "code-interpreter-streamed", "reasoning-interleaved", "mcp", "failed", "refusal-parts", "web-search-annotations"},
}

// playRecordings has a server answer with recordings, one session each.
func playRecordings(t *testing.T, db string) {
	for from, names := range recordings {
		s := serveSpool(t, db, "--demo-tools", "--model", "replay:"+filepath.Join(corpus, from))
		for _, name := range names {
			s.say(from+" "+name, "u1", name+".sse")
		}
		s.end()
	}
}
