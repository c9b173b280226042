package main

import (
	"strings"
	"testing"
)

// A store's name is taken apart by its scheme, and errors do not show passwords.
func TestStoreNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "sqlite", "sqlite:", "sqlite:?sync=full", "memory:", "memory:x", "oracle:x", "sqlite:x?%zz", "file.db"} {
		if _, _, err := parseStore("--store", name); err == nil {
			t.Errorf("%q is taken for a store", name)
		}
	}
	n, d, err := parseStore("--store", "sqlite:a:b.db?sync=normal")
	if err != nil || d.scheme != "sqlite" || n.rest != "a:b.db" || n.query.Get("sync") != "normal" {
		t.Errorf("%+v, %+v, %v", n, d, err)
	}
	_, _, err = parseStore("--store", "oracle://scott:tiger@host/db")
	if err == nil || strings.Contains(err.Error(), "tiger") || !strings.Contains(err.Error(), "scott") {
		t.Errorf("%v", err)
	}
}
