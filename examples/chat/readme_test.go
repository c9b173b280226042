package main

import (
	"os"
	"strings"
	"testing"
)

// The README shows this program's main as it is.
func TestReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "func main() {")
	if want := "```go\nfunc main() {" + body + "```"; !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not hold the example's main:\n%s", want)
	}
}
