package cli

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// Store is a store with every role: the server needs them all.
type Store interface {
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

// Driver is a kind of store that a flag or argument can name.
type Driver struct {
	// Scheme is what the name begins with, up to a colon; if it has a colon or Brief is
	// set, the whole name up to a question mark.
	Scheme string
	Form   string // the form of names, for users; "": as another one's
	// Open opens the store. It gives up when the context ends, which the store outlives.
	Open   func(context.Context, StoreName) (Store, error)
	Brief  bool                  // nothing of it outlives the process
	Single bool                  // it cannot be opened twice
	Exists func(StoreName) error // nil: opening it tells
	// Migrations returns the SQL that makes the tables, for the store and a role that uses
	// them; nil: there is none.
	Migrations func(n StoreName, role string) (string, error)
}

// whole reports whether nothing may follow the scheme but a question mark.
func (d *Driver) whole() bool { return d.Brief || strings.Contains(d.Scheme, ":") }

// drivers are the stores of all binaries.
var drivers = []Driver{
	{Scheme: "sqlite", Form: "sqlite:PATH", Open: openSQLite, Exists: existsSQLite},
	{Scheme: "redis", Form: "redis://HOST", Open: openRedis},
	{Scheme: "rediss", Open: openRedis},
	{Scheme: "postgres", Form: "postgres://HOST/DATABASE", Open: openPostgres, Migrations: migratePostgres},
	{Scheme: "postgresql", Open: openPostgres, Migrations: migratePostgres},
	{Scheme: "nats", Form: "nats://HOST", Open: openNATS},
	{Scheme: "nats:embedded", Open: openEmbeddedNATS},
	{Scheme: "memory", Form: "memory", Open: openMemory, Brief: true},
}

// now is the clock of this process. Tests set it wrong.
var now = time.Now

func openMemory(_ context.Context, n StoreName) (Store, error) {
	if len(n.Query) > 0 {
		return nil, n.Wrong("memory")
	}
	return memstore.New(&memstore.Options{Now: now}), nil
}

// StoreName is the URL-like name of a store, and the flag or argument that has it.
type StoreName struct {
	Flag, Name string // without a password
	URL        string // as it was given
	Rest       string // after the scheme's colon, before a question mark
	Query      url.Values
	Log        *slog.Logger // of what happens to the store
}

// Wrong is the error for a name that is not of a form.
func (n StoreName) Wrong(form string) error { return wrong(n.Flag, n.Name, form) }

// Unopened is the error for a store that could not be opened.
func (n StoreName) Unopened(err error) error { return storeError{n.Flag, n.Name, err} }

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

// stores are those that a binary knows. The first that fits a name opens it.
type stores []Driver

// open opens the store with a URL-like name, which a flag or argument has.
func (all stores) open(ctx context.Context, flag, name string, log *slog.Logger) (Store, error) {
	n, d, err := all.parse(flag, name)
	if err != nil {
		return nil, err
	}
	n.Log = log
	return d.Open(ctx, n)
}

func (all stores) parse(flag, name string) (StoreName, Driver, error) {
	whole, query, _ := strings.Cut(name, "?")
	scheme, rest, _ := strings.Cut(whole, ":")
	n := StoreName{Flag: flag, Name: withoutPassword(name), URL: name, Rest: rest, Log: slog.New(slog.DiscardHandler)}
	i := slices.IndexFunc(all, func(d Driver) bool { return d.whole() && d.Scheme == whole })
	if i < 0 {
		i = slices.IndexFunc(all, func(d Driver) bool { return !d.whole() && d.Scheme == scheme && rest != "" })
	}
	if i < 0 {
		return n, Driver{}, n.Wrong(all.forms(true))
	}
	var err error
	if n.Query, err = url.ParseQuery(query); err != nil {
		return n, Driver{}, n.Wrong(cmp.Or(all[i].Form, all[i].Scheme))
	}
	return n, all[i], nil
}

// forms lists the forms of names: "a, b or c".
func (all stores) forms(brief bool) string {
	var forms []string
	for _, d := range all {
		if d.Form != "" && (brief || !d.Brief) {
			forms = append(forms, d.Form)
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

func openSQLite(_ context.Context, n StoreName) (Store, error) {
	o := &sqlitestore.Options{Now: now}
	switch sync := n.Query.Get("sync"); sync {
	case "", sqlitestore.SyncFull, sqlitestore.SyncNormal:
		o.Sync = sync
	default:
		return nil, n.Wrong("sync=full or sync=normal")
	}
	s, err := sqlitestore.Open(n.Rest, o)
	if err != nil {
		return nil, n.Unopened(err)
	}
	return s, nil
}

func existsSQLite(n StoreName) error {
	if _, err := os.Stat(n.Rest); err != nil {
		return n.Unopened(err)
	}
	return nil
}
