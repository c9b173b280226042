package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/wiretest"
)

// remains are servers of one store: one that wrote its sessions, and one that has nothing
// of them in memory.
type remains struct{ here, elsewhere *kit }

func newRemains(t *testing.T) remains {
	o := server.Options{Chat: chat.Options{ReplayGrace: time.Hour}, Wires: wires.Options{Merlin: merlin.WireOptions{Pacing: []merlin.Pace{}}}}
	k := newKit(t, &o)
	return remains{k, newKitOn(t, k.store, &o)}
}

func (r remains) trim(session string, behind uint64) {
	k := r.here
	k.Helper()
	if err := k.store.Trim(k.Context(), session, k.snapshot(session).StreamSequence-behind, 0); err != nil {
		k.Fatal(err)
	}
}

// read reads a stream from its start, and again with each cut. It returns what it has.
func (r remains) read(path string) string {
	t := r.here
	t.Helper()
	all := t.stream("GET", path, "").all()
	if got := r.elsewhere.stream("GET", path, "").all(); datas(got) != datas(all) {
		t.Errorf("%s elsewhere: %v, want %v", path, got, all)
	}
	told := strings.Count(datas(all), "trace_omitted")
	if native := strings.HasPrefix(path, "/stream"); native && (told != 1 || !strings.Contains(all[0].Data, "trace_omitted")) || !native && told > 0 {
		t.Errorf("%s says %d times that trace is missing: %v", path, told, all)
	}
	if path, lean := strings.CutSuffix(path, "?framing=lean"); lean && datas(t.stream("GET", path, "").all()) != datas(all) {
		t.Errorf("%s in lean framing: %v", path, all)
	}
	path, _, _ = strings.Cut(path, "?after")
	for i, e := range all[:len(all)-1] {
		for _, k := range []*kit{r.here, r.elsewhere} {
			if e.ID == "" {
				continue
			}
			if got := datas(append(all[:i+1:i+1], k.stream("GET", path, "", "Last-Event-ID", e.ID).all()...)); got != datas(all) {
				t.Errorf("%s cut at %s: %s, want %s", path, e.ID, got, datas(all))
			}
		}
	}
	return datas(all)
}

// A branch and a trimmed session are read from the start on every wire, wherever the
// reader is cut.
func TestRemainsFromTheStart(t *testing.T) {
	t.Parallel()
	r := newRemains(t)
	k := r.here
	k.twoSteps("s")
	k.branch("s", `{"mode":"branch","checkpointId":"cp-1","sessionId":"paused"}`)
	k.branch("s", `{"mode":"branch","checkpointId":"cp-run-u1","sessionId":"whole"}`)
	k.twoSteps("trimmed")
	r.trim("trimmed", 0)
	k.twoSteps("half")
	r.trim("half", 2)
	for _, session := range []string{"paused", "whole", "trimmed", "half"} {
		for _, path := range []string{"/stream/%s", "/stream/%s?framing=event&agent=self", "/stream/%s?framing=lean", "/stream/%s?framing=lean&agent=self", "/stream/%s?after=0", "/api/chat/%s", "/api/chat/%s?after=0",
			"/api/chat/%s?ui=7", "/merlin/v1/%s", "/merlin/v2/%s", "/merlin/v2/%s?after=0"} {
			path = fmt.Sprintf(path, session)
			text := r.read(path)
			if !strings.Contains(text, "one ") || strings.Contains(text, "two") != (session != "paused") || strings.Contains(text, `"text_delta"`) {
				t.Errorf("%s: %s", path, text)
			}
		}
	}
	inside := r.elsewhere.stream("GET", "/stream/whole?after=1", "").all()
	if len(inside) != 1 || !strings.Contains(inside[0].Data, `"reason":"trimmed"`) {
		t.Errorf("from inside the trimmed trace: %v", inside)
	}
	for _, session := range []string{"s", "half"} { // a place in a plan of another wire
		k.problem(http.StatusBadRequest, spool.ErrCursorMalformed.Code, "GET", fmt.Sprintf("/stream/%s?after=p2-%d", session, k.snapshot(session).StreamSequence), "")
	}
	k.problem(http.StatusConflict, spool.ErrTrimmed.Code, "GET", "/api/chat/whole?after=2", "")
}

// So are the sessions of its children.
func TestRemainsOfChildren(t *testing.T) {
	t.Parallel()
	r := newRemains(t)
	p := r.here.player()
	p.all()
	r.trim(wiretest.Session, 0)
	for _, session := range []string{wiretest.Session, trains, history, planes, book} {
		text := r.read("/stream/" + session)
		if lean := r.read("/stream/" + session + "?framing=lean"); lean != text {
			t.Errorf("%s in lean framing: %s", session, lean)
		}
		if !strings.Contains(text, `"agentId":"`+session+`"`) {
			t.Errorf("%s: %s", session, text)
		}
	}
}
