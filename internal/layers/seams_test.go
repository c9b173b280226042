package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What executes runs takes its clock, its timers and its goroutines from its caller.
// [context.AfterFunc] is not a timer: it follows a context.
func TestEnginesHaveNoClock(t *testing.T) {
	own := map[string][]string{
		"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
		"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	}
	files := token.NewFileSet()
	for _, name := range []string{"agent", "engine"} {
		paths, err := filepath.Glob(filepath.Join("../..", name, "*.go"))
		if err != nil || len(paths) < 5 {
			t.Fatalf("%s: %d files, %v", name, len(paths), err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s: a goroutine of its own", files.Position(n.Pos()))
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && slices.Contains(own[x.Name], n.Sel.Name) {
						t.Errorf("%s: %s.%s", files.Position(n.Pos()), x.Name, n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}
