package main

import (
	"net/url"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/sqlitestore"
)

// closableStore is what the server needs of a store: every role.
type closableStore interface {
	spool.Store
	spool.Leaser
	spool.Lister
	spool.Trimmer
	spool.FoldStore
	spool.BlobStore
	Close() error
}

// openStore opens the store that a URL-like name says.
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
			return nil, &usageError{"--store " + name + ": sync is full or normal"}
		}
		return sqlitestore.Open(path, o)
	case name == "memory":
		return memstore.New(nil), nil
	}
	return nil, &usageError{"--store " + name + ": want sqlite:PATH or memory"}
}
