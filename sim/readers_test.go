package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
)

// reader is a device that shows the session's latest turn, on one wire.
type reader interface {
	// read reads until the turn is over and has been read to its end.
	read()
	// compare says what is wrong with what it shows, given what the log says.
	compare(t *truth) string
	String() string
}

// device is what readers have in common.
type device struct {
	u    *user
	over <-chan struct{} // closed when the turn is over
}

func (u *user) device(over <-chan struct{}) device { return device{u: u, over: over} }

// newReader returns a reader of any wire.
func (u *user) newReader(over <-chan struct{}) reader {
	d := u.device(over)
	switch u.chance.below(4) {
	case 0:
		return &page{device: d, ui7: true}
	case 1:
		return &merlinReader{device: d, version: merlin.V1}
	case 2:
		return &merlinReader{device: d, version: merlin.V2}
	}
	return &page{device: d}
}

// rests waits a moment, and reports whether the turn is over.
func (d *device) rests() bool {
	select {
	case <-d.over:
		return true
	case <-time.After(300*time.Millisecond + d.u.chance.upTo(2*time.Second)):
		return false
	}
}

// attempts calls fn, which reads to the end of a stream, until it has done so when the
// turn was over already.
func (d *device) attempts(fn func() error) {
	for d.u.w.ctx.Err() == nil {
		over := false
		select {
		case <-d.over:
			over = true
		default:
		}
		if err := fn(); err != nil {
			d.u.pause("a reader", err)
			continue
		}
		if over {
			return
		}
		d.rests()
	}
}

// lost reports whether a position cannot be served any more.
func lost(err error) bool {
	return errors.Is(err, spool.ErrTrimmed) || errors.Is(err, spool.ErrCursorAhead) || errors.Is(err, spool.ErrCursorRetracted)
}

// page reads the AI SDK wire with cursors.
type page struct {
	device
	ui7   bool
	shown aisdk.Client
	at    string
	bad   string
}

func (p *page) String() string {
	if p.ui7 {
		return "aisdk 7"
	}
	return "aisdk 6"
}

func (p *page) read() {
	p.again()
	p.attempts(p.stream)
}

func (p *page) again() { p.shown, p.at = aisdk.Client{UI7: p.ui7}, "" }

// stream reads one stream to its end.
func (p *page) stream() error {
	q := url.Values{}
	if p.ui7 {
		q.Set("ui", "7")
	}
	st := p.u.session.Attach(p.u.w.ctx, client.AttachOptions{Wire: aisdk.Wire(aisdk.Options{UI7: p.ui7}), Query: q, After: p.at})
	defer st.Close()
	p.shown.Done = false
	for {
		e, err := st.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case lost(err):
			p.u.says("%s begins again after %s: %v", p, p.at, err)
			p.again()
			return err
		case err != nil:
			return err
		}
		p.at = st.Position()
		if p.u.w.spoiled.reader != nil && p.u.w.spoiled.reader(p.at) {
			continue
		}
		if err := p.shown.Write(sse.AppendEvent(nil, "", e.Data)); err != nil && p.bad == "" {
			p.bad = err.Error()
		}
	}
}

func (p *page) compare(t *truth) string {
	p.u.w.count("read on " + p.String())
	if p.bad != "" {
		return p.bad
	}
	want := aisdk.Client{UI7: p.ui7}
	if err := want.Write(t.plan(aisdk.Options{UI7: p.ui7}.Profile())); err != nil {
		return "the plan: " + err.Error()
	}
	return differs(p.state(p.shown.Message), p.state(want.Message))
}

// state is what a message says, without what the older profile does not tell: what a
// user has decided.
func (p *page) state(m aisdk.UIMessage) string {
	m.Parts = slices.Clone(m.Parts)
	for i := range m.Parts {
		if at := &m.Parts[i]; at.Approval != nil && !p.ui7 {
			at.Approval = &aisdk.UIApproval{ID: at.Approval.ID}
			if at.State == aisdk.StateApprovalResponded {
				at.State = aisdk.StateApprovalRequested
			}
		}
	}
	return mustJSON(m)
}

func differs(got, want string) string {
	if got == want {
		return ""
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	from := max(0, at-100)
	short := func(s string) string { return s[from:min(len(s), at+200)] }
	return fmt.Sprintf("from byte %d on it shows\n  … %s …\nand the log says\n  … %s …", from, short(got), short(want))
}

func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// get sends a request once. A refusal is a [*client.Error].
func (d *device) get(ctx context.Context, method, path, body string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://spool"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	req.Header.Set("Accept", "application/json")
	res, err := d.u.w.network.client.Do(req)
	if err != nil || res.StatusCode < 300 {
		return res, err
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(res.Body)
	var p server.Problem
	if json.Unmarshal(data, &p) != nil || p.Code == "" {
		return nil, errors.New(res.Status)
	}
	return nil, &client.Error{Status: res.StatusCode, Code: p.Code, Message: p.Error}
}

// merlinReader reads a Merlin wire.
type merlinReader struct {
	device
	version merlin.Version
	shown   merlin.Client
	at      spool.Cursor
}

func (m *merlinReader) String() string { return merlin.Wire(m.version, merlin.WireOptions{}).Name }

func (m *merlinReader) read() { m.attempts(m.stream) }

func (m *merlinReader) stream() error {
	h := http.Header{}
	if m.at != (spool.Cursor{}) {
		h.Set(wire.HeaderLastEventID, m.at.String())
	}
	ctx, cancel := context.WithCancel(m.u.w.ctx)
	defer cancel()
	idle := time.AfterFunc(30*time.Second, cancel)
	defer idle.Stop()
	res, err := m.get(ctx, http.MethodGet, strings.Replace(merlin.Wire(m.version, merlin.WireOptions{}).Attach[0], "{session}", m.u.name, 1), "", h)
	if lost(err) {
		m.u.says("%s begins again after %v: %v", m, m.at, err)
		m.shown, m.at = merlin.Client{}, spool.Cursor{}
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent {
		return nil
	}
	if m.at == (spool.Cursor{}) {
		m.shown = merlin.Client{} // it is shown from its beginning
	}
	m.shown.Ended = false
	r := merlin.NewReader(&alive{res.Body, idle})
	for {
		e, err := r.Next()
		if err != nil && m.shown.Ended {
			return nil
		}
		if err != nil {
			m.shown.Drop()
			return err
		}
		m.shown.Apply(e)
		if e.HasID {
			m.at = r.Cursor()
		}
	}
}

// alive is a body that puts off the moment at which its connection counts as dead.
type alive struct {
	io.Reader
	idle *time.Timer
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	a.idle.Reset(30 * time.Second)
	return n, err
}

func (m *merlinReader) compare(t *truth) string {
	m.u.w.count("read on " + m.String())
	p, err := merlin.Wire(m.version, merlin.WireOptions{}).Profile(wire.Request{})
	if err != nil {
		return err.Error()
	}
	var want merlin.Client
	r := merlin.NewReader(bytes.NewReader(t.plan(p)))
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "the plan: " + err.Error()
		}
		want.Apply(e)
	}
	return differs(merlinState(m.shown), merlinState(want))
}

func merlinState(c merlin.Client) string {
	c.Ended = false
	c.Blocks = slices.Clone(c.Blocks)
	for i := range c.Blocks {
		c.Blocks[i].Results = slices.DeleteFunc(slices.Clone(c.Blocks[i].Results), func(r merlin.Result) bool { return r.Text == "" && !r.Failed })
	}
	return mustJSON(c)
}

// counter is the client of the AI SDK's workflow transport: it sends the message, and
// comes back with the number of frames that it has counted.
type counter struct {
	device
	body   string
	taken  chan struct{} // closed when the message was taken
	once   sync.Once
	run    string
	frames []string
	ended  bool
	busy   bool // the message was refused
	void   bool // what it has counted was retracted, or lost
}

func (c *counter) String() string { return "aisdk, counted" }

func body(session, id, text string) string {
	return mustJSON(map[string]any{"id": session, "trigger": "submit-message",
		"messages": []any{map[string]any{"id": id, "role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}}}})
}

func (c *counter) read() {
	defer c.known()
	for c.run == "" && c.u.w.ctx.Err() == nil {
		err := c.stream(http.MethodPost, "/api/chat/"+c.u.name, c.body)
		if errors.Is(err, spool.ErrBusy) && c.u.w.store.lost() > 0 {
			c.busy, c.void = true, true // a turn that was over goes on
			return
		}
		if err != nil && c.run == "" {
			c.u.pause("a POST", err)
		}
	}
	for !c.ended && !c.void && c.u.w.ctx.Err() == nil {
		if err := c.stream(http.MethodGet, "/api/chat/"+c.run+"/stream?startIndex="+strconv.Itoa(len(c.frames)), ""); err != nil {
			c.u.pause("a counted reader", err)
		}
	}
}

func (c *counter) known() {
	if c.taken != nil {
		c.once.Do(func() { close(c.taken) })
	}
}

// stream reads one response to its end.
func (c *counter) stream(method, path, body string) error {
	ctx, cancel := context.WithCancel(c.u.w.ctx)
	defer cancel()
	idle := time.AfterFunc(30*time.Second, cancel)
	defer idle.Stop()
	h := http.Header{}
	if body != "" {
		h.Set("Content-Type", "application/json")
	}
	res, err := c.get(ctx, method, path, body, h)
	if lost(err) || errors.Is(err, spool.ErrNotFound) {
		c.void = true
	}
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if method == http.MethodPost {
		c.run = res.Header.Get("X-Workflow-Run-Id")
		c.known()
	}
	if res.StatusCode == http.StatusNoContent {
		c.void = true // the run is not there any more
		return nil
	}
	r := sse.NewReader(&alive{res.Body, idle}, nil)
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		if string(e.Data) == "[DONE]" {
			c.ended = true
			return nil
		}
		c.frames = append(c.frames, string(e.Data))
	}
}

// compare asks for all frames again, now that nothing goes wrong any more.
func (c *counter) compare(t *truth) string {
	if c.void || t.retracted {
		return ""
	}
	c.u.w.count("read on " + c.String())
	again := &counter{device: c.device, run: c.run}
	again.read()
	if again.void {
		return "its run is not there any more"
	}
	return differs(strings.Join(c.frames, "\n"), strings.Join(again.frames, "\n"))
}
