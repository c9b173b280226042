package main

import (
	"context"

	"github.com/spool-run/spool/store/pgstore"
)

func openPostgres(n storeName) (closableStore, error) {
	s, err := pgstore.Open(context.Background(), n.url, nil)
	if err != nil {
		return nil, storeError{n.flag, n.name, err}
	}
	return s, nil
}

func migratePostgres(n storeName, role string) (string, error) {
	return pgstore.Schema(n.query.Get("schema"), role)
}
