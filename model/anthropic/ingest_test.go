package anthropic_test

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

// A consumer that leaves gets no more, and what comes after the end is not read:
// providers keep sockets open.
func TestIngestStops(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(corpus, "server-tool.sse"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := modeltest.Collect(ingest(io.MultiReader(bytes.NewReader(data), tripwire{t})))
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

type tripwire struct{ t *testing.T }

func (w tripwire) Read([]byte) (int, error) {
	w.t.Error("read after the end")
	return 0, io.EOF
}
