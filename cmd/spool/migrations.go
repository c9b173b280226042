package main

import (
	"context"
	"io"
)

type migrationsCmd struct {
	Store string `arg:"" name:"store" help:"A store whose tables a role of its own makes: postgres://HOST/DATABASE. Nothing connects to it."`
	Role  string `optional:"" help:"Also let this role use the tables."`
}

// Run prints the statements that make a store's tables, or bring them up to date.
func (c *migrationsCmd) Run(_ context.Context, std streams) error {
	n, d, err := parseStore("STORE", c.Store)
	if err != nil {
		return err
	}
	if d.migrations == nil {
		return n.wrong("postgres://HOST/DATABASE: other stores make what they need")
	}
	sql, err := d.migrations(n, c.Role)
	if err != nil {
		return storeError{n.flag, n.name, err}
	}
	_, err = io.WriteString(std.out, sql)
	return err
}
