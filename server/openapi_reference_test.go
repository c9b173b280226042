package server_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
)

var update = flag.Bool("update", false, "write docs/http-reference.md from openapi.json")

// docs/http-reference.md is what openapi.json says.
func TestOpenAPIReference(t *testing.T) {
	t.Parallel()
	const file = "../docs/http-reference.md"
	want := described().markdown()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not up to date (%v): go test ./server -run OpenAPIReference -update", file, err)
	}
}

// Each route is explained in docs/http.md.
func TestOpenAPIIsExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	for path := range described().Paths {
		short := strings.Replace(strings.Replace(path, "/api/chat/{session}/", "…/", 1), "{call}", "{callId}", 1)
		short = strings.Replace(short, "{chat}", "{anything}", 1)
		if !strings.Contains(string(text), path) && !strings.Contains(string(text), short) {
			t.Errorf("docs/http.md does not have %s", path)
		}
	}
}

// markdown returns the reference for people.
func (d *document) markdown() string {
	var b strings.Builder
	b.WriteString(`# HTTP reference

Made from the OpenAPI document (` + "`server/openapi.json`, on a server `/openapi.json`" + `) by
` + "`go test ./server -run OpenAPIReference -update`" + `: change that document and not this page.
[HTTP](http.md) explains the routes.

- Each ` + "`GET`" + ` answers ` + "`HEAD`" + `, too: with the same headers and without a body.
- Paths are relative to where the server is mounted.
- Members and parameters marked * are required. A body can have further members, which are
  ignored. Later versions can add members to answers.
- An error has the body [Problem](#problem). [The codes](#error-codes) are stable.
`)
	for _, tag := range d.Tags {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", tag.Name, tag.Description)
		for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
			for _, method := range []string{"get", "post", "delete"} {
				if op := d.Paths[path][method]; op != nil && op.Tags[0] == tag.Name {
					op.markdown(&b, strings.ToUpper(method)+" "+path)
				}
			}
		}
	}
	b.WriteString("\n## Bodies\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		objectMarkdown(&b, name, d.Components.Schemas[name].(map[string]any))
	}
	d.codesMarkdown(&b)
	return b.String()
}

func (op *operation) markdown(b *strings.Builder, route string) {
	fmt.Fprintf(b, "\n### `%s`\n\n%s.%s\n", route, op.Summary, spaced(op.Description))
	if len(op.Parameters) > 0 {
		b.WriteString("\n| parameter | in | type | means |\n| --- | --- | --- | --- |\n")
		for _, p := range op.Parameters {
			fmt.Fprintf(b, "| `%s`%s | %s | %s | %s |\n", p.Name, star(p.Required), p.In, typeOf(p.Schema), p.Description)
		}
	}
	if in := op.RequestBody; in != nil {
		need := "optional"
		if in.Required {
			need = "required"
		}
		fmt.Fprintf(b, "\nBody (%s): %s.%s\n", need, contentOf(in.Content), spaced(in.Description))
	}
	b.WriteString("\n| status | body | |\n| --- | --- | --- |\n")
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		r := op.Responses[status]
		if status[0] > '3' {
			continue
		}
		headers := ""
		if names := slices.Sorted(maps.Keys(r.Headers)); len(names) > 0 {
			headers = " Headers: `" + strings.Join(names, "`, `") + "`."
		}
		fmt.Fprintf(b, "| %s | %s | %s%s |\n", status, cmp.Or(contentOf(r.Content), "none"), r.Description, headers)
	}
	byStatus := map[int][]string{}
	for _, code := range op.Codes {
		status := chunk.InfoOf(code).Status
		byStatus[status] = append(byStatus[status], code)
	}
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		r := op.Responses[strconv.Itoa(status)]
		fmt.Fprintf(b, "| %d | %s | `%s` |\n", status, contentOf(r.Content), strings.Join(byStatus[status], "`, `"))
	}
}

func objectMarkdown(b *strings.Builder, name string, s map[string]any) {
	fmt.Fprintf(b, "\n### %s\n", name)
	if text, _ := s["description"].(string); text != "" {
		fmt.Fprintf(b, "\n%s\n", text)
	}
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		fmt.Fprintf(b, "\nIt is %s.\n", typeOf(s))
		return
	}
	b.WriteString("\n| member | type | means |\n| --- | --- | --- |\n")
	required, _ := s["required"].([]any)
	for _, member := range slices.Sorted(maps.Keys(properties)) {
		p := properties[member].(map[string]any)
		text, _ := p["description"].(string)
		fmt.Fprintf(b, "| `%s`%s | %s | %s |\n", member, star(slices.Contains(required, any(member))), typeOf(p), text)
	}
}

func (d *document) codesMarkdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n## Error codes\n\nEach route can also answer `%s`.\n", strings.Join(d.Common, "`, `"))
	b.WriteString("\n| code | status | the same request may succeed later |\n| --- | --- | --- |\n")
	codes := slices.Clone(d.Common)
	for _, ops := range d.Paths {
		for _, op := range ops {
			codes = append(codes, op.Codes...)
		}
	}
	// Those that no route has, because they are about the request before there is one.
	codes = append(codes, "no_such_route", "method_not_allowed")
	slices.Sort(codes)
	for _, code := range slices.Compact(codes) {
		info := chunk.InfoOf(code)
		retry := "no"
		if info.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(b, "| `%s` | %d %s | %s |\n", code, info.Status, http.StatusText(info.Status), retry)
	}
}

func contentOf(content map[string]media) string {
	var list []string
	for _, typ := range slices.Sorted(maps.Keys(content)) {
		switch t := typeOf(content[typ].Schema); {
		case typ == "application/json" && t != "any":
			list = append(list, t)
		default:
			list = append(list, "`"+typ+"`")
		}
	}
	return strings.Join(list, " or ")
}

// typeOf returns a schema's type in a few words.
func typeOf(s map[string]any) string {
	if ref, ok := s["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	if values, ok := s["enum"].([]any); ok {
		var list []string
		for _, v := range values {
			if v != "" {
				list = append(list, fmt.Sprintf("`%v`", v))
			}
		}
		text := strings.Join(list, ", ")
		if v, ok := s["default"]; ok {
			text += fmt.Sprintf("; default `%v`", v)
		}
		return text
	}
	if options, ok := s["anyOf"].([]any); ok {
		var list []string
		for _, one := range options {
			list = append(list, typeOf(one.(map[string]any)))
		}
		return strings.Join(list, " or ")
	}
	switch t := s["type"].(type) {
	case string:
		return simpleType(t, s)
	case []any:
		var list []string
		for _, one := range t {
			list = append(list, simpleType(one.(string), s))
		}
		return strings.Join(list, " or ")
	}
	return "any"
}

func simpleType(t string, s map[string]any) string {
	properties, _ := s["properties"].(map[string]any)
	switch {
	case t == "array":
		items, _ := s["items"].(map[string]any)
		return "list of " + typeOf(items)
	case t == "object" && len(properties) > 0:
		return "object: `" + strings.Join(slices.Sorted(maps.Keys(properties)), "`, `") + "`"
	case s["default"] != nil:
		return fmt.Sprintf("%s; default `%v`", t, s["default"])
	}
	return t
}

func star(required bool) string {
	if required {
		return "*"
	}
	return ""
}

func spaced(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}
