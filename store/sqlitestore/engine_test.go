package sqlitestore

import (
	"database/sql/driver"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func dialed(t *testing.T) *conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a b%20ü?.db")
	s := mustOpen(t, path, nil, "boot")
	c, err := dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Values of every type and size go to SQLite and come back.
func TestEngineValues(t *testing.T) {
	c := dialed(t)
	for _, want := range [][]driver.Value{
		{int64(-1), "text", []byte("blob"), nil},
		{int64(1) << 62, "", []byte("\x00"), nil},
		{nil, "with \x00 inside", []byte(strings.Repeat("x", 3*keptArgs)), strings.Repeat("ü", keptArgs)},
		{int64(0), "after a large one", []byte("y"), "z"},
	} {
		var got []driver.Value
		if err := c.query(func(row []driver.Value) error { got = append(got, row...); return nil }, "SELECT ?, ?, ?, ?", want...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	if err := c.exec("SELECT ?", 7); err == nil {
		t.Error("an int was bound")
	}
}

// A statement may run while the rows of another are read, and the first one's arguments
// stay as they were.
func TestEngineNests(t *testing.T) {
	c := dialed(t)
	var got []string
	err := c.each(func(outer row) error {
		return c.each(func(inner row) error {
			got = append(got, string(outer.bytes(0))+string(inner.bytes(0)))
			return nil
		}, "SELECT +?1 UNION ALL SELECT +?2", "c", "d")
	}, "SELECT +?1 UNION ALL SELECT +?2", "a", "b")
	if err == nil { // the same statement: it cannot run while it runs
		t.Errorf("nested in itself: %v", got)
	}
	got = nil
	if err := c.each(func(outer row) error {
		return c.each(func(inner row) error {
			got = append(got, string(outer.bytes(0))+string(inner.bytes(0)))
			return nil
		}, "SELECT +?1", "inner")
	}, "SELECT +?1 UNION ALL SELECT +?2", "a ", "b "); err != nil || !reflect.DeepEqual(got, []string{"a inner", "b inner"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// Errors say what SQLite says, with its extended code, and leave the connection usable.
func TestEngineErrors(t *testing.T) {
	c := dialed(t)
	for sql, want := range map[string]struct {
		code int
		text string
	}{
		"SELEC":                                  {1, "syntax error"},
		"SELECT missing":                         {1, "no such column"},
		"INSERT INTO garbage VALUES (1), (1)":    {19 | 6<<8, "UNIQUE constraint failed"},
		"INSERT INTO blob VALUES (1, 'h', NULL)": {19 | 5<<8, "NOT NULL constraint failed"},
		"SELECT abs(-9223372036854775807 - 1)":   {1, "integer overflow"},
	} {
		for _, run := range []func(string) error{c.script, func(sql string) error { return c.exec(sql) }} {
			err := run(sql)
			e, ok := errors.AsType[*engineError](err)
			if !ok || e.code != want.code || !strings.Contains(e.msg, want.text) {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
	if n, err := c.number("SELECT 7"); n != 7 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
	if _, err := dial(filepath.Join(t.TempDir(), "missing")); code(err) != codeCantOpen {
		t.Errorf("a file that is not there: %v", err)
	}
}
