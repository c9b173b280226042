package cli

import (
	"strings"
	"testing"
)

// A store's name is taken apart by its scheme, and errors do not show passwords.
func TestStoreNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "sqlite", "sqlite:", "sqlite:?sync=full", "memory:", "memory:x", "nats:", "oracle:x", "sqlite:x?%zz", "file.db"} {
		if _, _, err := stores(drivers).parse("--store", name); err == nil {
			t.Errorf("%q is taken for a store", name)
		}
	}
	n, d, err := stores(drivers).parse("--store", "sqlite:a:b.db?sync=normal")
	if err != nil || d.Scheme != "sqlite" || n.Rest != "a:b.db" || n.Query.Get("sync") != "normal" {
		t.Errorf("%+v, %+v, %v", n, d, err)
	}
	_, _, err = stores(drivers).parse("--store", "oracle://scott:tiger@host/db")
	if err == nil || strings.Contains(err.Error(), "tiger") || !strings.Contains(err.Error(), "scott") {
		t.Errorf("%v", err)
	}
}

// A binary without a NATS server names the command that has one.
func TestNoEmbeddedServer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nats:embedded", "nats:embedded?dir=x&cluster=a:1"} {
		_, err := stores(drivers).open(t.Context(), "--store", name, nil)
		if err == nil || !strings.Contains(hintOf(err), "spool-nats") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Options of NATS are read, or refused with the form.
func TestNATSOptions(t *testing.T) {
	t.Parallel()
	for query, ok := range map[string]bool{"": true, "prefix=a&replicas=3": true, "replicas=2": false, "replicas=": false, "replicas=x": false, "user=x": false} {
		n, _, err := stores(drivers).parse("--store", "nats://127.0.0.1:1?"+query)
		if err != nil {
			t.Fatal(err)
		}
		o, read := natsOptions(n.Query)
		if read != ok || ok && query != "" && (o.Prefix != "a" || o.Replicas != 3) {
			t.Errorf("%q: %+v, %v", query, o, read)
		}
	}
	for _, name := range []string{"nats:host", "nats://", "nats://?prefix=a"} {
		if _, err := stores(drivers).open(t.Context(), "--store", name, nil); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}
