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
