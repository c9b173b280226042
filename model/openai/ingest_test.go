package openai_test

import (
	"flag"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
)

var update = flag.Bool("update", false, "write the expected results of the corpus")

const corpus = "../modeltest/testdata/openai-chat"

func ingest(src io.Reader) iter.Seq2[model.Part, error] { return openai.Ingest(src, nil) }

func TestIngestCorpus(t *testing.T) {
	modeltest.Corpus(t, corpus, ingest, *update)
}

func TestIngestLimit(t *testing.T) {
	for _, in := range []string{
		`data: {"choices":[{"delta":{"content":"` + strings.Repeat("x", 200) + `"}}]}` + "\n\n",
		`{"choices":[{"message":{"content":"` + strings.Repeat("x", 200) + `"},"finish_reason":"stop"}]}`,
	} {
		parts, err := modeltest.Collect(openai.Ingest(strings.NewReader(in), &openai.IngestOptions{MaxLine: 100}))
		a, bad := modeltest.Fold(parts, err)
		if bad != nil || a.Error == nil || a.Error.Code != model.CodeProtocol || a.Error.Retryable {
			t.Errorf("%+v, %v", a, bad)
		}
	}
}

func TestIngestStops(t *testing.T) {
	modeltest.Leaves(t, corpus+"/openai-parallel-tools.sse", ingest)
}

func FuzzIngest(f *testing.F) { modeltest.Fuzz(f, corpus, ingest) }

// Two documents with the same title are two sources.
func TestIngestDocumentsOfOneTitle(t *testing.T) {
	in := ""
	for _, index := range []string{"0", "1", "1"} {
		in += `data: {"choices":[{"delta":{"citation":{"document_index":` + index + `,"document_title":"Tea","cited_text":"old"}}}]}` + "\n\n"
	}
	var got []int
	for part := range openai.Ingest(strings.NewReader(in+"data: [DONE]\n\n"), nil) {
		if s, ok := part.(model.Source); ok {
			got = append(got, *s.Document)
		}
	}
	if !slices.Equal(got, []int{0, 1}) {
		t.Errorf("the documents are %v", got)
	}
}

// A piece of arguments at an index that no call has is left out, unless the call before
// it lacks something: that may have changed its index.
func TestIngestStrayArguments(t *testing.T) {
	for pieces, want := range map[string]string{
		`{"q":1} lost`:  `{"q":1}`,
		`{"q": 1}`:      `{"q":1}`,
		`{"q":1} `:      `{"q":1}`,
		`{} {"q":1}`:    `{"q":1}`,
		`{"q":1} 2 3 4`: `{"q":1}`,
	} {
		in := ""
		for i, piece := range strings.Split(pieces, " ") {
			head, name := "", ""
			if i == 0 {
				head, name = `"id":"c","type":"function",`, `"name":"ask",`
			}
			in += fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":%d,%s\"function\":{%s\"arguments\":%q}}]}}]}\n\n", i*7, head, name, piece)
		}
		in += `data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n"
		var got []string
		for part, err := range openai.Ingest(strings.NewReader(in), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := part.(model.ToolCallEnd); ok {
				got = append(got, c.Name+c.Arguments)
			}
		}
		if !slices.Equal(got, []string{"ask" + want}) {
			t.Errorf("%s: the calls are %q", pieces, got)
		}
	}
}
