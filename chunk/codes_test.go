package chunk_test

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
	"github.com/spool-run/spool/chunk"
)

// Every code that the module's source gives to an error is in the table, and of
// the table's category.
func TestEveryCodeIsInTheTable(t *testing.T) {
	found := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "bench" || strings.HasPrefix(d.Name(), ".") && path != ".."):
			return filepath.SkipDir
		case d.IsDir(), !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), strings.HasPrefix(path, "../wire/wiretest"):
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
		info := chunk.InfoOf(code)
		if info.Category == chunk.CategoryUnknown {
			t.Errorf("%s: the code %q is not in the table", path, code)
		}
		for _, c := range []chunk.Category{chunk.CategoryProvider, chunk.CategoryTool, chunk.CategoryAgent, chunk.CategoryCursor} {
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
	for code, want := range map[string]chunk.CodeInfo{
		"provider_rate_limited": {Category: chunk.CategoryProvider, Status: 429, Retryable: true},
		"provider_new":          {Category: chunk.CategoryProvider, Status: 500},
		"tool_execution_failed": {Category: chunk.CategoryTool, Status: 500},
		"busy":                  {Category: chunk.CategorySession, Status: 409, Retryable: true},
		"unheard_of":            {Category: chunk.CategoryUnknown, Status: 500},
		"unknown_thing":         {Category: chunk.CategoryUnknown, Status: 500},
		"":                      {Category: chunk.CategoryUnknown, Status: 500},
	} {
		if got := chunk.InfoOf(code); got != want {
			t.Errorf("%q: %+v", code, got)
		}
	}
	if e := spool.ErrUnavailable.With("s", errors.New("x")); !e.Retryable() || e.Category() != chunk.CategoryStore {
		t.Errorf("%+v", e)
	}
}

func TestErrorOf(t *testing.T) {
	for name, tt := range map[string]struct {
		chunk chunk.Chunk
		want  *chunk.RunError
	}{
		"text":      {&chunk.TextDelta{Delta: "x"}, nil},
		"completed": {&chunk.RunFinished{Outcome: chunk.OutcomeCompleted}, nil},
		"limit":     {&chunk.RunFinished{Outcome: chunk.OutcomeLimit, Code: "max_tokens"}, nil},
		"failed": {&chunk.RunFinished{Base: chunk.Base{RunID: "r"}, Outcome: chunk.OutcomeFailed, Error: "busy", Code: "provider_overloaded", Recoverable: true},
			&chunk.RunError{Message: "busy", Code: "provider_overloaded", Retryable: true, RunID: "r"}},
		"shown": {&chunk.ErrorChunk{Error: "hm", Code: "mine"}, &chunk.RunError{Message: "hm", Code: "mine"}},
	} {
		got := chunk.ErrorOf(tt.chunk)
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	e := chunk.ErrorOf(&chunk.RunFinished{Outcome: chunk.OutcomeFailed, Code: "unavailable"})
	if !errors.Is(fmt.Errorf("read: %w", e), spool.ErrUnavailable) || errors.Is(e, spool.ErrBusy) || e.Category() != chunk.CategoryStore || e.Error() == "" {
		t.Errorf("%v", e)
	}
}
