package spool_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// Every code that the module's source gives to an error is in the table, and of
// the table's category.
func TestEveryCodeIsInTheTable(t *testing.T) {
	found := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "bench" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), strings.HasPrefix(path, "wire/wiretest"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if name := typeName(n.Type); name != "Error" && name != "ErrorInfo" {
					return true
				}
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok && fmt.Sprint(kv.Key) == "Code" {
						note(found, kv.Value, path)
					}
				}
			case *ast.ValueSpec: // CodeX = "x"
				for i, name := range n.Names {
					if strings.HasPrefix(name.Name, "Code") && i < len(n.Values) {
						note(found, n.Values[i], path)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 50 {
		t.Errorf("only %d codes were found", len(found))
	}
	for code, path := range found {
		info := spool.InfoOf(code)
		if info.Category == spool.CategoryUnknown {
			t.Errorf("%s: the code %q is not in the table", path, code)
		}
		for _, c := range []spool.Category{spool.CategoryProvider, spool.CategoryTool, spool.CategoryAgent, spool.CategoryCursor} {
			if strings.HasPrefix(code, string(c)+"_") && info.Category != c {
				t.Errorf("the code %q is of category %s", code, info.Category)
			}
		}
		if info.Status < 200 || info.Status > 599 {
			t.Errorf("the code %q has the status %d", code, info.Status)
		}
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func note(found map[string]string, e ast.Expr, path string) {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if code, err := strconv.Unquote(lit.Value); err == nil {
			found[code] = path
		}
	}
}

func TestInfoOf(t *testing.T) {
	for code, want := range map[string]spool.CodeInfo{
		"provider_rate_limited": {Category: spool.CategoryProvider, Status: 429, Retryable: true},
		"provider_new":          {Category: spool.CategoryProvider, Status: 500},
		"tool_execution_failed": {Category: spool.CategoryTool, Status: 500},
		"busy":                  {Category: spool.CategorySession, Status: 409, Retryable: true},
		"unheard_of":            {Category: spool.CategoryUnknown, Status: 500},
		"unknown_thing":         {Category: spool.CategoryUnknown, Status: 500},
		"":                      {Category: spool.CategoryUnknown, Status: 500},
	} {
		if got := spool.InfoOf(code); got != want {
			t.Errorf("%q: %+v", code, got)
		}
	}
	if e := spool.ErrUnavailable.With("s", errors.New("x")); !e.Retryable() || e.Category() != spool.CategoryStore {
		t.Errorf("%+v", e)
	}
}

func TestErrorOf(t *testing.T) {
	for name, tt := range map[string]struct {
		chunk spool.Chunk
		want  *spool.RunError
	}{
		"text":      {&spool.TextDelta{Delta: "x"}, nil},
		"completed": {&spool.RunFinished{Outcome: spool.OutcomeCompleted}, nil},
		"limit":     {&spool.RunFinished{Outcome: spool.OutcomeLimit, Code: "max_tokens"}, nil},
		"failed": {&spool.RunFinished{Base: spool.Base{RunID: "r"}, Outcome: spool.OutcomeFailed, Error: "busy", Code: "provider_overloaded", Recoverable: true},
			&spool.RunError{Message: "busy", Code: "provider_overloaded", Retryable: true, RunID: "r"}},
		"shown": {&spool.ErrorChunk{Error: "hm", Code: "mine"}, &spool.RunError{Message: "hm", Code: "mine"}},
	} {
		got := spool.ErrorOf(tt.chunk)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	e := spool.ErrorOf(&spool.RunFinished{Outcome: spool.OutcomeFailed, Code: "unavailable"})
	if !errors.Is(fmt.Errorf("read: %w", e), spool.ErrUnavailable) || errors.Is(e, spool.ErrBusy) || e.Category() != spool.CategoryStore || e.Error() == "" {
		t.Errorf("%v", e)
	}
}
