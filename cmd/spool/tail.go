package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/sse"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire"
)

type tailCmd struct {
	Session string `arg:"" help:"The session's id."`
	URL     string `name:"url" default:"http://127.0.0.1:8080" help:"The server."`
	Wire    string `enum:"${wires}" default:"native" help:"${wires}; all but native show one turn."`
	UI      int    `name:"ui" enum:"6,7" default:"6" help:"AI SDK profile."`
	After   string `help:"Begin after this position."`
	Once    bool   `help:"Exit when the turn ends, instead of following the session."`
}

// Run prints the data of each event, one per line. Whenever the connection breaks, it
// reconnects after the last event.
func (c *tailCmd) Run(ctx context.Context, std streams) error {
	if !webAddress(c.URL) {
		return wrong("--url", c.URL, "the address of a server, like http://127.0.0.1:8080")
	}
	c.URL = strings.TrimRight(c.URL, "/")
	out := bufio.NewWriter(std.out)
	defer out.Flush()
	t := &tail{cmd: c, out: out, last: c.After}
	t.wire, _ = wires.Find(wires.List(wires.Options{}), c.Wire) // the flag accepts no others
	told := ""
	for failures := 0; ; {
		before := t.last
		done, err := t.attach(ctx)
		if ferr := out.Flush(); ferr != nil {
			return nil // the reader of the output has closed it
		}
		if ctx.Err() != nil {
			return nil
		}
		if done {
			return err
		}
		if failures++; t.last != before {
			failures, told = 0, ""
		}
		if why := said(err); why != told { // print a lasting problem only once
			fmt.Fprintf(std.err, "spool: %s; coming back\n", why)
			told = why
		}
		pause := time.Duration(1+rand.IntN(100)) * time.Millisecond << min(failures, 6)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

type tail struct {
	cmd  *tailCmd
	wire wire.Wire
	out  *bufio.Writer
	last string // id of the last event
}

func (t *tail) request(ctx context.Context) (*http.Request, error) {
	c := t.cmd
	path := strings.Replace(t.wire.Attach[0], "{session}", url.PathEscape(c.Session), 1)
	q := url.Values{"ui": {strconv.Itoa(c.UI)}}
	if !c.Once && t.wire.Follow != "" {
		follow, err := url.ParseQuery(t.wire.Follow)
		if err != nil {
			return nil, err
		}
		maps.Copy(q, follow)
	}
	if t.last != "" && t.last == c.After {
		q.Set("after", t.last) // a parameter, so that a malformed one is refused
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path+"?"+q.Encode(), nil)
	if err == nil && t.last != "" {
		req.Header.Set("Last-Event-ID", t.last)
	}
	return req, err
}

// attach reads one connection. done means that there is no reason to reconnect.
func (t *tail) attach(ctx context.Context) (done bool, err error) {
	req, err := t.request(ctx)
	if err != nil {
		return true, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, unreached(t.cmd.URL, err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNoContent:
		return true, errors.New("there is nothing to show: this session has no open turn, and none that ended recently (--wire native shows the whole log)")
	case res.StatusCode >= 500:
		return false, problem(res)
	case res.StatusCode != http.StatusOK:
		return true, problem(res)
	}
	events := sse.NewReader(res.Body, nil)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return false, errors.New("the stream ended without a terminal frame")
		}
		if err != nil {
			return false, err
		}
		if len(e.ID) > 0 {
			t.last = string(e.ID)
		}
		if done, err := t.event(string(e.Name), e.Data); done {
			return true, err
		}
	}
}

// event prints one event. done means that it was the last.
func (t *tail) event(name string, data []byte) (done bool, err error) {
	e := t.wire.Read(name, data)
	if e.Line != nil {
		t.line(e.Line)
	}
	return e.Last, e.Err
}

func (t *tail) line(data []byte) {
	_, _ = t.out.Write(append(data, '\n'))
	_ = t.out.Flush()
}

// problem reads an error response.
func problem(res *http.Response) error {
	var p server.Problem
	data, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if json.Unmarshal(data, &p) != nil || p.Code == "" {
		return fmt.Errorf("%s answered %s (is it a Spool server?)", res.Request.URL.Host, res.Status)
	}
	hint := p.Hint
	if p.Code == spool.ErrNotFound.Code {
		hint = "list the sessions with: spool sessions"
	}
	if hint != "" {
		hint = " (" + hint + ")"
	}
	return fmt.Errorf("%s: %s%s", p.Code, strings.TrimPrefix(p.Error, "spool: "), hint)
}

// unreached is the error of a request that got no response.
func unreached(url string, err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s cannot be reached: %w (is spool serve running there?)", url, err)
}
