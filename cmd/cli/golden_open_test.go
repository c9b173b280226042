package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/matrix"
)

// Runs that nobody has ended are shown unchanged, too, as far as they have come: their
// owner is held to be alive, so that nobody takes them over.
func TestOpenRunsAreServedUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	for _, dir := range storedLogs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			db, served := unpack(t, filepath.Join(dir, "lost.db.gz")), filepath.Join(dir, "served", "lost")
			execSQL(t, db, holdLeases)
			s := serveSpool(t, db, "--heartbeat", "1s")
			files := map[string]bool{}
			for _, session := range s.sessions() {
				file := filepath.Join(served, fileName(session)+".txt")
				files[file] = true
				t.Run(session, func(t *testing.T) {
					t.Parallel()
					s, all, known := s.with(t), &answers{}, readAnswers(t, file)
					for _, q := range s.stateOf(session, len(s.children(session)) > 0) {
						all.record(q.name(session), s.question(q))
					}
					streams := s.openStreams(session)
					seen := make([]*reply, len(streams))
					var readers sync.WaitGroup
					for i, q := range streams {
						readers.Go(func() { seen[i] = s.follow(q, known.texts[q.name(session)]) })
					}
					readers.Wait()
					for i, q := range streams {
						all.record(q.name(session), seen[i])
					}
					golden(t, file, all)
				})
			}
			copying := &answers{}
			for _, q := range []question{get("/api/chat/half-branch/snapshot"), get("/stream/half-branch/info"), get("/stream/half-branch"), get("/api/chat/half-branch"), get("/sessions?status=copying")} {
				copying.record(q.name("*"), s.question(q))
			}
			file := filepath.Join(served, "half-branch.txt")
			files[file] = true
			golden(t, file, copying)
			staleFiles(t, served, files)
		})
	}
}

// openStreams asks for streams of a session that goes on.
func (s *spoolServer) openStreams(session string) (list []question) {
	s.t.Helper()
	for _, session := range append([]string{session}, s.children(session)...) {
		id, i := url.PathEscape(session), s.info(session)
		chat, half := "/api/chat/"+id+"/stream", fmt.Sprint(i.Latest/2)
		list = append(list, get("/stream/"+id), get("/stream/"+id+"?follow=session&framing=event&after="+half), get("/stream/"+id+"?agent=self"),
			get(chat, "X-Resume-From-Sequence: "+half), get(chat, "X-Resume-From-Sequence: "+fmt.Sprint(i.Latest)), get(chat+"?startIndex=0"), get(chat+"?startIndex=-2&ui=7"))
		for _, stream := range []string{chat + "?ui=6", chat + "?ui=7", chat + "?agents=flatten", chat + "?agents=summary", "/merlin/v1/" + id + "?agents=nest", "/merlin/v2/" + id + "?agents=summary"} {
			list = append(list, get(stream), get(stream+"&after=1"), get(stream+"&after="+half), get(stream, "Last-Event-ID: p2-"+half), get(stream, "Last-Event-ID: p3-"+fmt.Sprint(i.Latest)))
		}
	}
	return list
}

func readAnswers(t *testing.T, file string) *answers {
	t.Helper()
	if *update {
		return &answers{}
	}
	return goldenAnswers(t, file)
}

const heartbeat = ": hb\n\n"

// follow reads a stream that may have no end. What it was earlier says how much is
// to be waited for, and heartbeats that no more comes.
func (s *spoolServer) follow(q question, want string) *reply {
	s.t.Helper()
	res := s.open(q.method, q.path, "", q.header...)
	defer res.Body.Close()
	r := &reply{status: res.StatusCode, header: res.Header, records: strings.HasPrefix(q.path, "/stream/"), open: true}
	r.header.Del("Date")
	beats := 0
	for buf := make([]byte, 32<<10); ; {
		n, err := res.Body.Read(buf)
		r.body = withoutRetry(append(r.body, buf[:n]...))
		if r.broken = errors.Is(err, io.ErrUnexpectedEOF); err != nil {
			if err != io.EOF && !r.broken {
				s.t.Errorf("%s: %v", q.path, err)
			}
			r.open = false
			return r
		}
		if !strings.HasSuffix(string(r.body), "\n\n") {
			continue // amid an event
		}
		if rest, beat := strings.CutSuffix(string(r.body), heartbeat); beat && strings.HasSuffix(rest, "\n\n") {
			r.body = []byte(rest)
			beats++
		}
		switch {
		case want != "" && r.text() == want:
			return r
		case want == "" && beats > 2, beats > 60: // whatever was to come has not
			return r
		case want != "" && !r.mayBecome(want):
			return r
		}
	}
}

// mayBecome says whether what has come so far may be the beginning of what is
// wanted.
func (r *reply) mayBecome(want string) bool {
	head, _, _ := strings.Cut(r.with(""), "\n\n")
	wantHead, wantBody, _ := strings.Cut(want, "\n\n")
	if head != wantHead {
		return false
	}
	var n int
	if _, err := fmt.Sscanf(wantBody, "%d bytes, sha256 ", &n); err == nil {
		return len(r.body) <= n
	}
	return strings.HasPrefix(wantBody, string(r.body))
}
