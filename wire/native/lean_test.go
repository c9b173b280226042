package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/wiretest"
)

// written is a record as a store has it.
func written(t testing.TB, seq uint64, c chunk.Chunk) chunk.Record {
	data, err := chunk.Append(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	b := c.ChunkBase()
	return chunk.Record{Seq: seq, Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Data: data}
}

// datas are the data of the events that records become.
func datas(t testing.TB, f Framing, records []chunk.Record) (list []string) {
	p := NewProjector(wire.Subject{}, &Options{Framing: f})
	for _, r := range records {
		frames, err := p.Apply(nil, r)
		if err != nil || len(frames) != 1 {
			t.Fatalf("%d frames, %v", len(frames), err)
		}
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(string(frames[0].Data), dataOpen), dataClose))
	}
	return list
}

// same fails unless both framings are read as the same chunks with the same sequences.
func same(t testing.TB, records []chunk.Record) (bytesFull, bytesLean int) {
	t.Helper()
	full, lean := datas(t, Event, records), datas(t, Lean, records)
	var d Decoder
	for i, r := range records {
		m, err := d.Decode([]byte(lean[i]))
		if want := (Message{Kind: KindChunk, Seq: r.Seq, Chunk: r.Data}); err != nil || !reflect.DeepEqual(m, want) {
			t.Fatalf("%s is read as %d %s, %v; want %d %s", lean[i], m.Seq, m.Chunk, err, r.Seq, r.Data)
		}
		if again, err := Parse([]byte(full[i])); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%s is read as %+v, %v", full[i], again, err)
		}
		if len(lean[i]) > len(full[i]) {
			t.Errorf("%s is longer than %s", lean[i], full[i])
		}
		bytesFull, bytesLean = bytesFull+len(full[i]), bytesLean+len(lean[i])
	}
	return bytesFull, bytesLean
}

// mixed are records that differ in different members.
func mixed(t testing.TB) []chunk.Record {
	base := func(at int64, step int, run string) chunk.Base {
		return chunk.Base{AgentID: "s", AgentType: "a", Timestamp: 1763730000000 + at, Step: step, RunID: run}
	}
	return []chunk.Record{
		written(t, 7, &chunk.TextDelta{Base: base(0, 1, "r"), Delta: "a"}),
		written(t, 8, &chunk.TextDelta{Base: base(35, 1, "r"), Delta: "b\n\u2028\"", PartID: "p"}),
		written(t, 9, &chunk.TextDelta{Base: base(35, 1, "r"), Delta: "timestamp\":1"}),
		written(t, 12, &chunk.TextDelta{Base: base(34, 2, "r"), Delta: "d"}),
		written(t, 13, &chunk.ToolArgStreamDelta{Base: base(35, 2, "r"), ToolCallID: "c", Delta: "e"}),
		written(t, 14, &chunk.ToolArgStreamDelta{Base: base(36, 2, "r"), ToolCallID: "c", Delta: "f"}),
		written(t, 15, &chunk.ToolArgStreamDelta{Base: base(37, 2, "r"), ToolCallID: "d", Delta: "g"}),
		written(t, 16, &chunk.TextDelta{Base: base(38, 2, "r"), Delta: "h"}),
		written(t, 17, &chunk.RunResumed{Base: base(38, 0, "")}),
		{Seq: 18, Data: json.RawMessage(`{"type":"later","x":1}`)},
		written(t, 19, &chunk.TextDelta{Base: base(40, 1, "r"), Delta: "i"}),
		{Seq: 20, Data: json.RawMessage(`{"type":"x","agentId":"s","agentType":"a","timestamp":1763730000041,"step":1,"runId":"r"}`)},
		{Seq: 21, Data: json.RawMessage(`{"type":"x","agentId":"s","agentType":"a","timestamp":1763730000041,"step":1,"runId":"r","step":4}`)},
	}
}

// What a lean record is: what differs from the one before it.
func TestLean(t *testing.T) {
	t.Parallel()
	records := mixed(t)
	same(t, records)
	whole := func(i int) string {
		return fmt.Sprintf(`{"type":"chunk","chunk":%s,"sequence":%d}`, records[i].Data, records[i].Seq)
	}
	want := []string{
		whole(0),
		`[35,{"delta":"b\n\u2028\"","partId":"p"}]`,
		`[0,{"delta":"timestamp\":1"}]`,
		`[-1,3,{"step":2,"runId":"r","delta":"d"}]`,
		`[1,{"type":"tool_arg_stream_delta","toolCallId":"c","delta":"e"}]`,
		`[1,{"delta":"f"}]`,
		`[1,{"toolCallId":"d","delta":"g"}]`,
		whole(7), // it has no call, and to leave out a member means that it is the same
		strings.Replace(string(append([]byte(`[0,`), records[8].Data...)), `"agentId":"s","agentType":"a","timestamp":1763730000038,`, "", 1) + "]",
		whole(9), whole(10),
		`[1,{"type":"x"}]`,
		whole(12),
	}
	if got := datas(t, Lean, records); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The corpora are read in lean framing as in full framing, byte for byte, from any record
// on, and with records left out, as filters and trims leave them out.
func TestLeanIsExact(t *testing.T) {
	t.Parallel()
	for name, log := range map[string][]chunk.Record{"corpus": wiretest.Corpus(), "agents": wiretest.Agents(), "kept": wiretest.KeptOnly(wiretest.Corpus())} {
		for i := range log {
			same(t, log[i:min(i+3, len(log))])
		}
		full, lean := same(t, log)
		t.Logf("%s: %d bytes of data, lean %d", name, full, lean)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			var some []chunk.Record
			for _, r := range log {
				if rng.IntN(3) > 0 {
					some = append(some, r)
				}
			}
			same(t, some)
		}
	}
}

// A reader that is cut after any byte, and comes back with the id that it has, has every
// record once, as it was written.
func TestLeanCutAtEveryByte(t *testing.T) {
	t.Parallel()
	log := append(mixed(t), longAnswer(t, 20)[17:]...) // up to 21, and 22 to 24
	after := func(seq uint64) (stream []byte) {
		p := NewProjector(wire.Subject{}, &Options{Framing: Lean})
		for _, r := range log {
			if r.Seq > seq {
				frames, _ := p.Apply(nil, r)
				stream = append(spool.Cursor{Seq: r.Seq, Incarnation: 2}.AppendID(stream), frames[0].Data...)
			}
		}
		return stream
	}
	whole := after(0)
	for cut := range len(whole) + 1 {
		var got []chunk.Record
		var at spool.Cursor
		for _, stream := range [][]byte{whole[:cut], nil} {
			if stream == nil {
				stream = after(at.Seq)
			}
			r := NewReader(bytes.NewReader(stream))
			for {
				m, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("cut after %d bytes: %v", cut, err)
				}
				got, at = append(got, chunk.Record{Seq: m.Seq, Data: m.Chunk}), r.Cursor()
			}
		}
		for i := range max(len(got), len(log)) {
			if len(got) != len(log) || got[i].Seq != log[i].Seq || !bytes.Equal(got[i].Data, log[i].Data) {
				t.Fatalf("cut after %d bytes: %d records of %d, %d is %d %s", cut, len(got), len(log), i, got[i].Seq, got[i].Data)
			}
		}
	}
}

// What a delta of 120 bytes takes on the wire.
func TestLeanBytes(t *testing.T) {
	t.Parallel()
	const deltas = 1000
	total := map[Framing]int{}
	for _, f := range []Framing{Bare, Event, Lean} {
		for _, data := range datas(t, f, longAnswer(t, deltas)) {
			total[f] += len(dataOpen) + len(data) + len(dataClose)
		}
		total[f] /= deltas
	}
	t.Logf("bytes of a delta of 120 bytes: %v", total)
	if over := total[Lean] - 120; over > 40 {
		t.Errorf("a lean frame has %d bytes beside its 120 bytes of text", over)
	}
}

// longAnswer is an answer in deltas of 120 bytes, as an agent writes it.
func longAnswer(t testing.TB, n int) (records []chunk.Record) {
	for i := range n {
		records = append(records, written(t, uint64(i+5), &chunk.TextDelta{
			Base: chunk.Base{AgentID: "0198c0de-5e55-7000-8000-000000000001", AgentType: "assistant",
				Timestamp: 1763730000000 + 20*int64(i), Step: 1, RunID: "run-0198c0de-5e55-7000-8000-000000000002"},
			Delta: strings.Repeat("delta ", 20),
		}))
	}
	return records
}

// What is no lean record, or has none before it, is a typed error.
func TestLeanRefuses(t *testing.T) {
	t.Parallel()
	first := datas(t, Lean, longAnswer(t, 1))[0]
	for _, in := range []string{`[`, `[]`, `[1]`, `[1,]`, `[1,{}`, `[1,{]`, `[1,{"delta":"a}]`, `[,{}]`, `[01,{}]`, `[-0,{}]`, `[1.5,{}]`, `[1e3,{}]`, `["1",{}]`, `[1, {}]`,
		`[1,0,{}]`, `[1,-3,{}]`, `[1,1.5,{}]`, `[1,2,3,{}]`, `[1,{},{}]`, `[1,{}]]`, `[1,[]]`, `[1,null]`, `[1,{},1]`, `[12345678901234567,{}]`, `[1,12345678901234567,{}]`, `[9999999999999999,{}]`,
		`[1,{"type":"\u0061"}]`, `[1,{"type":7}]`, `[1,{"agentId":"x"}]`, `[1,{"agentId":"x","y":1}]`, `[1,{"step":"x"}]`, `[1,{"step":1.5}]`, `[1,{"timestamp":4}]`, `[1,{"toolCallId":"\n"}]`, `[1,{"step":1,"type":"x"}]`} {
		var d Decoder
		if _, err := d.Decode([]byte(in)); !errors.Is(err, chunk.ErrInvalidChunk) {
			t.Errorf("%s, first: %v", in, err)
		}
		if _, err := d.Decode([]byte(first)); err != nil {
			t.Fatal(err)
		}
		if m, err := d.Decode([]byte(in)); !errors.Is(err, chunk.ErrInvalidChunk) {
			t.Errorf("%s is read as %s, %v", in, m.Chunk, err)
		}
	}
	body := "id: 5\ndata: " + first + "\n\nid: 7\ndata: [1,{\"delta\":\"\"}]\n\n"
	r := NewReader(strings.NewReader(body))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, chunk.ErrInvalidChunk) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("an event is missing: %v", err)
	}
}

// FuzzSplit: a record is its head and its rest.
func FuzzSplit(f *testing.F) {
	for _, r := range wiretest.Corpus() {
		f.Add([]byte(r.Data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, rest, ok := split(data); ok && !bytes.Equal(h.append(nil, rest), data) {
			t.Fatalf("%q is %q", data, h.append(nil, rest))
		}
	})
}

// FuzzLean: any records are read in lean framing as they are.
func FuzzLean(f *testing.F) {
	var all []string
	for _, r := range wiretest.Corpus() {
		all = append(all, string(r.Data))
	}
	for i := 0; i < len(all); i += 5 {
		f.Add([]byte(strings.Join(all[i:min(i+5, len(all))], "\n")), uint8(i))
	}
	f.Fuzz(func(t *testing.T, lines []byte, step uint8) {
		var records []chunk.Record
		for i, line := range bytes.Split(lines, []byte("\n")) {
			if line = bytes.TrimSpace(line); json.Valid(line) && line[0] == '{' {
				records = append(records, chunk.Record{Seq: uint64(i)*uint64(step) + 1, Data: line})
			}
		}
		full, lean := datas(t, Event, records), datas(t, Lean, records)
		var d, whole Decoder
		for i := range records {
			m, err := d.Decode([]byte(lean[i]))
			if want, no := whole.Decode([]byte(full[i])); err != nil || no != nil || !reflect.DeepEqual(m, want) {
				t.Fatalf("%s is read as %d %s, %v; %s as %d %s, %v", lean[i], m.Seq, m.Chunk, err, full[i], want.Seq, want.Chunk, no)
			}
		}
	})
}

// FuzzDecoder: whatever comes is a message or a typed error.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte(strings.Join(datas(f, Lean, wiretest.Corpus()[:20]), "\n")))
	f.Add([]byte(strings.Join(datas(f, Lean, longAnswer(f, 3)), "\n")))
	f.Fuzz(func(t *testing.T, lines []byte) {
		var d Decoder
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			m, err := d.Decode(line)
			if err != nil && !errors.Is(err, chunk.ErrInvalidChunk) || err == nil && m.Kind == KindChunk && !json.Valid(m.Chunk) {
				t.Fatalf("%q is read as %+v, %v", line, m, err)
			}
		}
	})
}

// vectors are streams in lean framing and what they say, for decoders in other languages.
const vectorsFile = "testdata/lean.json"

type vector struct {
	Name      string   `json:"name"`
	Events    []string `json:"events"`              // their data
	Chunks    []string `json:"chunks,omitempty"`    // the records, as they were written
	Sequences []uint64 `json:"sequences,omitempty"` // theirs
	Malformed bool     `json:"malformed,omitempty"` // the last event is
}

// The vectors that other decoders are tested with are what the server sends. SPOOL_VECTORS=1
// writes them again.
func TestLeanVectors(t *testing.T) {
	t.Parallel()
	var list []vector
	add := func(name string, records []chunk.Record) {
		v := vector{Name: name, Events: datas(t, Lean, records)}
		for _, r := range records {
			v.Chunks, v.Sequences = append(v.Chunks, string(r.Data)), append(v.Sequences, r.Seq)
		}
		list = append(list, v)
	}
	add("mixed", mixed(t))
	add("an answer", longAnswer(t, 4))
	first := datas(t, Lean, longAnswer(t, 1))[0]
	list = append(list, vector{Name: "nothing before it", Events: []string{`[1,{"delta":"a"}]`}, Malformed: true})
	for _, in := range []string{`[]`, `[1,{]`, `[1,0,{}]`, `[01,{}]`, `[1,{},1]`, `[1,{"agentId":"x"}]`, `[1,{"timestamp":4}]`, `[1,{"step":1,"type":"x"}]`} {
		list = append(list, vector{Name: in, Events: []string{first, in}, Malformed: true})
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(list); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SPOOL_VECTORS") != "" {
		if err := os.WriteFile(vectorsFile, buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(vectorsFile); err != nil || !bytes.Equal(got, buf.Bytes()) {
		t.Errorf("%s is not what the server sends (%v); write it with SPOOL_VECTORS=1", vectorsFile, err)
	}
}

func BenchmarkFraming(b *testing.B) {
	records := longAnswer(b, 1000)
	for name, f := range map[string]Framing{"bare": Bare, "event": Event, "lean": Lean} {
		b.Run("apply/"+name, func(b *testing.B) {
			p := NewProjector(wire.Subject{}, &Options{Framing: f})
			var frames []spool.Frame
			size, n := 0, 0
			for b.Loop() {
				frames, _ = p.Apply(frames[:0], records[n%len(records)])
				size += len(frames[0].Data)
				n++
			}
			b.ReportAllocs()
			b.ReportMetric(float64(size)/float64(n), "bytes/record")
		})
		b.Run("decode/"+name, func(b *testing.B) {
			list := datas(b, f, records)
			events := make([][]byte, len(list))
			for i := range list {
				events[i] = []byte(list[i])
			}
			var d Decoder
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Decode(events[n%len(events)]); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}
