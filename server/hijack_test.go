package server_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/internal/pipenet"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// hijacking sets the option in the tests that [TestHijacked] runs.
func hijacking(t testing.TB, o *server.Options) *server.Options {
	if !strings.HasPrefix(t.Name(), "TestHijacked/") {
		return o
	}
	c := *cmp.Or(o, &server.Options{})
	c.HijackStreams = true
	return &c
}

// Tests of streams hold as well if the server takes the connections over.
func TestHijacked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"Native": TestNative, "NativeEndsHaveIDs": TestNativeEndsHaveIDs, "Failed": TestFailed, "TurnIsolation": TestTurnIsolation,
		"Drain": TestDrain, "DrainTakesNoMessage": TestDrainTakesNoMessage, "MaxReaders": TestMaxReaders,
		"RemainsFromTheStart": TestRemainsFromTheStart, "RemainsOfChildren": TestRemainsOfChildren, "CutAcrossPause": TestCutAcrossPause,
		"WaitForSession": TestWaitForSession, "WaitingReadersAreReaders": TestWaitingReadersAreReaders, "AttachIsRelative": TestAttachIsRelative,
		"ChildStreams": TestChildStreams, "ChildrenOnTheRoot": TestChildrenOnTheRoot, "ReadersStayThroughAnOutage": TestReadersStayThroughAnOutage,
		"RetryIsSpread": TestRetryIsSpread, "OwnerOnly": TestOwnerOnly, "EveryRouteAsks": TestEveryRouteAsks, "BadInput": TestBadInput,
		"CORS": TestCORS, "Heartbeat": TestHeartbeat, "HTTP2": TestHTTP2, "Metrics": TestMetrics, "Rewind": TestRewind,
		"SlowReader": TestSlowReader, "Replay": TestReplay, "Cursor": TestCursor,
	} {
		t.Run(name, test)
	}
}

// has reports whether the server's metrics have this line.
func (k *kit) has(metric string) bool {
	k.Helper()
	return strings.Contains(string(k.status(http.StatusOK, "GET", "/metrics", "")), "\n"+metric+"\n")
}

// raw opens a stream on a connection of its own, and reads the response's head.
func (k *kit) raw(path string) (net.Conn, *bufio.Reader, *http.Response) {
	k.Helper()
	conn, err := k.http.Listener.(*pipenet.Listener).Dial(k.Context(), "", "")
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		k.Fatal(err)
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		k.Fatal(err)
	}
	return conn, r, res
}

// A stream on a hijacked connection has the bytes of an ordinary one, ends with the last
// chunk, and then the connection is closed. Its head says so.
func TestHijackedStream(t *testing.T) {
	t.Parallel()
	inBubble(t, &server.Options{HijackStreams: true}, func(k *kit) {
		k.turn("s", "u1", "one ", strings.Repeat("two ", 50_000))
		_, r, res := k.raw("/stream/s")
		if !res.Close || !slices.Equal(res.TransferEncoding, []string{"chunked"}) || res.Header.Get("Date") == "" ||
			!strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") || res.Header.Get("Vary") == "" {
			t.Errorf("the response: %+v", res)
		}
		got, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
			t.Errorf("after the last chunk: %q, %v", rest, err)
		}
		rec := httptest.NewRecorder()
		server.New(k.logs, nil).ServeHTTP(rec, httptest.NewRequest("GET", "/stream/s", nil))
		_, got2, _ := strings.Cut(string(got), "\n\n") // each has a retry of its own
		if _, want, _ := strings.Cut(rec.Body.String(), "\n\n"); got2 != want || len(want) < 200_000 {
			t.Errorf("%d bytes, want %d", len(got2), len(want))
		}
		synctest.Wait()
		if !k.has(`spool_reader_ends_total{reason="done"} 2`) { // and the POST
			t.Error("the reader that has everything is not counted as done")
		}
	})
}

// A reader that has nothing to read gets heartbeats, and what is appended; one that leaves
// is noticed at once, whoever waits with it, and its place is free.
func TestHijackedReaders(t *testing.T) {
	t.Parallel()
	inBubble(t, &server.Options{HijackStreams: true, MaxReaders: 4, Heartbeat: 8 * time.Second}, func(k *kit) {
		o := k.begun("s")
		conns, readers := make([]net.Conn, 3), make([]*bufio.Reader, 3)
		for i := range conns {
			var res *http.Response
			conns[i], _, res = k.raw("/stream/s?follow=session")
			readers[i] = bufio.NewReader(res.Body)
		}
		until := func(i int, text string) {
			t.Helper()
			for line := ""; !strings.Contains(line, text); {
				var err error
				if line, err = readers[i].ReadString('\n'); err != nil {
					t.Errorf("reader %d: %v before %q", i, err, text)
					return
				}
			}
		}
		all := func(text string, which ...int) {
			t.Helper()
			done := make(chan bool)
			for _, i := range which {
				go func() { until(i, text); done <- true }()
			}
			for range which {
				<-done
			}
		}
		go o.text("one ")
		all("one ", 0, 1, 2)
		all(": hb", 0, 1, 2)
		k.problem(http.StatusServiceUnavailable, "too_many_readers", "GET", "/stream/s?follow=session", "")
		_ = conns[0].Close() // the first to wait: it waits for the others, too
		synctest.Wait()
		if !k.has(`spool_readers{view="native"} 2`) || !k.has(`spool_reader_ends_total{reason="gone"} 1`) {
			t.Error("a reader that left is not noticed")
		}
		for _, word := range []string{"two ", "three "} {
			go o.text(word)
			all(word, 1, 2)
		}
		_ = conns[1].Close()
		_ = conns[2].Close()
		synctest.Wait()
		if !k.has(`spool_readers{view="native"} 0`) {
			t.Error("readers that left are not noticed")
		}
		var res *http.Response
		conns[0], _, res = k.raw("/stream/s?follow=session")
		readers[0] = bufio.NewReader(res.Body)
		until(0, "three ")
	})
}

// begun is a session whose run is open.
func (k *kit) begun(session string) *owner {
	k.Helper()
	go func() { _, _ = k.say(session, "u1", "hi").rest() }()
	o := k.own(session)
	o.start("u1")
	return o
}

// Readers that come, leave anywhere and come back while a log is written have each record
// once, in order.
func TestHijackedCrowd(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{HijackStreams: true})
	o := k.begun("s")
	var crowd sync.WaitGroup
	for i := range 40 {
		crowd.Go(func() {
			random, seen := rand.New(rand.NewPCG(1, uint64(i))), 0
			for {
				e := k.stream("GET", fmt.Sprintf("/stream/s?after=%d", seen), "")
				for range 1 + random.IntN(20) {
					ev, err := e.next()
					if err == nil && ev.ID != strconv.Itoa(seen+1) && !strings.Contains(ev.Data, `"type":"end"`) {
						t.Errorf("%s after %d: %s", ev.ID, seen, ev.Data)
						return
					}
					if err != nil || strings.Contains(ev.Data, `"run_finished"`) {
						if err != nil {
							t.Error(err)
						}
						return
					}
					seen++
				}
				_ = e.res.Body.Close()
			}
		})
	}
	for i := range 200 {
		o.text(fmt.Sprint(i, " "))
	}
	o.finish()
	crowd.Wait()
}

// A stalled reader is cut by the write deadline; those that wait with it are not held up.
func TestHijackedSlowReader(t *testing.T) {
	t.Parallel()
	inBubble(t, &server.Options{HijackStreams: true, WriteTimeout: 3 * time.Second, Heartbeat: time.Hour}, func(k *kit) {
		o := k.begun("s")
		for range 100 { // more than there are workers
			_, _, res := k.raw("/stream/s?follow=session")
			if _, err := bufio.NewReaderSize(res.Body, 16).ReadByte(); err != nil {
				t.Fatal(err)
			}
		}
		// A pipe has no buffer, so who reads must do it all the time.
		fast, words := k.stream("GET", "/stream/s?follow=session", ""), make(chan string, 1000)
		go func() {
			for {
				e, err := fast.next()
				if err != nil {
					return
				}
				words <- e.Data
			}
		}()
		until := func(text string) {
			for !strings.Contains(<-words, text) {
			}
		}
		for _, word := range []string{"one ", "two "} {
			o.text(word)
			until(word)
		}
		time.Sleep(4 * time.Second)
		if text := string(k.status(http.StatusOK, "GET", "/metrics", "")); !strings.Contains(text, `spool_reader_ends_total{reason="slow"} 100`) {
			t.Errorf("readers that read nothing were not cut: %s", text)
		}
		o.text("three ")
		until("three ")
		_ = fast.res.Body.Close()
	})
}

// A drain ends hijacked readers within its spread, without the end of the stream, and
// Shutdown waits for it.
func TestHijackedDrain(t *testing.T) {
	t.Parallel()
	inBubble(t, &server.Options{HijackStreams: true, DrainSpread: time.Minute, Heartbeat: time.Hour}, func(k *kit) {
		k.begun("s")
		readers := make([]*events, 20)
		for i := range readers {
			readers[i] = k.stream("GET", "/stream/s?follow=session", "")
			readers[i].until("step_started")
		}
		begun := time.Now()
		if err := k.srv.Shutdown(k.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took == 0 || took > time.Minute {
			t.Errorf("the drain took %v", took)
		}
		for _, e := range readers {
			if rest, err := e.rest(); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("a drained reader has %v, and then %v", rest, err)
			}
		}
		k.problem(http.StatusServiceUnavailable, "draining", "GET", "/stream/s?follow=session", "")
	})
}

// A connection is not hijacked behind a ResponseWriter that wraps it and may change what is
// written.
func TestHijackedNotBehindOthers(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	k := newKitAt(t, store, &server.Options{HijackStreams: true})
	inner := k.http.Config.Handler
	seen := make(chan bool, 1)
	k.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			defer func() { seen <- true }()
			k.srv.ServeHTTP(wrapping{w}, r)
			return
		}
		inner.ServeHTTP(w, r)
	})
	k.http.Start()
	k.turn("s", "u1", "one ")
	if e := k.stream("GET", "/stream/s", ""); e.res.Close {
		t.Error("the connection was taken over")
	} else {
		e.all()
	}
	<-seen
}

type wrapping struct{ http.ResponseWriter }

func (w wrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }
