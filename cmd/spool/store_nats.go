package main

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/spool-run/spool/store/natsstore"
)

const natsForm = "nats://HOST with ?prefix=NAME and replicas=1, 3 or 5"

func openNATS(n storeName) (closableStore, error) {
	address, _, _ := strings.Cut(n.url, "?")
	if !strings.HasPrefix(n.rest, "//") || len(n.rest) == len("//") {
		return nil, n.wrong(natsForm)
	}
	o, ok := natsOptions(n.query)
	if !ok {
		return nil, n.wrong(natsForm)
	}
	s, err := natsstore.Open(address, o)
	if err != nil {
		return nil, storeError{n.flag, n.name, err}
	}
	return s, nil
}

func natsOptions(query url.Values) (o *natsstore.Options, ok bool) {
	o = &natsstore.Options{}
	for key, values := range query {
		switch key {
		case "prefix":
			o.Prefix = values[0]
		case "replicas":
			n, err := strconv.Atoi(values[0])
			if err != nil || n != 1 && n != 3 && n != 5 {
				return nil, false
			}
			o.Replicas = n
		default:
			return nil, false
		}
	}
	return o, true
}
