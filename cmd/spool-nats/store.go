package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spool-run/spool/cmd/cli"
	"github.com/spool-run/spool/cmd/spool-nats/embedded"
)

var embeddedNATS = cli.Driver{Scheme: "nats:embedded", Form: "nats:embedded?dir=PATH", Open: openEmbedded, Exists: existsEmbedded, Single: true}

// openEmbedded starts a server in this process, and opens a store on it.
func openEmbedded(ctx context.Context, n cli.StoreName) (cli.Store, error) {
	o, err := parseOptions(n.Query)
	if err != nil {
		return nil, n.Wrong(err.Error())
	}
	o.Log = n.Log
	s, err := embedded.Open(ctx, o)
	if err != nil {
		return nil, n.Unopened(err)
	}
	return s, nil
}

func existsEmbedded(n cli.StoreName) error {
	if _, err := os.Stat(filepath.Join(n.Query.Get("dir"), "jetstream")); err != nil {
		return n.Unopened(err)
	}
	return nil
}

// maxSecret is how many bytes the file of a secret may have.
const maxSecret = 1024

// parseOptions takes what follows the question mark of a store's name. Its error is what the
// name must be like.
func parseOptions(query url.Values) (*embedded.Options, error) {
	o := &embedded.Options{}
	for key, values := range query {
		v := values[0]
		if len(values) > 1 || v == "" {
			return nil, fmt.Errorf("one value for %s", key)
		}
		switch key {
		case "dir":
			o.Dir = v
		case "cluster":
			o.Members = strings.Split(v, ",")
		case "self":
			o.Self = v
		case "bind":
			o.Bind = v
		case "clients":
			o.Clients = v
		case "prefix":
			o.Prefix = v
		case "sync":
			if v != "always" && v != "interval" {
				return nil, fmt.Errorf("sync=always or sync=interval")
			}
			o.SyncAlways, o.SyncInterval = v == "always", v == "interval"
		case "replicas":
			n, err := strconv.Atoi(v)
			if err != nil {
				return nil, fmt.Errorf("replicas=1, 3 or 5")
			}
			o.Replicas = n
		case "secret-file":
			secret, err := readSecret(v)
			if err != nil {
				return nil, err
			}
			o.Secret = secret
		default:
			return nil, fmt.Errorf("only dir, cluster, self, bind, secret-file, clients, replicas, sync and prefix after the question mark")
		}
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return o, nil
}

// readSecret returns a file's first line.
func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("a secret-file that can be read: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSpace(line)
	if line == "" || len(line) > maxSecret {
		return "", fmt.Errorf("a secret-file whose first line has up to %d bytes", maxSecret)
	}
	return line, nil
}
