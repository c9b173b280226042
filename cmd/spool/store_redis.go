package main

import "github.com/spool-run/spool/store/redisstore"

func openRedis(n storeName) (closableStore, error) {
	s, err := redisstore.Open(n.url, nil)
	if err != nil {
		return nil, storeError{n.flag, n.name, err}
	}
	return s, nil
}
