package anthropic_test

import (
	"flag"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/modeltest"
)

var update = flag.Bool("update", false, "write the expected results of the corpus")

const corpus = "../modeltest/testdata/anthropic"

func ingest(src io.Reader) iter.Seq2[model.Part, error] { return anthropic.Ingest(src, nil) }

func TestIngestCorpus(t *testing.T) {
	modeltest.Corpus(t, corpus, ingest, *update)
}

func FuzzIngest(f *testing.F) { modeltest.Fuzz(f, corpus, ingest) }

func TestIngestLimit(t *testing.T) {
	in := "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" + strings.Repeat("x", 200) + "\"}}\n\n"
	a, bad := modeltest.Fold(modeltest.Collect(anthropic.Ingest(strings.NewReader(in), &anthropic.IngestOptions{MaxLine: 100})))
	if bad != nil || a.Error == nil || a.Error.Code != model.CodeProtocol || a.Error.Retryable {
		t.Errorf("%+v, %v", a, bad)
	}
}

func TestIngestStops(t *testing.T) {
	modeltest.Leaves(t, corpus+"/server-tool.sse", ingest)
}

// A citation of a document of the request says which one it is.
func TestIngestDocumentIndex(t *testing.T) {
	in := `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"old","document_index":2,"document_title":"Tea"}}}

data: {"type":"message_stop"}

`
	for part := range anthropic.Ingest(strings.NewReader(in), nil) {
		if s, ok := part.(model.Source); ok {
			if s.Document == nil || *s.Document != 2 || s.Title != "Tea" || s.CitedText != "old" {
				t.Errorf("%+v", s)
			}
			return
		}
	}
	t.Error("there is no source")
}
