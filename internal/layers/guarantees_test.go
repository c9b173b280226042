package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/guarantees.md and docs/stores.md name, in the last column of a table,
// exists.
func TestGuaranteesNameTheirTests(t *testing.T) {
	doc, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	stores, err := os.ReadFile("../../docs/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	var goTests, nodeTests strings.Builder
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		into := &nodeTests
		if strings.HasSuffix(path, ".go") {
			into = &goTests
		} else if !strings.HasSuffix(path, ".test.mjs") {
			return nil
		}
		text, err := os.ReadFile(path)
		into.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.Lines(string(doc) + string(stores)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-2], -1) {
			name := m[1]
			switch {
			case strings.HasPrefix(name, "Test"), strings.HasPrefix(name, "Fuzz"):
				name, group, _ := strings.Cut(name, "/")
				if !strings.Contains(goTests.String(), "func "+name+"(") || (group != "" && !strings.Contains(goTests.String(), `"`+group+`"`)) {
					t.Errorf("no test %s", m[1])
				}
				named++
			case strings.Contains(name, " "):
				if !strings.Contains(nodeTests.String(), name) {
					t.Errorf("no test %q", name)
				}
				named++
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d tests are named", named)
	}
}
