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
	spool.FoldStore
	spool.BlobStore
	Close() error
}

// storeError names the store that could not be opened.
type storeError struct {
	name string
	err  error
}

func (e storeError) Error() string {
	return "--store " + e.name + ": " + strings.TrimPrefix(e.err.Error(), "spool: ")
}
func (e storeError) Unwrap() error { return e.err }

// openStore opens the store with a URL-like name.
func openStore(name string) (closableStore, error) {
	kind, rest, _ := strings.Cut(name, ":")
	switch {
	case kind == "sqlite" && rest != "":
		path, query, _ := strings.Cut(rest, "?")
		q, err := url.ParseQuery(query)
		if err != nil || path == "" {
			break
		}
		o := &sqlitestore.Options{}
		switch sync := q.Get("sync"); sync {
		case "", sqlitestore.SyncFull, sqlitestore.SyncNormal:
			o.Sync = sync
		default:
			return nil, wrong("--store", name, "sync=full or sync=normal")
		}
		s, err := sqlitestore.Open(path, o)
		if err != nil {
			return nil, storeError{name, err}
		}
		return s, nil
	case name == "memory":
		return memstore.New(nil), nil
	}
	return nil, wrong("--store", name, "sqlite:PATH or memory")
}
