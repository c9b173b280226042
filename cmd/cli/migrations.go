package cli

import (
	"context"
	"io"
)

type migrationsCmd struct {
	Store string `arg:"" name:"store" help:"A store whose tables a role of its own makes: postgres://HOST/DATABASE. Nothing connects to it."`
	Role  string `optional:"" help:"Also let this role use the tables."`
}

// Run prints the statements that make a store's tables, or bring them up to date.
func (c *migrationsCmd) Run(_ context.Context, std streams, known stores) error {
	n, d, err := known.parse("STORE", c.Store)
	if err != nil {
		return err
	}
	if d.Migrations == nil {
		return n.Wrong("postgres://HOST/DATABASE: other stores make what they need")
	}
	sql, err := d.Migrations(n, c.Role)
	if err != nil {
		return n.Unopened(err)
	}
	_, err = io.WriteString(std.out, sql)
	return err
}
