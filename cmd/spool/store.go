package main

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// closableStore is a store with every role: the server needs them all.
type closableStore interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.Expirer
	spool.Measurer
	spool.FoldStore
	spool.BlobStore
	spool.Importer
	Close() error
}

// driver is a kind of store that a flag or argument can name.
type driver struct {
	scheme string // what the name begins with, up to a colon; the whole name if it has none
	form   string // the form of names, for users; "": as another one's
	open   func(storeName) (closableStore, error)
	brief  bool                  // nothing of it outlives the process
	exists func(storeName) error // nil: opening it tells
	// migrations returns the SQL that makes the tables, for the store and a role that uses
	// them; nil: there is none.
	migrations func(n storeName, role string) (string, error)
}

var drivers = []driver{
	{scheme: "sqlite", form: "sqlite:PATH", open: openSQLite, exists: existsSQLite},
	{scheme: "redis", form: "redis://HOST", open: openRedis},
	{scheme: "rediss", open: openRedis},
	{scheme: "postgres", form: "postgres://HOST/DATABASE", open: openPostgres, migrations: migratePostgres},
	{scheme: "postgresql", open: openPostgres, migrations: migratePostgres},
	{scheme: "nats", form: "nats://HOST", open: openNATS},
	{scheme: "memory", form: "memory", open: openMemory, brief: true},
}

// now is the clock of this process. Tests set it wrong.
var now = time.Now

func openMemory(storeName) (closableStore, error) {
	return memstore.New(&memstore.Options{Now: now}), nil
}

// storeName is the URL-like name of a store, and the flag or argument that has it.
type storeName struct {
	flag, name string // without a password
	url        string // as it was given
	rest       string // after the scheme's colon, before a question mark
	query      url.Values
}

// wrong is the error for a name that is not of a form.
func (n storeName) wrong(form string) error { return wrong(n.flag, n.name, form) }

// storeError names the store that could not be opened.
type storeError struct {
	flag string // or argument
	name string
	err  error
}

func (e storeError) Error() string {
	return e.flag + " " + e.name + ": " + strings.TrimPrefix(e.err.Error(), "spool: ")
}
func (e storeError) Unwrap() error { return e.err }

// openStore opens the store with a URL-like name, which a flag or argument has.
func openStore(flag, name string) (closableStore, error) {
	n, d, err := parseStore(flag, name)
	if err != nil {
		return nil, err
	}
	return d.open(n)
}

func parseStore(flag, name string) (storeName, driver, error) {
	scheme, rest, colon := strings.Cut(name, ":")
	rest, query, _ := strings.Cut(rest, "?")
	n := storeName{flag: flag, name: withoutPassword(name), url: name, rest: rest}
	i := slices.IndexFunc(drivers, func(d driver) bool { return d.scheme == scheme })
	if i < 0 || colon == drivers[i].brief || colon && rest == "" {
		return n, driver{}, n.wrong(storeForms(true))
	}
	var err error
	if n.query, err = url.ParseQuery(query); err != nil {
		return n, driver{}, n.wrong(drivers[i].form)
	}
	return n, drivers[i], nil
}

// storeForms lists the forms of names: "a, b or c".
func storeForms(brief bool) string {
	var forms []string
	for _, d := range drivers {
		if d.form != "" && (brief || !d.brief) {
			forms = append(forms, d.form)
		}
	}
	last := len(forms) - 1
	if last == 0 {
		return forms[0]
	}
	return strings.Join(forms[:last], ", ") + " or " + forms[last]
}

// withoutPassword is the name as logs and errors may show it.
func withoutPassword(name string) string {
	if u, err := url.Parse(name); err == nil && u.User != nil {
		return u.Redacted()
	}
	return name
}

func openSQLite(n storeName) (closableStore, error) {
	o := &sqlitestore.Options{Now: now}
	switch sync := n.query.Get("sync"); sync {
	case "", sqlitestore.SyncFull, sqlitestore.SyncNormal:
		o.Sync = sync
	default:
		return nil, n.wrong("sync=full or sync=normal")
	}
	s, err := sqlitestore.Open(n.rest, o)
	if err != nil {
		return nil, storeError{n.flag, n.name, err}
	}
	return s, nil
}

func existsSQLite(n storeName) error {
	if _, err := os.Stat(n.rest); err != nil {
		return storeError{n.flag, n.name, err}
	}
	return nil
}
