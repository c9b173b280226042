package cli

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/natsstore"
)

const natsForm = "nats://HOST with ?prefix=NAME and replicas=1, 3 or 5"

func openNATS(_ context.Context, n StoreName) (Store, error) {
	address, _, _ := strings.Cut(n.URL, "?")
	if !strings.HasPrefix(n.Rest, "//") || len(n.Rest) == len("//") {
		return nil, n.Wrong(natsForm)
	}
	o, ok := natsOptions(n.Query)
	if !ok {
		return nil, n.Wrong(natsForm)
	}
	s, err := natsstore.Open(address, o)
	if err != nil {
		return nil, n.Unopened(err)
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

// openEmbeddedNATS is for binaries without a NATS server.
func openEmbeddedNATS(_ context.Context, n StoreName) (Store, error) {
	return nil, n.Unopened(errNoServer)
}

var errNoServer = &chunk.Error{Code: chunk.ErrInvalid.Code, Message: "this binary has no NATS server in it",
	Hint: "use the command spool-nats, which has one: see docs/stores.md"}
