package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/native"
	"github.com/spool-run/spool/wire/wiretest"
)

// corpusLogs ingests every recorded provider stream into a log.
func corpusLogs(t *testing.T, visit func(t *testing.T, records []spool.Record, fold *spool.Fold, said *folded)) {
	for from, ingest := range ingesters {
		files, err := filepath.Glob(filepath.Join("../../model/modeltest/testdata", from, "*.sse"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 32<<10 {
				continue // the same to the wires, many times over
			}
			t.Run(from+"/"+filepath.Base(file), func(t *testing.T) {
				var lines bytes.Buffer
				out := bufio.NewWriter(&lines)
				if err := errors.Join(transcribe(t.Context(), out, ingest(bytes.NewReader(data), nil)), out.Flush()); err != nil {
					t.Fatal(err)
				}
				records, fold, err := readChunks(&lines)
				if err != nil {
					t.Fatal(err)
				}
				visit(t, records, fold, foldParts(ingest(bytes.NewReader(data), nil)))
			})
		}
	}
}

// Every chunk of an ingested stream is valid, and the log's message says what the
// provider said.
func TestCorpusInTheLog(t *testing.T) {
	corpusLogs(t, func(t *testing.T, records []spool.Record, fold *spool.Fold, said *folded) {
		for _, r := range records {
			c, err := spool.DecodeChunk(r.Data)
			if err == nil {
				err = spool.ValidateChunk(c)
			}
			if err != nil {
				t.Errorf("%s: %v", r.Data, err)
			}
		}
		m := fold.Message("message-1")
		var reasoning strings.Builder
		calls, sources, files := 0, 0, 0
		for _, p := range m.Parts {
			switch p.Type {
			case spool.PartReasoning:
				reasoning.WriteString(p.Text)
			case spool.PartTool:
				calls++
			case spool.PartSource:
				sources++
			case spool.PartFile:
				files++
			}
		}
		if m.Text() != said.Text || reasoning.String() != said.Reasoning || calls != len(said.ToolCalls) || sources != len(said.Sources) || files != len(said.Files) {
			t.Errorf("the log says %+v\nthe provider said %+v", m.Parts, said)
		}
		if said.Usage != nil && said.Status == "complete" && fold.Usage != *said.Usage {
			t.Errorf("usage %+v, not %+v", fold.Usage, *said.Usage)
		}
	})
}

// Whoever attaches to an ingested stream anywhere, on any wire, ends with the same
// message.
func TestCorpusOnTheWires(t *testing.T) {
	wires := map[string]wiretest.Wire{
		"native": {NoPlan: true, New: func(*spool.Turn) spool.Projector { return native.New(native.Bare) }, Fold: func(stream []byte) (json.RawMessage, error) {
			r := native.NewReader(bytes.NewReader(stream))
			chunks := []json.RawMessage{}
			for {
				m, err := r.Next()
				if err != nil {
					if err == io.EOF {
						err = nil
					}
					all, _ := json.Marshal(chunks)
					return all, err
				}
				chunks = append(chunks, m.Chunk)
			}
		}},
		"aisdk": {PerTurn: true, New: func(turn *spool.Turn) spool.Projector { return aisdk.NewProjector(turn.ID, nil) }, Fold: func(stream []byte) (json.RawMessage, error) {
			var c aisdk.Client
			if err := c.Write(stream); err != nil {
				return nil, err
			}
			return json.Marshal(c.Message)
		}},
		"merlin": {PerTurn: true, New: func(turn *spool.Turn) spool.Projector { return merlin.NewProjector(turn.ID, nil) }, Fold: func(stream []byte) (json.RawMessage, error) {
			r := merlin.NewReader(bytes.NewReader(stream))
			var c merlin.Client
			for {
				e, err := r.Next()
				if err == io.EOF {
					c.Ended = false
					return json.Marshal(c)
				}
				if err != nil {
					return nil, err
				}
				c.Apply(e)
			}
		}},
	}
	corpusLogs(t, func(t *testing.T, records []spool.Record, _ *spool.Fold, _ *folded) {
		for name, w := range wires {
			w.Log, w.OnlyLog = records, true
			t.Run(name, func(t *testing.T) { wiretest.Run(t, w) })
		}
	})
}

// What is folded is the same however the input is split.
func TestFoldDoesNotDependOnSplits(t *testing.T) {
	for from, ingest := range ingesters {
		files, _ := filepath.Glob(filepath.Join("../../model/modeltest/testdata", from, "*.*"))
		for _, file := range files {
			if strings.HasSuffix(file, ".json") {
				continue
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := json.Marshal(foldParts(ingest(bytes.NewReader(data), nil)))
			got, _ := json.Marshal(foldParts(ingest(modeltest.Pieces(data, 1), nil)))
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %s\nwhole: %s", file, got, want)
			}
		}
	}
}
