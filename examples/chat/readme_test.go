package main

import (
	"os"
	"strings"
	"testing"
)

// The README shows this program as it is, but for its imports.
func TestReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "type City")
	if want := "```go\ntype City" + body + "```"; !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not hold the example:\n%s", want)
	}
}
