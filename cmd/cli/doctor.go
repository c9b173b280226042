package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/redact"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/doctor"
)

type doctorCmd struct {
	Store   string        `default:"sqlite:spool.db" help:"The store, as in spool serve --store. Servers may be using it."`
	JSON    bool          `name:"json" help:"Print a JSON object."`
	Timeout time.Duration `default:"2m" help:"Give up after this long."`
}

// diagnosis is what spool doctor --json prints.
type diagnosis struct {
	Store    string             `json:"store"` // without a password
	OK       bool               `json:"ok"`    // there is no problem
	Findings []contract.Finding `json:"findings"`
}

// errUnwell makes the exit code 1. What is wrong was printed.
var errUnwell = errors.New("the store has problems")

// Run examines a store.
func (c *doctorCmd) Run(ctx context.Context, std streams, known stores) error {
	if c.Timeout <= 0 {
		return wrong("--timeout", c.Timeout, "more than 0s")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	n, d, err := known.parse("--store", c.Store)
	if err != nil {
		return err
	}
	said := diagnosis{Store: n.Name, OK: true}
	if said.Findings, err = examine(ctx, n, d); err != nil {
		return err
	}
	for _, f := range said.Findings {
		said.OK = said.OK && f.Level != contract.Problem
	}
	if c.JSON {
		err = json.NewEncoder(std.out).Encode(said)
	} else {
		err = said.print(std.out)
	}
	if err == nil && !said.OK {
		err = errUnwell
	}
	return err
}

// examine opens the store, without making one, and examines it. It fails for wrong usage
// only.
func examine(ctx context.Context, n StoreName, d Driver) ([]contract.Finding, error) {
	var usage *usageError
	unopened := func(err error) ([]contract.Finding, error) {
		if errors.As(err, &usage) {
			return nil, err
		}
		var e storeError
		hint := ""
		if errors.As(err, &e) {
			err, hint = e.err, hintOf(e.err)
		}
		return []contract.Finding{{Check: "open", Level: contract.Problem, Text: redact.Text(err.Error()), Hint: hint}}, nil
	}
	if d.Exists != nil {
		if err := d.Exists(n); err != nil {
			return unopened(err)
		}
	}
	store, err := d.Open(ctx, n)
	if err != nil {
		return unopened(err)
	}
	defer store.Close()
	var another spool.Store
	if !d.Brief && !d.Single { // readers are woken by other processes, too
		second, err := d.Open(ctx, n)
		if err != nil {
			return unopened(err)
		}
		defer second.Close()
		another = second
	}
	return doctor.Examine(ctx, store, another), nil
}

// print writes a line for each finding, and one for what to change.
func (d *diagnosis) print(w io.Writer) error {
	for _, f := range d.Findings {
		line := fmt.Sprintf("%-8s %-12s %s\n", f.Level, f.Check, printable(f.Text))
		if f.Hint != "" {
			line += fmt.Sprintf("%-8s %-12s → %s\n", "", "", printable(f.Hint))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}
