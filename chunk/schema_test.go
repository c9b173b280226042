package chunk

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

var update = flag.Bool("update", false, "write schema/chunk.schema.json")

const schemaFile = "schema/chunk.schema.json"

// schemaMaker makes a schema from Go types and their comments.
type schemaMaker struct {
	defs   map[string]*jsonschema.Schema
	types  map[string]string // struct: comment
	fields map[string]string // struct.Field: comment
}

func makeSchema(t *testing.T) []byte {
	t.Helper()
	m := schemaMaker{defs: map[string]*jsonschema.Schema{}, types: map[string]string{}, fields: map[string]string{}}
	m.comments(t, "chunk.go", "chunk_content.go", "chunk_run.go", "chunk_command.go", "message.go", "codec_parse.go")
	root := &jsonschema.Schema{
		ID:          "https://spool.run/schema/chunk.schema.json",
		Schema:      "https://json-schema.org/draft/2020-12/schema",
		Title:       "Chunk",
		Description: "One typed event of a session, as its log stores it. Readers tolerate other types and further fields.",
		Defs:        m.defs,
	}
	for _, typ := range Types() {
		m.chunk(typ)
		root.OneOf = append(root.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + string(typ)})
	}
	m.control()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (m schemaMaker) comments(t *testing.T, files ...string) {
	t.Helper()
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				return true
			}
			spec := decl.Specs[0].(*ast.TypeSpec)
			m.types[spec.Name.Name] = oneLine(decl.Doc.Text())
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						m.fields[spec.Name.Name+"."+name.Name] = oneLine(f.Doc.Text() + f.Comment.Text())
					}
				}
			}
			return true
		})
	}
}

func oneLine(s string) string {
	s = strings.NewReplacer("[", "", "]", "").Replace(s)
	return strings.Join(strings.Fields(s), " ")
}

func (m schemaMaker) chunk(typ Type) {
	k := kinds[typ]
	name := any(string(typ))
	s := m.object(reflect.TypeOf(k.new()).Elem())
	s.Properties["type"] = &jsonschema.Schema{Const: &name}
	s.PropertyOrder = append([]string{"type"}, s.PropertyOrder...)
	s.Required = append([]string{"type", "agentId", "timestamp"}, k.required()...)
	m.defs[string(typ)] = s
}

// control adds the control message that is not a chunk, and what a stream of messages
// consists of.
func (m schemaMaker) control() {
	name := any(TypeStreamEnd)
	s := m.object(reflect.TypeFor[StreamEnd]())
	s.Properties["type"] = &jsonschema.Schema{Const: &name}
	s.PropertyOrder = append([]string{"type"}, s.PropertyOrder...)
	s.Required = []string{"type", "streamId", "timestamp"}
	m.defs[TypeStreamEnd] = s
	m.defs["StreamMessage"] = &jsonschema.Schema{Description: m.types["StreamMessage"],
		OneOf: []*jsonschema.Schema{{Ref: "#"}, {Ref: "#/$defs/" + TypeStreamEnd}}}
}

func (m schemaMaker) object(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Description: m.types[t.Name()], Properties: map[string]*jsonschema.Schema{}}
	m.properties(s, t)
	return s
}

func (m schemaMaker) properties(s *jsonschema.Schema, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			m.properties(s, f.Type)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		optional := strings.Contains(options, "omitempty")
		p := m.value(f.Type, optional)
		p.Description = m.fields[t.Name()+"."+f.Name]
		if values := enumOf(t.Name()+"."+name, f.Type); values != nil {
			p.Enum = values
		} else if p.Type == "string" && strings.HasSuffix(name, "Id") {
			p.MaxLength = new(MaxIDBytes)
		}
		if name == "percent" {
			p.Minimum, p.Maximum = new(0.0), new(100.0)
		}
		s.Properties[name] = p
		s.PropertyOrder = append(s.PropertyOrder, name)
		if !optional && t.Name() != "Base" && !isKind(t.Name()) {
			s.Required = append(s.Required, name)
		}
	}
}

// isKind reports whether the struct of this name is a chunk's.
func isKind(name string) bool {
	return slices.ContainsFunc(table, func(k *kind) bool { return k.name == name })
}

func (m schemaMaker) value(t reflect.Type, optional bool) *jsonschema.Schema {
	if t == reflect.TypeFor[json.RawMessage]() {
		return &jsonschema.Schema{} // anything
	}
	switch t.Kind() {
	case reflect.String:
		return &jsonschema.Schema{Type: "string"}
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &jsonschema.Schema{Type: "integer"}
	case reflect.Uint64:
		return &jsonschema.Schema{Type: "integer", Minimum: new(0.0)}
	case reflect.Float64:
		return &jsonschema.Schema{Type: "number"}
	case reflect.Slice:
		s := &jsonschema.Schema{Type: "array", Items: m.value(t.Elem(), true)}
		if !optional {
			s.Type, s.Types = "", []string{"array", "null"}
		}
		return s
	case reflect.Pointer:
		s := m.value(t.Elem(), true)
		if !optional {
			s.Type, s.Types = "", []string{s.Type, "null"}
		}
		return s
	case reflect.Struct:
		if m.defs[t.Name()] == nil {
			m.defs[t.Name()] = &jsonschema.Schema{} // it may refer to itself
			m.defs[t.Name()] = m.object(t)
		}
		return &jsonschema.Schema{Ref: "#/$defs/" + t.Name()}
	}
	panic("no schema for " + t.String())
}

func enumOf(field string, t reflect.Type) []any {
	switch t {
	case reflect.TypeFor[Outcome]():
		return anys(outcomes)
	case reflect.TypeFor[WhenBusy]():
		return anys(whenBusy)
	case reflect.TypeFor[Role]():
		return anys(roles)
	case reflect.TypeFor[PartType]():
		return anys(partTypes)
	case reflect.TypeFor[ToolState]():
		return anys(toolStates)
	}
	switch field {
	case "AssistantMessage.finishReason", "RunFinished.finishReason":
		return anys(finishReasons)
	case "RunSuspended.kind":
		return anys(suspendKinds)
	case "StreamResync.reason":
		return anys(resyncReasons)
	case "ResumeRequested.mode":
		return anys(resumeRequests)
	case "RunResumed.mode":
		return anys(resumeModes)
	case "SubAgentStart.mode":
		return []any{ChildBlocking, ChildBackground}
	case "Progress.state":
		return anys(progressState)
	case "HistoryRewound.trigger":
		return anys(triggers)
	case "PatchOperation.op":
		return anys(patchOps)
	}
	return nil
}

func anys[T ~string](values []T) []any {
	var list []any
	for _, v := range values {
		list = append(list, string(v))
	}
	return list
}

func TestSchemaIsCurrent(t *testing.T) {
	t.Parallel()
	want := makeSchema(t)
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(Schema(), want) {
		t.Errorf("%s is not what the types say; go test -run TestSchemaIsCurrent -update . writes it", schemaFile)
	}
}

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestChunksMatchTheSchema(t *testing.T) {
	t.Parallel()
	schema := resolvedSchema(t)
	check := func(c Chunk) error {
		data, err := Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	for _, c := range sampleChunks() {
		if err := check(c); err != nil {
			t.Errorf("%s: %v", c.ChunkType(), err)
		}
	}
	for _, c := range []Chunk{&RunInterrupted{}, &RunResumed{Mode: "continue"}, &AssistantMessage{MessageID: "m"}, &ToolStart{}, &HistoryReplaced{}} {
		if err := check(c); err != nil {
			t.Errorf("%s without optional values: %v", c.ChunkType(), err)
		}
	}
	for _, c := range []Chunk{
		&RunFinished{Outcome: "done", FinishReason: "stop"}, &StreamResync{Reason: "odd"}, &Progress{Percent: new(101.0)},
		&StatePatch{Patches: []PatchOperation{{Op: "put"}}}, &TextDelta{Base: Base{AgentID: strings.Repeat("x", MaxIDBytes+1)}},
	} {
		if err := check(c); err == nil {
			t.Errorf("the schema accepts %#v", c)
		}
	}
	for _, in := range []string{`{}`, `[]`, `{"type":"later","agentId":"s","timestamp":1}`, `{"type":"text_delta","agentId":"s","timestamp":1}`, `{"type":"text_delta","agentId":"s","timestamp":1,"delta":5}`} {
		var v any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		if schema.Validate(v) == nil {
			t.Errorf("the schema accepts %s", in)
		}
	}
}

func TestSchemaNamesEveryType(t *testing.T) {
	t.Parallel()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, one := range s.OneOf {
		refs = append(refs, strings.TrimPrefix(one.Ref, "#/$defs/"))
	}
	for _, typ := range Types() {
		if !slices.Contains(refs, string(typ)) || s.Defs[string(typ)] == nil || s.Defs[string(typ)].Description == "" {
			t.Errorf("%s is not in the schema, or not described", typ)
		}
	}
	if got := Schema(); len(got) > 0 {
		got[0] = '#'
		if Schema()[0] == '#' {
			t.Error("Schema returns what it keeps")
		}
	}
}
