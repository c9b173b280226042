package openai_test

import (
	"io"
	"iter"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
)

const responsesCorpus = "../modeltest/testdata/openai-responses"

func ingestResponses(src io.Reader) iter.Seq2[model.Part, error] {
	return openai.IngestResponses(src, nil)
}

func TestIngestResponsesCorpus(t *testing.T) {
	modeltest.Corpus(t, responsesCorpus, ingestResponses, *update)
}

func FuzzIngestResponses(f *testing.F) { modeltest.Fuzz(f, responsesCorpus, ingestResponses) }
