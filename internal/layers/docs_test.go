package layers

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the examples of a document take for granted: names that a reader has, and
// what a fragment is a part of.
var given = map[string]struct {
	names string
	of    map[string]string
}{
	"README.md": {},
	"docs/agents.md": {
		names: `
			var lookUp, refund, search tool.Tool
			var small, large model.Model
			var logs *spool.Logs
			var everywhere *agent.Hooks
			var audit func(agent.HookContext, *agent.ToolCall) error
			var researcher, critic *agent.Agent
			type State struct{ Calls int }`,
		of: map[string]string{"Companions:": "agent.Agent", "BeforeTool:": "agent.Hooks"},
	},
	"docs/client.md": {names: `
			var ctx context.Context
			var token, run string
			var c *client.Client
			var s *client.Session`},
	"docs/library.md": {names: `var store spool.Store`},
	"docs/merlin.md": {names: `
			var ctx tool.Context
			var w http.ResponseWriter
			var res *http.Response
			var chunks, agent iter.Seq2[chunk.Chunk, error]`},
	"docs/use-chat.md": {names: `var logs *spool.Logs`},
	"docs/writing-a-store.md": {names: `
			var mystore struct{ Open func(string) (*sqlitestore.Store, error) }
			var emptyPlace func(testing.TB) string
			var open func(testing.TB) spool.Store`},
	"docs/writing-a-wire.md": {names: `
			var mywire struct{ Profile func() wire.Profile }`},
}

var packages = []string{
	"context", "crypto/hmac", "crypto/sha256", "encoding/base64", "encoding/json", "errors", "fmt", "io", "iter", "log", "net/http", "os", "strings", "testing", "time", "unicode/utf8",
	"github.com/spool-run/spool", "github.com/spool-run/spool/agent", "github.com/spool-run/spool/chunk", "github.com/spool-run/spool/client", "github.com/spool-run/spool/fold", "github.com/spool-run/spool/model",
	"github.com/spool-run/spool/model/openai", "github.com/spool-run/spool/runner", "github.com/spool-run/spool/server", "github.com/spool-run/spool/server/frontend", "github.com/spool-run/spool/server/wires",
	"github.com/spool-run/spool/store/sqlitestore", "github.com/spool-run/spool/store/storetest",
	"github.com/spool-run/spool/stream", "github.com/spool-run/spool/stream/redisstream", "github.com/spool-run/spool/tool", "github.com/spool-run/spool/web",
	"github.com/spool-run/spool/wire", "github.com/spool-run/spool/wire/aisdk", "github.com/spool-run/spool/wire/merlin", "github.com/spool-run/spool/wire/wiretest",
}

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// The Go code in the documents compiles.
func TestCodeInDocs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	compiled := importsOf(t)
	for _, file := range append(files, "../../README.md") {
		name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		have := given[name]
		for n, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(block[1], "package main\n") {
				continue // TestQuickstart builds and runs it
			}
			if err := check(compiled, have.names, have.of, block[1]); err != nil {
				t.Errorf("%s, example %d: %v\n%s", name, n+1, err, block[1])
			}
		}
	}
}

// check compiles an example: declarations, statements, or fields of what `of` says.
func check(compiled types.Importer, names string, of map[string]string, code string) error {
	code = strings.NewReplacer("{ … }", `{ panic("") }`, ": …", ": nil").Replace(code)
	for field, whole := range of {
		if strings.HasPrefix(code, field) {
			code = "var _ = " + whole + "{\n" + code + "}\n"
		}
	}
	source := "package p\n"
	for _, p := range packages {
		if base := p[strings.LastIndex(p, "/")+1:]; !regexp.MustCompile(`(?m)^\s*var .*\b` + base + `\b.* iter`).MatchString(names) {
			source += fmt.Sprintf("import %q\n", p)
		}
	}
	source += names + "\n"
	switch {
	case regexp.MustCompile(`(?m)^(func|type|var|import) `).MatchString(code):
	case strings.Contains(code, "\treturn err\n"):
		code = "func _() (err error) {\n" + code + "return nil\n}\n"
	default:
		code = "func _() {\n" + code + "}\n"
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, "", source+code, 0)
	if err != nil {
		return err
	}
	var wrong error
	c := types.Config{Importer: compiled, Error: func(err error) {
		if e := err.(types.Error); !e.Soft && wrong == nil { // soft: what is declared or imported and not used
			wrong = err
		}
	}}
	_, _ = c.Check("p", set, []*ast.File{parsed}, nil)
	return wrong
}

// importsOf makes an importer of what the packages were compiled into.
func importsOf(t *testing.T) types.Importer {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}
