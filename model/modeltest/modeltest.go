// Package modeltest checks that provider streams are taken apart correctly: with
// the same result however the bytes arrive, and never passing off half an answer
// as a whole one.
package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/model"
)

// Ingest takes a provider's bytes apart.
type Ingest func(src io.Reader) iter.Seq2[model.Part, error]

// Answer is a stream folded into what it says.
type Answer struct {
	Blocks []Block      `json:"blocks"`
	Usage  *chunk.Usage `json:"usage,omitempty"`
	Finish string       `json:"finish,omitempty"`
	Raw    string       `json:"raw,omitempty"`
	Error  *Failure     `json:"error,omitempty"`
}

// Block is a piece of an answer, in the order of its first part.
type Block struct {
	Type     string          `json:"type"` // text, reasoning, tool, source, file
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name,omitempty"`
	Text     string          `json:"text,omitempty"` // a tool's arguments; a source's or file's URL
	Metadata json.RawMessage `json:"metadata,omitempty"`

	Quote string `json:"quote,omitempty"` // what a source is cited for

	ProviderExecuted bool            `json:"providerExecuted,omitempty"` // and below what came of it
	Result           json.RawMessage `json:"result,omitempty"`
	Error            string          `json:"error,omitempty"`
}

// Failure is the error that ended a stream.
type Failure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable,omitempty"`
	Finish    string `json:"finish,omitempty"` // the raw reason that came before it
}

// Collect reads a stream to its end.
func Collect(seq iter.Seq2[model.Part, error]) (parts []model.Part, err error) {
	for p, e := range seq {
		if err != nil {
			return parts, fmt.Errorf("a part after the error %w", err)
		}
		if e != nil {
			err = e
			continue
		}
		parts = append(parts, p)
	}
	return parts, err
}

// Corpus feeds every *.sse and *.body file of dir to ingest and compares the
// result with the .json beside it, which update writes instead. Each is read
// whole, split everywhere and cut everywhere.
func Corpus(t *testing.T, dir string, ingest Ingest, update bool) {
	for file, data := range Streams(t, dir, "*.*") {
		ext := filepath.Ext(file)
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			got, err := Fold(Collect(ingest(bytes.NewReader(data))))
			if err != nil {
				t.Error(err)
			}
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			if err := enc.Encode(got); err != nil {
				t.Fatal(err)
			}
			expected := strings.TrimSuffix(file, ext) + ".json"
			if update {
				if err := os.WriteFile(expected, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(expected)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b.Bytes(), want) {
				t.Errorf("got %s\nwant %s", b.Bytes(), want)
			}
			Splits(t, data, ingest)
			Cuts(t, data, ingest)
		})
	}
}

// Streams reads the recorded streams in dir whose names match the pattern. A
// folder without any fails the test.
func Streams(t testing.TB, dir, pattern string) iter.Seq2[string, []byte] {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	files = slices.DeleteFunc(files, func(file string) bool { return filepath.Ext(file) == ".json" }) // what they say
	if err != nil || len(files) == 0 {
		t.Fatalf("streams in %s: %v, %v", dir, files, err)
	}
	return func(yield func(string, []byte) bool) {
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !yield(file, data) {
				return
			}
		}
	}
}

// Leaves checks that a consumer that stops gets no more parts, and that nothing is read
// after the answer's end: providers keep connections open.
func Leaves(t *testing.T, file string, ingest Ingest) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Collect(ingest(io.MultiReader(bytes.NewReader(data), tripwire{t})))
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

// Fuzz fuzzes ingest, beginning with the corpus in dir. It checks that the parts keep
// the contract and do not depend on how the bytes arrive.
func Fuzz(f *testing.F, dir string, ingest Ingest) {
	for _, data := range Streams(f, dir, "*.*") {
		if len(data) < 4096 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Fold(Collect(ingest(bytes.NewReader(data)))); err != nil {
			t.Error(err)
		}
		want := read(data, ingest)
		want.same(t, ingest, "byte by byte", iotest.OneByteReader(bytes.NewReader(data)))
		want.same(t, ingest, "random pieces", &pieces{data, rand.New(rand.NewPCG(uint64(len(data)), 1))})
	})
}

// Splits checks that the parts do not depend on how the bytes arrive. With the race
// detector it splits a stream at fewer places.
func Splits(t testing.TB, data []byte, ingest Ingest) {
	t.Helper()
	want := read(data, ingest)
	want.same(t, ingest, "byte by byte", iotest.OneByteReader(bytes.NewReader(data)))
	want.same(t, ingest, "halves", iotest.HalfReader(bytes.NewReader(data)))
	want.same(t, ingest, "the end beside data", iotest.DataErrReader(bytes.NewReader(data)))
	rnd := rand.New(rand.NewPCG(uint64(len(data)), 1))
	for range 8 {
		want.same(t, ingest, "random pieces", &pieces{data, rnd})
	}
	for i := 1; i < len(data); i += stride(data, 1<<17/matrix.Stride(t, 32)) { // byte by byte, it was split everywhere
		want.same(t, ingest, fmt.Sprintf("split at %d", i), io.MultiReader(bytes.NewReader(data[:i]), bytes.NewReader(data[i:])))
	}
}

// stride returns the distance of the positions at which a stream is split or cut. It is
// 1 if reading the stream for each of them stays within the budget of bytes, and more
// for a long stream, to save time.
func stride(data []byte, budget int) int {
	tries := max(16, budget/(1+len(data)))
	return 1 + len(data)/tries
}

// whole is what a stream says when it arrives in one piece.
type whole struct {
	parts []model.Part
	err   error
}

func read(data []byte, ingest Ingest) whole {
	parts, err := Collect(ingest(bytes.NewReader(data)))
	return whole{parts, err}
}

func (w whole) same(t testing.TB, ingest Ingest, how string, src io.Reader) {
	t.Helper()
	got, err := Collect(ingest(src))
	w.equals(t, how, got, err)
}

func (w whole) equals(t testing.TB, how string, got []model.Part, err error) {
	t.Helper()
	if !reflect.DeepEqual(got, w.parts) || fmt.Sprint(err) != fmt.Sprint(w.err) {
		t.Errorf("%s: %+v, %v\nwhole: %+v, %v", how, got, err, w.parts, w.err)
	}
}

// Pieces returns a reader that gives data in random pieces, the same for each seed.
func Pieces(data []byte, seed uint64) io.Reader {
	return &pieces{data, rand.New(rand.NewPCG(uint64(len(data)), seed))}
}

type pieces struct {
	rest []byte
	rnd  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.rnd.IntN(40))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Cuts checks that no beginning of a stream passes for a complete answer. Wherever it
// is cut, it ends in an error or says what the whole stream says. With the race detector
// it is cut at fewer places.
func Cuts(t testing.TB, data []byte, ingest Ingest) {
	t.Helper()
	whole, err := Fold(Collect(ingest(bytes.NewReader(data))))
	if err != nil {
		t.Error(err)
	}
	for i := 0; i < len(data); i += stride(data, 3<<18/matrix.Stride(t, 32)) {
		got, err := Fold(Collect(ingest(bytes.NewReader(data[:i]))))
		if err != nil {
			t.Errorf("cut at %d: %v", i, err)
		}
		if got.Error == nil && whole.Error == nil && !reflect.DeepEqual(got.Blocks, whole.Blocks) {
			t.Errorf("cut at %d it passes for %+v\nwhole: %+v", i, got, whole)
			return
		}
	}
}
