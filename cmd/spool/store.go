package main

import (
	"net/url"
	"strings"

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
	if name == "memory" {
		return memstore.New(nil), nil
	}
	path, ok := sqlitePath(name)
	if !ok {
		return nil, wrong(flag, name, "sqlite:PATH or memory")
	}
	_, query, _ := strings.Cut(name, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, wrong(flag, name, "sqlite:PATH or memory")
	}
	o := &sqlitestore.Options{}
	switch sync := q.Get("sync"); sync {
	case "", sqlitestore.SyncFull, sqlitestore.SyncNormal:
		o.Sync = sync
	default:
		return nil, wrong(flag, name, "sync=full or sync=normal")
	}
	s, err := sqlitestore.Open(path, o)
	if err != nil {
		return nil, storeError{flag, name, err}
	}
	return s, nil
}

// sqlitePath returns the path of the database that the name of a store has.
func sqlitePath(name string) (path string, ok bool) {
	rest, ok := strings.CutPrefix(name, "sqlite:")
	path, _, _ = strings.Cut(rest, "?")
	return path, ok && path != ""
}
