package cli

import (
	"context"

	"github.com/spool-run/spool/store/pgstore"
)

func openPostgres(ctx context.Context, n StoreName) (Store, error) {
	s, err := pgstore.Open(ctx, n.URL, nil)
	if err != nil {
		return nil, n.Unopened(err)
	}
	return s, nil
}

func migratePostgres(n StoreName, role string) (string, error) {
	return pgstore.Schema(n.Query.Get("schema"), role)
}
