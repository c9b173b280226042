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
