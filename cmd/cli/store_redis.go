package cli

import (
	"context"

	"github.com/spool-run/spool/store/redisstore"
)

func openRedis(_ context.Context, n StoreName) (Store, error) {
	s, err := redisstore.Open(n.URL, nil)
	if err != nil {
		return nil, n.Unopened(err)
	}
	return s, nil
}
