package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

func TestAddresses(t *testing.T) {
	for _, address := range []string{
		"", "host", "mysql://host/db", "postgres://u:secret@host:x/db", "postgres://u:secret@host/db?schema=A", "postgres://u:secret@host/db?schema=pg_x",
		"postgres://u:secret@host/db?schema=" + strings.Repeat("x", 49), "postgres://u:secret@host/db?connections=0", "postgres://u:secret@host/db?connections=many",
		"postgres://u:secret@host/db?sslmode=perhaps",
	} {
		_, err := Open(context.Background(), address, nil)
		if !errors.Is(err, chunk.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	s, err := configure("postgresql://u:p@host/db?schema=mine&connections=3&sslmode=disable", Options{Schema: "other", Connections: 9})
	if err != nil || s.schema != "mine" || s.config.MaxConns != 3 || s.config.ConnConfig.Host != "host" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Open(context.Background(), "postgres://u:secret@127.0.0.1:1/db", nil); !errors.Is(err, spool.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("without a server: %v", err)
	}
}

func TestSchema(t *testing.T) {
	sql, err := Schema("")
	if err != nil || !strings.Contains(sql, "CREATE SCHEMA IF NOT EXISTS spool;") || !strings.Contains(sql, "CREATE TABLE session (") {
		t.Errorf("%v\n%s", err, sql)
	}
	if _, err := Schema("a b"); !errors.Is(err, chunk.ErrInvalid) {
		t.Error(err)
	}
}
