package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/wire/native"
)

// kit is a server over a memory store, whose runs the test executes by hand.
type kit struct {
	*testing.T
	store *memstore.Store
	logs  *spool.Logs
	srv   *server.Server
	http  *httptest.Server
}

func newKit(t *testing.T, o *server.Options) *kit {
	t.Helper()
	return newKitOn(t, memstore.New(nil), o)
}

func newKitOn(t *testing.T, store *memstore.Store, o *server.Options) *kit {
	t.Helper()
	k := newKitAt(t, store, o)
	k.http.Start()
	return k
}

// newKitAt is a kit whose server is not started yet.
func newKitAt(t *testing.T, store *memstore.Store, o *server.Options) *kit {
	k := &kit{T: t, store: store}
	k.logs = spool.NewLogs(k.store, nil)
	k.srv = server.New(k.logs, hijacking(t, o))
	k.http = httptest.NewUnstartedServer(asDescribed(t, k.srv))
	t.Cleanup(func() {
		k.http.CloseClientConnections()
		k.http.Close()
		_ = k.logs.Close()
		_ = k.store.Close()
	})
	return k
}

func (k *kit) do(method, path, body string, header ...string) *http.Response {
	k.Helper()
	req, err := http.NewRequestWithContext(k.Context(), method, k.http.URL+path, strings.NewReader(body))
	if err != nil {
		k.Fatal(err)
	}
	req.Header.Set("Accept", "application/json") // errors with their codes
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := k.http.Client().Do(req)
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// stream opens a stream; anything but 200 fails the test.
func (k *kit) stream(method, path, body string, header ...string) *events {
	k.Helper()
	res := k.do(method, path, body, header...)
	if res.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(res.Body)
		k.Fatalf("%s %s: %s %s", method, path, res.Status, data)
	}
	e := &events{k: k, res: res, r: sse.NewReader(res.Body, nil)}
	if strings.Contains(path, "framing=lean") {
		e.lean = &native.Decoder{}
	}
	return e
}

// status asserts a status and returns the answer's body.
func (k *kit) status(want int, method, path, body string, header ...string) []byte {
	k.Helper()
	res := k.do(method, path, body, header...)
	data, err := io.ReadAll(res.Body)
	if err != nil {
		k.Fatal(err)
	}
	if res.StatusCode != want {
		k.Fatalf("%s %s: %s, want %d: %s", method, path, res.Status, want, data)
	}
	return data
}

func (k *kit) problem(want int, code, method, path, body string, header ...string) server.Problem {
	k.Helper()
	data := k.status(want, method, path, body, header...)
	var p server.Problem
	if err := json.Unmarshal(data, &p); err != nil || p.Code != code || p.Error == "" {
		k.Fatalf("%s %s: %s, want code %s", method, path, data, code)
	}
	return p
}

// say posts a user message and returns the answer's stream.
func (k *kit) say(session, id, text string) *events {
	k.Helper()
	return k.stream("POST", "/api/chat/"+session, userBody(session, id, text))
}

func userBody(session, id, text string) string {
	data, _ := json.Marshal(map[string]any{
		"id": session, "trigger": "submit-message",
		"messages": []any{map[string]any{"id": id, "role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}}},
	})
	return string(data)
}

// turn plays a whole turn: a message, and an answer of these deltas.
func (k *kit) turn(session, id string, deltas ...string) []event {
	k.Helper()
	e := k.say(session, id, "question "+id)
	o := k.own(session)
	o.start(id)
	o.text(deltas...)
	o.finish()
	return e.all()
}

type event struct{ ID, Data string }

type events struct {
	k    *kit
	res  *http.Response
	r    *sse.Reader
	lean *native.Decoder // events in lean framing are read as in bare framing; nil: as they are
}

// next returns the next event, or the error that ended the body.
func (e *events) next() (event, error) {
	ev, err := e.r.Next()
	if err != nil {
		return event{}, err
	}
	data := ev.Data
	if e.lean != nil {
		m, err := e.lean.Decode(data)
		if id, no := spool.ParseCursor(string(ev.ID)); err == nil && no == nil {
			err = m.At(id)
		}
		if err != nil {
			e.k.Errorf("%s %s: %v", ev.ID, data, err)
		}
		if m.Kind == native.KindChunk {
			data = m.Chunk
		}
	}
	return event{string(ev.ID), string(data)}, nil
}

// until reads up to the first event that holds text.
func (e *events) until(text string) []event {
	e.k.Helper()
	var list []event
	for {
		ev, err := e.next()
		if err != nil {
			e.k.Fatalf("the stream ended (%v) before %q; it was %v", err, text, list)
		}
		list = append(list, ev)
		if strings.Contains(ev.Data, text) {
			return list
		}
	}
}

// all reads to the clean end.
func (e *events) all() []event {
	e.k.Helper()
	list, err := e.rest()
	if !errors.Is(err, io.EOF) {
		e.k.Fatalf("the stream was cut: %v after %v", err, list)
	}
	return list
}

// rest reads to the end and returns what ended it.
func (e *events) rest() ([]event, error) {
	var list []event
	for {
		ev, err := e.next()
		if err != nil {
			return list, err
		}
		list = append(list, ev)
	}
}

// datas drops ids.
func datas(list []event) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(e.Data)
		b.WriteByte('\n')
	}
	return b.String()
}

// textOf folds the text that a client would show.
func textOf(list []event) string {
	var b strings.Builder
	for _, e := range list {
		var f struct{ Type, Delta string }
		if json.Unmarshal([]byte(e.Data), &f) == nil && f.Type == "text-delta" {
			b.WriteString(f.Delta)
		}
	}
	return b.String()
}

// owner executes a session's run by hand.
type owner struct {
	k     *kit
	g     *spool.Log
	lease spool.Lease
	w     *spool.Writer
	run   string
	step  int
	texts string
	msg   string
}

// own waits until the session is due and claims it.
func (k *kit) own(session string) *owner {
	k.Helper()
	claim := spool.Claim{Owner: "test", TTL: time.Hour, Session: session}
	var lease spool.Lease
	for {
		if err := k.logs.AwaitDue(k.Context(), claim); err != nil {
			k.Fatal(err)
		}
		var err error
		if lease, err = k.logs.Claim(k.Context(), claim); err == nil {
			break
		} else if !errors.Is(err, spool.ErrNothingDue) {
			k.Fatal(err)
		}
	}
	g, err := k.logs.Log(session)
	if err != nil {
		k.Fatal(err)
	}
	return &owner{k: k, g: g, lease: lease, w: g.Writer(lease, spool.WriterOptions{Name: "test", AgentType: "test"})}
}

func (o *owner) commit(row spool.Row, settle *spool.Settle, chunks ...chunk.Chunk) spool.Appended {
	o.k.Helper()
	res, err := o.w.Commit(o.k.Context(), row, settle, chunks...)
	if err != nil {
		o.k.Fatal(err)
	}
	return res
}

// start opens the run that answers a command, in the turn of that command or in
// another one.
func (o *owner) start(command string, turn ...string) {
	o.k.Helper()
	t := command
	if len(turn) > 0 {
		t = turn[0]
	}
	o.run, o.msg, o.step = "run-"+command, "answer-"+t, 0
	o.w.SetRun(o.run)
	h, err := o.g.Head(o.k.Context())
	if err != nil {
		o.k.Fatal(err)
	}
	o.commit(spool.Row{Status: chunk.StatusActive}, &spool.Settle{Seen: h.Seq},
		&chunk.RunStarted{TurnID: t, MessageID: o.msg, Mode: "start", Commands: []string{command}})
	o.nextStep()
}

func (o *owner) nextStep() {
	o.step++
	o.texts = ""
	o.w.SetStep(o.step)
	o.commit(spool.Row{}, nil, &chunk.StepStarted{StepID: o.stepID()})
}

func (o *owner) stepID() string { return o.run + "-" + string(rune('0'+o.step)) }

// text appends deltas, each committed before the next.
func (o *owner) text(deltas ...string) {
	o.k.Helper()
	for _, d := range deltas {
		o.texts += d
		o.commit(spool.Row{}, nil, &chunk.TextDelta{Delta: d})
	}
}

// settleStep closes the model phase and commits the step, as the fold says.
func (o *owner) settleStep() {
	o.k.Helper()
	var chunks []chunk.Chunk
	err := o.g.View(o.k.Context(), func(f *fold.Fold) error {
		chunks = f.Owed().Unsettled("stopped")
		return nil
	})
	if err != nil {
		o.k.Fatal(err)
	}
	if len(chunks) > 0 {
		o.commit(spool.Row{}, nil, chunks...)
	}
}

func (o *owner) finish() { o.end(chunk.OutcomeCompleted, "") }

func (o *owner) end(outcome chunk.Outcome, errText string) {
	o.k.Helper()
	o.settleStep()
	o.commit(spool.Row{}, nil, &chunk.CheckpointCreated{CheckpointID: "cp-" + o.run, StepCount: o.step})
	reason, status := "stop", chunk.StatusEnded
	if outcome == chunk.OutcomeFailed {
		reason, status = "error", chunk.StatusFailed
	}
	o.commit(spool.Row{Status: status}, nil, &chunk.RunFinished{Outcome: outcome, FinishReason: reason, Error: errText})
	o.release()
}

func (o *owner) release() {
	_ = o.w.Close()
	if err := o.k.logs.Store().(spool.Leaser).Release(context.Background(), o.lease); err != nil {
		o.k.Fatal(err)
	}
}

func mustJSON(v any) string {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic(err)
	}
	return b.String()
}
