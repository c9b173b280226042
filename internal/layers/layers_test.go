// Package layers holds the test that keeps the architecture's promise: imports
// go downward, as the table in docs/architecture.md says.
package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/spool-run/spool"

type row struct {
	level    string
	packages []string // patterns, relative to the module
	imports  []string // patterns and levels
}

func TestImportsGoDownward(t *testing.T) {
	rows := readTable(t)
	for _, p := range listPackages(t) {
		own, ok := find(rows, p.name)
		if !ok {
			t.Errorf("%s stands in no row of the table in docs/architecture.md", p.name)
			continue
		}
		for _, imported := range p.imports {
			target, inside := strings.CutPrefix(imported, module)
			if !inside {
				if strings.HasPrefix(p.name, "internal/") && strings.Contains(strings.Split(imported, "/")[0], ".") {
					t.Errorf("%s imports %s: internal packages import only the standard library", p.name, imported)
				}
				continue
			}
			target = relative(target)
			if !allowed(rows, own, target) {
				t.Errorf("%s (level %s) imports %s", p.name, own.level, target)
			}
		}
	}
}

func TestTheTableRefusesUpwardImports(t *testing.T) {
	rows := readTable(t)
	for _, c := range []struct{ from, to string }{
		{"chunk", "fold"}, {"fold", "."}, {".", "stream"}, {".", "store/memstore"}, {"wire/aisdk", "agent"}, {"agent", "engine"}, {"engine", "runner"}, {"model", "model/openai"},
		{"store/memstore", "wire/native"}, {"runner", "server"}, {"server", "cmd/spool"}, {"internal/sse", "chunk"}, {"store/memstore", "stream"},
	} {
		own, ok := find(rows, c.from)
		if !ok {
			t.Errorf("%s stands in no row", c.from)
		} else if allowed(rows, own, c.to) {
			t.Errorf("the table lets %s import %s", c.from, c.to)
		}
	}
}

// readTable returns the rows between "| level |" and the next empty line.
func readTable(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| level | packages | may import |\n| --- | --- | --- |\n")
	if !found {
		t.Fatal("docs/architecture.md has no layer table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []row
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		rows = append(rows, row{strings.TrimSpace(cells[0]), patterns(cells[1]), patterns(cells[2])})
	}
	if len(rows) < 5 {
		t.Fatalf("the layer table has only %d rows", len(rows))
	}
	return rows
}

func patterns(cell string) []string {
	var list []string
	for p := range strings.SplitSeq(cell, ",") {
		list = append(list, strings.Trim(strings.TrimSpace(p), "`"))
	}
	return list
}

type listed struct {
	name    string
	imports []string
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, listed{relative(strings.TrimPrefix(p.ImportPath, module)), p.Imports})
	}
}

func relative(p string) string {
	if p = strings.TrimPrefix(p, "/"); p == "" {
		return "."
	}
	return p
}

func find(rows []row, name string) (row, bool) {
	for _, r := range rows {
		if slices.ContainsFunc(r.packages, func(p string) bool { return matches(p, name) }) {
			return r, true
		}
	}
	return row{}, false
}

func allowed(rows []row, own row, target string) bool {
	for _, p := range own.imports {
		if matches(p, target) {
			return true
		}
		for _, r := range rows {
			if r.level == p && slices.ContainsFunc(r.packages, func(p string) bool { return matches(p, target) }) {
				return true
			}
		}
	}
	return false
}

// matches reports whether a package matches a pattern; "x/*" is everything
// below x.
func matches(pattern, name string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(name, dir+"/")
	}
	ok, _ := path.Match(pattern, name)
	return ok
}
