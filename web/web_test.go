package web_test

import (
	"io/fs"
	"regexp"
	"testing"

	"github.com/spool-run/spool/web"
)

// What index.html names must be in the build, or the page stays blank; and it is named
// relative to the page, which may be mounted under a prefix.
func TestPageIsWhole(t *testing.T) {
	index, err := fs.ReadFile(web.FS(), "index.html")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?:src|href)="\./(assets/[^"]+)"`).FindAllStringSubmatch(string(index), -1)
	if len(named) < 2 {
		t.Fatalf("index.html names %d assets, want a script and a style sheet", len(named))
	}
	for _, m := range named {
		if _, err := fs.Stat(web.FS(), m[1]); err != nil {
			t.Error(err)
		}
	}
}
