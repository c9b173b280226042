package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"
)

type sessionsCmd struct {
	URL    string `name:"url" default:"http://127.0.0.1:8080" help:"The server."`
	Status string `help:"Only these: active, paused, ended or failed."`
	JSON   bool   `name:"json" help:"One JSON object a line."`
}

// Run lists all sessions, newest first.
func (c *sessionsCmd) Run(ctx context.Context, std streams) error {
	w := tabwriter.NewWriter(std.out, 0, 8, 2, ' ', 0)
	if !c.JSON {
		fmt.Fprintln(w, "SESSION\tSTATUS\tRECORDS\tUPDATED\tTITLE")
	}
	for after := ""; ; {
		q := url.Values{"limit": {"100"}, "status": {c.Status}, "after": {after}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/sessions?"+q.Encode(), nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return problem(res)
		}
		var page struct {
			Sessions  []json.RawMessage `json:"sessions"`
			NextAfter string            `json:"nextAfter"`
		}
		if err := json.NewDecoder(res.Body).Decode(&page); err != nil {
			return err
		}
		for _, raw := range page.Sessions {
			if c.JSON {
				fmt.Fprintf(w, "%s\n", raw)
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
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", s.Session, s.Status, s.StreamSequence, time.UnixMilli(s.Updated).Format(time.DateTime), s.Title)
		}
		if after = page.NextAfter; after == "" {
			return w.Flush()
		}
	}
}
