package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/native"
	"github.com/spool-run/spool/wire/wiretest"
)

const corpus = "../../model/modeltest/testdata"

// corpusLogs ingests every recorded provider stream into a log.
func corpusLogs(t *testing.T, visit func(t *testing.T, records []chunk.Record, state *fold.Fold, said *folded)) {
	for from, ingest := range ingesters {
		for file, data := range modeltest.Streams(t, filepath.Join(corpus, from), "*.sse") {
			if len(data) > 32<<10 {
				continue // the same to the wires, many times over
			}
			t.Run(from+"/"+filepath.Base(file), func(t *testing.T) {
				var lines bytes.Buffer
				out := bufio.NewWriter(&lines)
				if err := errors.Join(transcribe(t.Context(), out, ingest(bytes.NewReader(data), nil)), out.Flush()); err != nil {
					t.Fatal(err)
				}
				var records []chunk.Record
				state := fold.New("ingest")
				if err := readChunks(&lines, func(r chunk.Record) error {
					records = append(records, r)
					return state.Apply(r)
				}); err != nil {
					t.Fatal(err)
				}
				visit(t, records, state, foldParts(ingest(bytes.NewReader(data), nil)))
			})
		}
	}
}

// Every chunk of an ingested stream is valid, and the log's message says what the
// provider said.
func TestCorpusInTheLog(t *testing.T) {
	corpusLogs(t, func(t *testing.T, records []chunk.Record, state *fold.Fold, said *folded) {
		for _, r := range records {
			c, err := chunk.Decode(r.Data)
			if err == nil {
				err = chunk.Validate(c)
			}
			if err != nil {
				t.Errorf("%s: %v", r.Data, err)
			}
		}
		m := state.Message("message-1")
		var reasoning strings.Builder
		calls, sources, files := 0, 0, 0
		for _, p := range m.Parts {
			switch p.Type {
			case chunk.PartReasoning:
				reasoning.WriteString(p.Text)
			case chunk.PartTool:
				calls++
			case chunk.PartSource:
				sources++
			case chunk.PartFile:
				files++
			}
		}
		if m.Text() != said.Text || reasoning.String() != said.Reasoning || calls != len(said.ToolCalls) || sources != len(said.Sources) || files != len(said.Files) {
			t.Errorf("the log says %+v\nthe provider said %+v", m.Parts, said)
		}
		if said.Usage != nil && said.Status == "complete" && state.Usage != *said.Usage {
			t.Errorf("usage %+v, not %+v", state.Usage, *said.Usage)
		}
	})
}

// A reader that attaches to an ingested stream anywhere, on any wire, ends with the same
// message.
func TestCorpusOnTheWires(t *testing.T) {
	clients := map[string]struct {
		wire, option string
		fold         func([]byte) (json.RawMessage, error)
	}{
		"native": {"native", "", foldNative}, "native lean": {"native", "framing=lean", foldNative}, "aisdk 6": {"aisdk", "ui=6", foldUI(false)}, "aisdk 7": {"aisdk", "ui=7", foldUI(true)},
		"merlin v1": {"merlin-v1", "", foldMerlin}, "merlin v2": {"merlin-v2", "", foldMerlin},
	}
	corpusLogs(t, func(t *testing.T, records []chunk.Record, _ *fold.Fold, _ *folded) {
		for name, c := range clients {
			w, _ := wires.Find(wires.List(wires.Options{}), c.wire)
			query, err := url.ParseQuery(c.option)
			if err != nil {
				t.Fatal(err)
			}
			profile, err := w.Profile(wire.Request{Query: query})
			if err != nil {
				t.Fatal(err)
			}
			t.Run(name, func(t *testing.T) {
				wiretest.Run(t, wiretest.Wire{Profile: profile, Fold: c.fold, Log: records, OnlyLog: true, Stride: matrix.Stride(t, 11)})
			})
		}
	})
}

func foldNative(stream []byte) (json.RawMessage, error) {
	r := native.NewReader(bytes.NewReader(stream))
	chunks := []json.RawMessage{}
	for {
		m, err := r.Next()
		if err == io.EOF {
			return json.Marshal(chunks)
		}
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, m.Chunk)
	}
}

func foldUI(ui7 bool) func(stream []byte) (json.RawMessage, error) {
	return func(stream []byte) (json.RawMessage, error) {
		c := aisdk.Client{UI7: ui7}
		if err := c.Write(stream); err != nil {
			return nil, err
		}
		return json.Marshal(c.Message)
	}
}

func foldMerlin(stream []byte) (json.RawMessage, error) {
	r := merlin.NewReader(bytes.NewReader(stream))
	var c merlin.Client
	for {
		e, err := r.Next()
		if err == io.EOF {
			c.Ended = false // the server knows whether the end still holds
			return json.Marshal(c)
		}
		if err != nil {
			return nil, err
		}
		c.Apply(e)
	}
}

// What Merlin's clients are shown is what the provider said.
func TestCorpusOnMerlin(t *testing.T) {
	corpusLogs(t, func(t *testing.T, records []chunk.Record, state *fold.Fold, said *folded) {
		for _, version := range []merlin.Version{merlin.V1, merlin.V2} {
			p := merlin.NewProjector(state.LastTurn().ID, &merlin.Options{Version: version})
			var frames []spool.Frame
			for _, r := range records {
				var err error
				if frames, err = p.Apply(frames, r); err != nil {
					t.Fatal(err)
				}
			}
			var stream []byte
			for _, f := range frames {
				if f.Cut {
					return // a provider that began again; attaching again is another test
				}
				stream = append(stream, f.Data...)
			}
			r, c := merlin.NewReader(bytes.NewReader(stream)), merlin.Client{}
			for {
				e, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				c.Apply(e)
			}
			text := c.Text()
			if version == merlin.V1 {
				text = markers.ReplaceAllString(text, "")
			}
			if text != said.Text || !c.Ended && state.OpenRun() == nil || (c.Error != nil) != (said.Error != nil) {
				t.Errorf("V%d: %q, ended %v, %v; the provider said %+v", version, text, c.Ended, c.Error, said)
			}
			if version == merlin.V1 {
				continue
			}
			reasoning, calls := "", map[string]string{}
			for _, b := range c.Blocks {
				reasoning += b.Reasoning
				for _, call := range b.Calls {
					calls[call.ID] = call.Function.Arguments
				}
			}
			if reasoning != said.Reasoning {
				t.Errorf("reasoning %q, not %q", reasoning, said.Reasoning)
			}
			for _, call := range said.ToolCalls {
				var want bytes.Buffer
				args := call.Arguments
				if args == "" {
					args = "{}"
				}
				if said.Status != "complete" {
					continue // it may never have been made
				}
				if json.Compact(&want, []byte(args)) != nil {
					want.Reset()
					want.WriteString(args)
				}
				if got := calls[call.ID]; got != want.String() && call.Name != "" {
					t.Errorf("call %s has arguments %s, not %s", call.ID, got, want.String())
				}
			}
		}
	})
}

var markers = regexp.MustCompile(`\[citation: \d+: \d+\]`)

// What is folded is the same however the input is split.
func TestFoldDoesNotDependOnSplits(t *testing.T) {
	for from, ingest := range ingesters {
		for file, data := range modeltest.Streams(t, filepath.Join(corpus, from), "*.*") {
			want, _ := json.Marshal(foldParts(ingest(bytes.NewReader(data), nil)))
			got, _ := json.Marshal(foldParts(ingest(modeltest.Pieces(data, 1), nil)))
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %s\nwhole: %s", file, got, want)
			}
		}
	}
}
