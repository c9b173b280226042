package cli

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/matrix"
)

// post is a request that changes nothing: one that is wrong, that comes too late,
// or that was answered before. In its path * is the session.
type post struct {
	session, method, path, body string
	header                      []string
}

func (p post) ask(s *spoolServer) (name string, r *reply) {
	s.t.Helper()
	method := p.method
	if method == "" {
		method = "POST"
	}
	name = p.session + ": " + method + " " + p.path
	for _, h := range p.header {
		name += " [" + h + "]"
	}
	if body := strings.Join(strings.Fields(p.body), " "); len(body) < 200 {
		name += " " + body
	} else {
		name += " " + body[:100] + " and more"
	}
	path, body := strings.ReplaceAll(p.path, "*", url.PathEscape(p.session)), p.body
	if strings.Contains(path+body, "APPROVAL") {
		id := s.approvals(p.session)[0]
		path, body = strings.ReplaceAll(path, "APPROVAL", id), strings.ReplaceAll(body, "APPROVAL", id)
	}
	if strings.Contains(body, "CHECKPOINT") {
		body = strings.ReplaceAll(body, "CHECKPOINT", s.checkpoints(p.session)[0])
	}
	return name, s.ask(method, path, body, p.header...)
}

const (
	chatRoute   = "/api/chat/*"
	resumeRoute = "/api/chat/*/resume"
	streamRoute = "/stream/*"
)

// wrongBodies are refused by every reader of a chat body.
var wrongBodies = []string{``, `x`, `[]`, `"hello"`, `{"message":`, `{"message":1}`, `{"message":{"id":1,"role":"user"}}`, `{"message":{"role":"robot","parts":[]}}`, `{"messages":1}`,
	`{"messages":[1]}`, `{"messages":["hello"]}`, `{"message":{"role":"user","parts":[]}}`, `{"messages":[]}`, `{}`, `{"id":1}`, `{"message":"hello","whenBusy":"later"}`,
	`{"message":"hello","trigger":"guess"}`, `{"message":"hello","state":{}}`, `{"message":"hello","messages":[]}`, `{"trigger":"regenerate-message","messageId":"nobody"}`, `{"messageId":"x"}`,
	`{"message":{"role":"user","parts":[{"type":1}]}}`, `{"message":{"role":"user","content":1}}`, `{"messages":[{"role":"assistant","id":"a","parts":[]}]}`,
	`{"messages":[{"role":"system","content":"be kind"}]}`,
	`{"messages":[{"role":"assistant","id":"a","parts":[{"type":"dynamic-tool","toolName":"x","toolCallId":"nothing","state":"output-available","output":1}]}]}`}

// settledPosts are for sessions that rest.
func settledPosts() (list []post) {
	for _, body := range wrongBodies {
		if !strings.Contains(body, "regenerate") { // of a session that has something to regenerate it is right
			list = append(list, post{session: "hello", path: chatRoute, body: body})
		}
		list = append(list, post{session: "nobody", path: "/merlin/v2/*", body: body})
	}
	for _, id := range []string{"x.1", "..", "a/b", strings.Repeat("x", 300)} {
		list = append(list, post{path: "/api/chat", body: `{"sessionId":"` + id + `","message":"hello"}`})
	}
	for _, body := range []string{``, `{}`, `{"mode":"guess"}`, `{"mode":1}`, `x`, `{"mode":"continue","message":"hello"}`, `{"mode":"with_message"}`,
		`{"mode":"retry"}`, `{"mode":"retry","runId":"x"}`, `{"mode":"from_checkpoint"}`, `{"mode":"from_checkpoint","checkpointId":"nothing"}`, `{"mode":"continue","checkpointId":"x"}`,
		`{"mode":"continue","runId":"nothing"}`, `{"commandId":"a/b"}`, `{"mode":"branch"}`, `{"mode":"branch","checkpointId":"nothing"}`, `{"mode":"branch","checkpointId":"CHECKPOINT","sessionId":"hello"}`,
		`{"mode":"branch","checkpointId":"CHECKPOINT","sessionId":"think"}`, `{"mode":"branch","checkpointId":"CHECKPOINT","sessionId":"a/b"}`, `{"mode":"branch","checkpointId":"CHECKPOINT","sessionId":"x.1"}`,
		`{"mode":"branch","checkpointId":"CHECKPOINT","sessionId":"new","message":{"role":"user","parts":[]}}`, `{"mode":"with_message","message":{"role":"assistant","parts":[{"type":"text","text":"x"}]}}`} {
		list = append(list, post{session: "hello", path: resumeRoute, body: body})
	}
	for _, body := range []string{``, `{}`, `{"approved":1}`, `x`, `{"approved":true}`, `{"approved":false,"reason":"again"}`} {
		list = append(list, post{session: "approved", path: chatRoute + "/approvals/APPROVAL", body: body}, post{session: "approved", path: chatRoute + "/approvals/nothing", body: body},
			post{session: "agent-denied", path: "/api/chat/*.1/approvals/APPROVAL", body: body}, post{session: "stopped-pause", path: chatRoute + "/approvals/APPROVAL", body: body})
	}
	for _, body := range []string{``, `{}`, `{"output":1,"error":"x"}`, `{"error":1}`, `{"output":{"lat":38.7,"lon":-9.1}}`, `{"output": { "lon":-9.1, "lat":38.7 }}`, `{"output":"elsewhere"}`, `{"error":"no"}`} {
		list = append(list, post{session: "located", path: chatRoute + "/tools/call_0", body: body}, post{session: "located", path: chatRoute + "/tools/nothing", body: body},
			post{session: "approved", path: chatRoute + "/tools/call_0", body: body}, post{session: "tools", path: chatRoute + "/tools/call_1", body: body},
			post{session: "waits-approval", path: chatRoute + "/tools/call_0", body: body})
	}
	for _, session := range []string{"hello", "fail", "nobody", "agents.1", "agents.9", "waits-approval", "interrupted", "x.1", "waits-producer"} {
		list = append(list, post{session: session, path: chatRoute + "/interrupt"}, post{session: session, path: chatRoute + "/interrupt", body: "x"})
		if session != "waits-approval" && session != "interrupted" && session != "waits-producer" { // those it would end
			list = append(list, post{session: session, path: chatRoute + "/stop"}, post{session: session, path: chatRoute + "/stop", body: `{"runId":"nothing"}`})
		}
		list = append(list, post{session: session, path: chatRoute + "/stop", body: `{"runId":1}`}, post{session: session, path: resumeRoute, body: `{"mode":"from_checkpoint","checkpointId":"nothing"}`})
	}
	// What was asked before is answered again.
	list = append(list, post{session: "hello", path: chatRoute, body: `{"message":{"id":"u1","role":"user","parts":[{"type":"text","text":"hello"}]}}`},
		post{session: "hello", path: "/merlin/v1/*", body: `{"message":{"id":"u1","role":"user","parts":[{"type":"text","text":"something else"}]}}`},
		post{session: "conversation", path: chatRoute + "?ui=7", body: `{"messages":[{"id":"u3","role":"user","parts":[{"type":"text","text":"branch south"}]}]}`},
		post{session: "conversation", path: chatRoute, body: `{"message":"branch south","commandId":"u3"}`},
		post{session: "edited-first", path: chatRoute, body: `{"trigger":"submit-message","messageId":"u1","message":{"id":"u1","role":"user","parts":[{"type":"text","text":"think"}]}}`},
		post{session: "interrupted-continued", path: resumeRoute, body: `{}`},
		post{session: "stopped-then-retried", path: resumeRoute, body: `{"mode":"retry"}`},
		post{session: "resumed-with-message", path: resumeRoute, body: `{"mode":"with_message","message":{"id":"u2","role":"user","parts":[{"type":"text","text":"think"}]}}`},
		post{session: "journey", path: resumeRoute, body: `{"mode":"branch","checkpointId":"CHECKPOINT","sessionId":"branched-south","message":{"id":"b1","role":"user","parts":[{"type":"text","text":"branch south"}]}}`},
		post{session: "answered-by-chat", path: chatRoute, body: `{"messages":[{"role":"assistant","id":"a1","parts":[{"type":"dynamic-tool","toolName":"get_location","toolCallId":"call_0","state":"output-available","output":"here"}]}]}`},
		post{session: "approved", path: chatRoute + "?agents=x", body: `{"message":"hello"}`}, post{session: "approved", path: "/merlin/v1/*?agents=flatten", body: `{"message":"hello"}`},
		post{session: "agents.1", path: chatRoute, body: `{"message":"hello"}`}, post{session: "agents.1", path: resumeRoute, body: `{}`}, post{session: "agents.1", path: streamRoute + "?claim"},
		post{session: "agents.1", method: "DELETE", path: chatRoute}, post{session: "nobody", method: "DELETE", path: chatRoute},
		post{session: "hello", path: chatRoute, body: `{"message":"hello"}`, header: []string{"Origin: https://elsewhere.example"}})
	return append(list, producerPosts()...)
}

// producerPosts are what no producer may write, or not now.
func producerPosts() (list []post) {
	epoch, first := "Producer-Epoch: 1", "Producer-Seq: 0"
	text := `{"type":"text_delta","delta":"x"}`
	for _, session := range []string{"produced", "hello", "nobody"} {
		list = append(list, post{session: session, path: streamRoute, body: text}, post{session: session, path: streamRoute, body: text, header: []string{epoch}},
			post{session: session, path: streamRoute, body: text, header: []string{"Producer-Epoch: 0", first}}, post{session: session, path: streamRoute, body: text, header: []string{epoch, "Producer-Seq: -1"}},
			post{session: session, path: streamRoute, body: text, header: []string{epoch, "Producer-Seq: 100"}}, post{session: session, path: streamRoute, body: text, header: []string{"Producer-Epoch: 99", first}},
			post{session: session, path: streamRoute, body: ``, header: []string{"Producer-Epoch: 99", first}})
	}
	for _, body := range []string{`x`, `[`, `[1]`, `{}`, `{"type":1}`, `{"type":"unheard_of"}`, `{"type":"run_started"}`, `{"type":"user_message","message":{"role":"user"}}`, `{"type":"text_delta","delta":1}`,
		`{"type":"end"}` + "\n" + text, `{"type":"tool_end","toolCallId":""}`, `{"type":"tool_end"}`, `{"type":"citation"}`, `{"type":"text_delta","delta":"` + strings.Repeat("x", 70_000) + `"}`,
		`{"type":"state_patch","patches":[{"op":"guess"}]}`, "[" + strings.Repeat(text+",", 1000) + text + "]", strings.Repeat(" ", 1<<20) + text} {
		list = append(list, post{session: "produced", path: streamRoute, body: body, header: []string{"Producer-Epoch: 99", first}})
	}
	return list
}

// busyPosts are for sessions whose run is open.
func busyPosts() (list []post) {
	for _, session := range []string{"lost-text", "lost-tool", "lost-due", "lost-child-text", "lost-producer"} {
		for _, route := range []string{chatRoute, "/merlin/v1/*", "/merlin/v2/*"} {
			list = append(list, post{session: session, path: route, body: `{"message":"hello"}`}, post{session: session, path: route, body: `{"trigger":"regenerate-message","whenBusy":"reject"}`})
		}
		for _, body := range []string{`{}`, `{"mode":"retry"}`, `{"mode":"with_message","message":"hello"}`, `{"mode":"from_checkpoint","checkpointId":"nothing"}`} {
			list = append(list, post{session: session, path: resumeRoute, body: body})
		}
		list = append(list, post{session: session, path: streamRoute + "?claim"}, post{session: session, path: chatRoute + "/approvals/nothing", body: `{"approved":true}`},
			post{session: session, path: chatRoute + "/tools/call_0", body: `{"output":1}`}, post{session: session, path: chatRoute + "/stop", body: `{"runId":"another"}`},
			post{session: session, path: streamRoute, body: `{"type":"text_delta","delta":"x"}`, header: []string{"Producer-Epoch: 9", "Producer-Seq: 0"}})
	}
	return append(list, post{session: "lost-producer", path: chatRoute + "/interrupt"})
}

// What is refused, and what was answered before, is answered byte by byte as before,
// and changes nothing.
func TestRefusalsAndRepeatsAreUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	for _, dir := range storedLogs(t) {
		for _, c := range []struct {
			name, db, leases string
			posts            []post
		}{{"settled", "runs", "", settledPosts()}, {"busy", "lost", holdLeases, busyPosts()}} {
			t.Run(filepath.Base(dir)+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				db := unpack(t, filepath.Join(dir, c.db+".db.gz"))
				if c.leases != "" {
					execSQL(t, db, c.leases)
				}
				s, all := serveSpool(t, db), &answers{}
				before := s.ask("GET", "/sessions?limit=1000", "").text()
				for _, p := range c.posts {
					all.record(p.ask(s))
				}
				golden(t, filepath.Join(dir, "posts", c.name+".txt"), all)
				if after := s.ask("GET", "/sessions?limit=1000", "").text(); after != before {
					t.Errorf("the requests changed something:\n%s", firstDifference(before, after))
				}
			})
		}
	}
}
