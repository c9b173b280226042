package openai_test

import (
	"flag"
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
