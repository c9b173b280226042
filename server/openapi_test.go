package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// document is the OpenAPI document, as far as the tests read it.
type document struct {
	Common     []string `json:"x-error-codes"`
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]*operation `json:"paths"`
	Components struct {
		Schemas    map[string]any        `json:"schemas"`
		Parameters map[string]*parameter `json:"parameters"`
		Headers    map[string]*parameter `json:"headers"`
		Responses  map[string]*response  `json:"responses"`
	} `json:"components"`
}

type operation struct {
	ID          string               `json:"operationId"`
	Tags        []string             `json:"tags"`
	Summary     string               `json:"summary"`
	Description string               `json:"description"`
	Parameters  []*parameter         `json:"parameters"`
	RequestBody *requestBody         `json:"requestBody"`
	Responses   map[string]*response `json:"responses"`
	Codes       []string             `json:"x-error-codes"`
}

type requestBody struct {
	Required    bool             `json:"required"`
	Description string           `json:"description"`
	Content     map[string]media `json:"content"`
}

type parameter struct {
	Ref         string         `json:"$ref"`
	Name        string         `json:"name"`
	In          string         `json:"in"`
	Description string         `json:"description"`
	Required    bool           `json:"required"`
	Schema      map[string]any `json:"schema"`
}

type response struct {
	Ref         string                `json:"$ref"`
	Description string                `json:"description"`
	Headers     map[string]*parameter `json:"headers"`
	Content     map[string]media      `json:"content"`
}

type media struct {
	Schema map[string]any `json:"schema"`
}

// described is the document with its references to parameters and responses resolved.
var described = sync.OnceValue(func() *document {
	d := new(document)
	if err := json.Unmarshal(server.OpenAPI(), d); err != nil {
		panic(err)
	}
	last := func(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }
	for _, path := range d.Paths {
		for _, op := range path {
			for i, p := range op.Parameters {
				if p.Ref != "" {
					op.Parameters[i] = d.Components.Parameters[last(p.Ref)]
				}
			}
			for status, r := range op.Responses {
				if r.Ref != "" {
					op.Responses[status] = d.Components.Responses[last(r.Ref)]
				}
			}
		}
	}
	return d
})

// schemas caches the schemas that the checks resolve.
var schemas sync.Map

// resolve makes a schema of the document ready for use. A closed one refuses members that
// the document does not have.
func (d *document) resolve(schema map[string]any, closed bool) (*jsonschema.Resolved, error) {
	key := fmt.Sprint(closed, schema)
	if have, ok := schemas.Load(key); ok {
		return have.(*jsonschema.Resolved), nil
	}
	whole := map[string]any{"$defs": d.Components.Schemas, "allOf": []any{schema}}
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	var copied any
	if err := json.Unmarshal(bytes.ReplaceAll(text, []byte("#/components/schemas/"), []byte("#/$defs/")), &copied); err != nil {
		return nil, err
	}
	if closed {
		closeObjects(copied)
	}
	if text, err = json.Marshal(copied); err != nil {
		return nil, err
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(nil)
	if err == nil {
		schemas.Store(key, resolved)
	}
	return resolved, err
}

func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["properties"].(map[string]any); ok && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range v {
			closeObjects(inner)
		}
	}
}

func (d *document) valid(m media, data []byte, closed bool) error {
	resolved, err := d.resolve(m.Schema, closed)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	return resolved.Validate(v)
}

// find returns the operation that a request is for, or nil.
func (d *document) find(method, path string) *operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	parts := strings.Split(path, "/")
	var found *operation
	fixed := -1
	for pattern, ops := range d.Paths {
		want := strings.Split(pattern, "/")
		same := len(want) == len(parts)
		n := 0
		for i := 0; same && i < len(want); i++ {
			if !strings.HasPrefix(want[i], "{") {
				same = want[i] == parts[i]
				n++
			}
		}
		if same && n > fixed {
			found, fixed = ops[strings.ToLower(method)], n
		}
	}
	return found
}

// exchange is a request and its answer.
type exchange struct {
	method, path string
	query        url.Values
	sent         []byte
	status       int
	header       http.Header
	body         []byte
}

// check compares an exchange with the document.
func (d *document) check(x exchange) error {
	op := d.find(x.method, x.path)
	if op == nil || x.status == http.StatusMethodNotAllowed {
		return nil // TestOpenAPIHasTheRoutes compares the routes
	}
	res := op.Responses[strconv.Itoa(x.status)]
	if res == nil && x.status >= http.StatusBadRequest {
		res = op.Responses["default"]
	}
	if res == nil {
		return fmt.Errorf("the status %d is not described", x.status)
	}
	for name := range x.header {
		known := slices.ContainsFunc(slices.Collect(maps.Keys(res.Headers)), func(h string) bool { return strings.EqualFold(h, name) })
		if own := strings.HasPrefix(name, "X-") && name != "X-Content-Type-Options" && name != "X-Accel-Buffering" || name == "Retry-After" || name == "Www-Authenticate"; own && !known {
			return fmt.Errorf("the header %s is not described for the status %d", name, x.status)
		}
	}
	typ, _, _ := mime.ParseMediaType(x.header.Get("Content-Type"))
	content, ok := res.Content[typ]
	if typ != "" && !ok {
		return fmt.Errorf("the content type %s is not described for the status %d", typ, x.status)
	}
	if typ == "application/json" && x.method != http.MethodHead && op.ID != "openapi" {
		if err := d.valid(content, x.body, true); err != nil {
			return fmt.Errorf("the answer %d: %w\n%.2000s", x.status, err, x.body)
		}
	}
	if x.status >= http.StatusBadRequest {
		return d.checkCode(op, x)
	}
	return d.checkRequest(op, x)
}

func (d *document) checkCode(op *operation, x exchange) error {
	code := x.header.Get("X-Spool-Error")
	if code == "" {
		var p server.Problem
		_ = json.Unmarshal(x.body, &p)
		code = p.Code
	}
	if x.method == http.MethodHead || slices.Contains(op.Codes, code) || slices.Contains(d.Common, code) || x.status == http.StatusInternalServerError {
		return nil
	}
	return fmt.Errorf("the error code %q is not described", code)
}

// checkRequest checks a request that was accepted.
func (d *document) checkRequest(op *operation, x exchange) error {
	for name := range x.query {
		if !slices.ContainsFunc(op.Parameters, func(p *parameter) bool { return p.In == "query" && p.Name == name }) {
			return fmt.Errorf("the parameter %s is not described", name)
		}
	}
	sent := bytes.TrimSpace(x.sent)
	if len(sent) == 0 {
		if op.RequestBody != nil && op.RequestBody.Required {
			return fmt.Errorf("a request without the required body was accepted")
		}
		return nil
	}
	if op.RequestBody == nil {
		return nil // a body that nobody reads
	}
	if _, lines := op.RequestBody.Content["application/jsonl"]; lines && !json.Valid(sent) {
		return nil
	}
	if err := d.valid(op.RequestBody.Content["application/json"], sent, false); err != nil {
		return fmt.Errorf("the accepted body: %w\n%.2000s", err, sent)
	}
	return nil
}

// tee keeps what a handler reads and writes.
type tee struct {
	http.ResponseWriter
	x *exchange
}

func (t *tee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Hijack hands on the connection, which net/http has. What is written to it is not checked.
func (t *tee) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(t.ResponseWriter).Hijack()
}

func (t *tee) WriteHeader(status int) {
	if t.x.status == 0 {
		t.x.status, t.x.header = status, t.Header().Clone()
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tee) Write(p []byte) (int, error) {
	if t.x.status == 0 {
		t.WriteHeader(http.StatusOK)
	}
	if strings.HasPrefix(t.x.header.Get("Content-Type"), "application/json") {
		t.x.body = append(t.x.body, p...)
	}
	return t.ResponseWriter.Write(p)
}

type teeBody struct {
	io.ReadCloser
	x *exchange
}

func (b teeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if len(b.x.sent) < 1<<20 {
		b.x.sent = append(b.x.sent, p[:n]...)
	}
	return n, err
}

// asDescribed checks every request to a server against the document: most tests of this
// package hold the document to the server.
func asDescribed(t testing.TB, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{method: r.Method, path: r.URL.EscapedPath(), query: r.URL.Query()}
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = teeBody{r.Body, x}
		}
		defer func() {
			// A request with a body that is larger than what is kept is not checked.
			if x.status == 0 || len(x.sent) >= 1<<20 && x.status < http.StatusBadRequest {
				return
			}
			if err := described().check(*x); err != nil {
				t.Errorf("openapi.json: %s %s: %v", x.method, r.URL, err)
			}
		}()
		h.ServeHTTP(&tee{w, x}, r)
	})
}

// The document has the server's routes, and no others.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	defer store.Close()
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	routes := map[string]bool{}
	server.New(logs, nil).Routes(func(pattern, method string, _ server.Action) { routes[method+" "+pattern] = true })
	ids := map[string]bool{}
	for path, ops := range described().Paths {
		for method, op := range ops {
			route := strings.ToUpper(method) + " " + path
			if !routes[route] {
				t.Errorf("openapi.json has %s, the server has not", route)
			}
			delete(routes, route)
			if op.ID == "" || ids[op.ID] || len(op.Tags) != 1 || op.Summary == "" {
				t.Errorf("%s: an operation needs an id of its own, a tag and a summary", route)
			}
			ids[op.ID] = true
		}
	}
	for route := range routes {
		t.Errorf("the server has %s, openapi.json has not: describe it, and run go test ./server -run OpenAPI -update", route)
	}
}

// Error codes are those of the table, under their statuses; path parameters are those of
// the path; schemas can be resolved.
func TestOpenAPIIsConsistent(t *testing.T) {
	t.Parallel()
	d := described()
	for path, ops := range d.Paths {
		for method, op := range ops {
			at := method + " " + path
			statuses := map[string]bool{}
			for _, code := range append(slices.Clone(op.Codes), d.Common...) {
				info := chunk.InfoOf(code)
				if info.Category == chunk.CategoryUnknown {
					t.Errorf("%s: there is no code %s", at, code)
				}
				if slices.Contains(op.Codes, code) {
					statuses[strconv.Itoa(info.Status)] = true
				}
			}
			for status := range statuses {
				if op.Responses[status] == nil {
					t.Errorf("%s: one of its codes has the status %s, which it does not have", at, status)
				}
			}
			for status, r := range op.Responses {
				if n, err := strconv.Atoi(status); err == nil && n >= http.StatusBadRequest && !statuses[status] {
					t.Errorf("%s: no code of it has the status %s", at, status)
				}
				for _, m := range r.Content {
					if _, err := d.resolve(m.Schema, false); err != nil {
						t.Errorf("%s %s: %v", at, status, err)
					}
				}
			}
			for _, p := range op.Parameters {
				if in := strings.Contains(path, "{"+p.Name+"}"); in != (p.In == "path") || in != p.Required {
					t.Errorf("%s: the parameter %s", at, p.Name)
				}
			}
			if strings.Count(path, "{") != len(slices.DeleteFunc(slices.Clone(op.Parameters), func(p *parameter) bool { return p.In != "path" })) {
				t.Errorf("%s: its path's parameters are not described", at)
			}
		}
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	if got := k.status(http.StatusOK, "GET", "/openapi.json", ""); !bytes.Equal(got, server.OpenAPI()) {
		t.Errorf("%.100s", got)
	}
}

// The check finds what it should.
func TestOpenAPICheckFinds(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string, header ...string) exchange {
		h := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return exchange{method: "GET", path: "/healthz", status: status, header: h, body: []byte(body)}
	}
	chat := exchange{method: "POST", path: "/api/chat/s", status: 200, sent: []byte(`{"whenBusy":"perhaps"}`), header: http.Header{"Content-Type": {"text/event-stream"}}}
	param := answer(200, `{"status":"ok"}`)
	param.query = url.Values{"deep": {"1"}}
	code := answer(409, `{"error":"e","code":"producer_gap"}`)
	code.path = "/api/chat/s/snapshot"
	for want, x := range map[string]exchange{
		"status 201":     answer(201, `{"status":"ok"}`),
		"additional":     answer(200, `{"status":"ok","more":1}`),
		"missing":        answer(200, `{}`),
		"X-More":         answer(200, `{"status":"ok"}`, "X-More", "1"),
		"text/plain":     answer(200, `ok`, "Content-Type", "text/plain"),
		"parameter deep": param,
		"producer_gap":   code,
		"accepted body":  chat,
	} {
		if err := described().check(x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := described().check(answer(200, `{"status":"ok"}`)); err != nil {
		t.Error(err)
	}
}
