package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

type sessionsCmd struct {
	remote
	Status  string `enum:",active,paused,ended,failed" default:"" empty:"" help:"List only sessions with this status: active, paused, ended or failed."`
	Expired bool   `help:"List only what the server deletes next, since its --session-ttl has passed."`
	JSON    bool   `name:"json" help:"One JSON object a line."`
}

// Run lists all sessions, newest first, page by page.
func (c *sessionsCmd) Run(ctx context.Context, std streams) error {
	remote, err := c.client(client.Retry{Max: 3})
	if err != nil {
		return err
	}
	const columns = "%-36s  %-7s  %8v  %10v  %-19s  %s\n"
	const page = 100
	out := bufio.NewWriter(std.out)
	if !c.JSON {
		fmt.Fprintf(out, columns, "SESSION", "STATUS", "RECORDS", "BYTES", "UPDATED", "TITLE")
	}
	n := 0
	for s, err := range remote.AllSessions(ctx, client.SessionsOptions{Status: chunk.Status(c.Status), Expired: c.Expired, Limit: page}) {
		if err != nil {
			return c.explained(err)
		}
		if c.JSON {
			data, err := json.Marshal(s)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s\n", data)
		} else {
			fmt.Fprintf(out, columns, s.Session, s.Status, s.StreamSequence, s.Bytes, time.UnixMilli(s.Updated).Format(time.DateTime), printable(s.Title))
		}
		if n++; n%page == 0 && out.Flush() != nil {
			return nil // the reader of the output has closed it
		}
	}
	_ = out.Flush()
	return nil
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
