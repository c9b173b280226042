package openai_test

import (
	"bytes"
	"flag"
	"io"
	"iter"
	"os"
	"path/filepath"
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
	data, err := os.ReadFile(filepath.Join(corpus, "openai-parallel-tools.sse"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := modeltest.Collect(ingest(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	for stop := range all {
		n := 0
		for range ingest(bytes.NewReader(data)) {
			if n++; n > stop {
				break
			}
		}
		if n != stop+1 {
			t.Errorf("stopped after %d parts, not %d", n, stop+1)
		}
	}
}

// What comes after the end is not waited for: providers keep sockets open.
func TestIngestDoesNotReadOn(t *testing.T) {
	src := io.MultiReader(strings.NewReader("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n"), tripwire{t})
	if _, err := modeltest.Collect(ingest(src)); err != nil {
		t.Error(err)
	}
}

type tripwire struct{ t *testing.T }

func (w tripwire) Read([]byte) (int, error) {
	w.t.Error("read after the end")
	return 0, io.EOF
}

func FuzzIngest(f *testing.F) { modeltest.Fuzz(f, corpus, ingest) }
