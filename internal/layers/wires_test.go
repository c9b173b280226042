package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A wire is its package and a line in the list of wires: no other file of a server
// or a program knows one, but for those of the AI SDK's own request bodies and
// snapshots.
func TestWiresAreListedInOnePlace(t *testing.T) {
	listed := false
	for _, root := range []string{"server", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			for _, i := range file.Imports {
				if !strings.HasPrefix(strings.Trim(i.Path.Value, `"`), module+"/wire/") {
					continue
				}
				switch {
				case name == "server/wires/wires.go":
					listed = true
				case !strings.HasPrefix(name, "server/frontend/"):
					t.Errorf("%s imports %s: wires are listed in server/wires/wires.go", name, i.Path.Value)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !listed {
		t.Error("server/wires/wires.go lists no wire: this test looks in the wrong place")
	}
}
