package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

type sessionsCmd struct {
	URL    string `name:"url" default:"http://127.0.0.1:8080" help:"The server."`
	Status string `enum:",active,paused,ended,failed" default:"" help:"List only sessions with this status: active, paused, ended or failed."`
	JSON   bool   `name:"json" help:"One JSON object a line."`
}

// Run lists all sessions, newest first, page by page.
func (c *sessionsCmd) Run(ctx context.Context, std streams) error {
	if !webAddress(c.URL) {
		return wrong("--url", c.URL, "the address of a server, like http://127.0.0.1:8080")
	}
	c.URL = strings.TrimRight(c.URL, "/")
	const columns = "%-36s  %-7s  %8v  %-19s  %s\n"
	out := bufio.NewWriter(std.out)
	if !c.JSON {
		fmt.Fprintf(out, columns, "SESSION", "STATUS", "RECORDS", "UPDATED", "TITLE")
	}
	for after := ""; ; {
		page, err := c.page(ctx, after)
		if err != nil {
			return err
		}
		for _, raw := range page.Sessions {
			if c.JSON {
				fmt.Fprintf(out, "%s\n", raw)
				continue
			}
			var s struct {
				Session, Status, Title string
				StreamSequence         uint64
				Updated                int64
			}
			if err := json.Unmarshal(raw, &s); err != nil {
				return err
			}
			fmt.Fprintf(out, columns, s.Session, s.Status, s.StreamSequence, time.UnixMilli(s.Updated).Format(time.DateTime), printable(s.Title))
		}
		if err := out.Flush(); err != nil {
			return nil // the reader of the output has closed it
		}
		if after = page.NextAfter; after == "" {
			return nil
		}
	}
}

type sessionsPage struct {
	Sessions  []json.RawMessage `json:"sessions"`
	NextAfter string            `json:"nextAfter"`
}

func (c *sessionsCmd) page(ctx context.Context, after string) (page sessionsPage, err error) {
	q := url.Values{"limit": {"100"}, "status": {c.Status}, "after": {after}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/sessions?"+q.Encode(), nil)
	if err != nil {
		return page, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return page, unreached(c.URL, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return page, problem(res)
	}
	err = json.NewDecoder(res.Body).Decode(&page)
	return page, err
}

// printable returns a title without control characters, which a terminal would
// interpret.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}
