package cli

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/native"
	"github.com/spool-run/spool/wire/wiretest"
)

var framesTo = flag.String("frames", "", "folder for what TestFramesAreUnchanged takes the digests of")

const framesFile = "testdata/frames.txt"

// frameProfile is a wire with its options fixed, and who it shows: the log as a
// whole, or a turn of an agent.
type frameProfile struct {
	name  string
	turns bool
	rare  bool // left out for recordings, of which there are many
	new   func(agent, turn string) spool.Projector
}

func frameProfiles() []frameProfile {
	list := []frameProfile{
		{name: "native", new: logOf(native.Options{})},
		{name: "native event", rare: true, new: logOf(native.Options{Framing: native.Event})},
	}
	quiet := func(c chunk.Chunk) bool {
		t := c.ChunkType()
		return t != chunk.TypeThinking && t != chunk.TypeCustom
	}
	for name, o := range map[string]aisdk.Options{
		"aisdk 6": {}, "aisdk 7": {UI7: true},
		"aisdk 6 static": {StaticTools: true}, "aisdk 7 flatten": {UI7: true, SubAgents: aisdk.Flatten}, "aisdk 6 literal": {LiteralErrors: true},
		"rare aisdk 7 static": {StaticTools: true, UI7: true}, "rare aisdk 6 nosteps": {NoStepEvents: true}, "rare aisdk 7 nosteps": {NoStepEvents: true, UI7: true},
		"rare aisdk 6 flatten": {SubAgents: aisdk.Flatten}, "rare aisdk 6 summary": {SubAgents: aisdk.Summary}, "rare aisdk 7 summary": {SubAgents: aisdk.Summary, UI7: true},
		"rare aisdk 6 flatten static nosteps": {SubAgents: aisdk.Flatten, StaticTools: true, NoStepEvents: true},
		"rare aisdk 6 filter":                 {ChunkFilter: quiet}, "rare aisdk 7 filter flatten": {ChunkFilter: quiet, SubAgents: aisdk.Flatten, UI7: true},
		"rare aisdk 6 blocks": {BlockID: func(i int) string { return fmt.Sprintf("b%d", i) }},
	} {
		name, rare := strings.CutPrefix(name, "rare ")
		list = append(list, frameProfile{name: name, turns: true, rare: rare, new: func(agent, turn string) spool.Projector {
			return aisdk.NewProjector(wire.Subject{Turn: turn, Agent: agent}, &o)
		}})
	}
	all := merlin.Literal{End: true, Suppression: true, FirstCall: true, EmptyArguments: true, Citations: true, Union: true, Progress: true, Errors: true}
	everybody := func(string) bool { return true }
	for name, o := range map[string]merlin.Options{
		"merlin v1": {Version: merlin.V1}, "merlin v2": {}, "merlin v1 literal": {Version: merlin.V1, Literal: all}, "merlin v2 literal": {Literal: all},
		"rare merlin v1 suppress": {Version: merlin.V1, Suppress: everybody}, "rare merlin v2 suppress": {Suppress: everybody},
		"rare merlin v2 literal suppress": {Suppress: everybody, Literal: merlin.Literal{Suppression: true}}, "rare merlin v2 index": {FirstIndex: 3},
		"rare merlin v2 end": {Literal: merlin.Literal{End: true}}, "rare merlin v2 first-call": {Literal: merlin.Literal{FirstCall: true}},
		"rare merlin v2 empty-arguments": {Literal: merlin.Literal{EmptyArguments: true}}, "rare merlin v1 citations": {Version: merlin.V1, Literal: merlin.Literal{Citations: true}},
		"rare merlin v2 union": {Literal: merlin.Literal{Union: true}}, "rare merlin v1 progress": {Version: merlin.V1, Literal: merlin.Literal{Progress: true}},
		"rare merlin v2 errors": {Literal: merlin.Literal{Errors: true}},
	} {
		name, rare := strings.CutPrefix(name, "rare ")
		list = append(list, frameProfile{name: name, turns: true, rare: rare, new: func(_, turn string) spool.Projector { return merlin.NewProjector(turn, &o) }})
	}
	return list
}

func logOf(o native.Options) func(agent, turn string) spool.Projector {
	return func(string, string) spool.Projector { return native.NewProjector(wire.Subject{}, &o) }
}

// What each wire makes of each log, frame by frame, and what a reader gets who
// attaches anywhere, is what it was. The golden file has digests; to see what stands
// behind them, run this test with -frames DIR here and on an older commit.
func TestFramesAreUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	got := map[string]string{}
	schema, err := os.ReadFile("../../chunk/schema/chunk.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	got["schema"] = fmt.Sprintf("%x", sha256.Sum256(schema))
	logs := frameLogs{t: t, got: got, profiles: frameProfiles()}
	logs.project("corpus", wiretest.Corpus(), false)
	logs.project("corpus trimmed", wiretest.KeptOnly(wiretest.Corpus()), false)
	logs.project("agents", wiretest.Agents(), false)
	logs.project("agents trimmed", wiretest.KeptOnly(wiretest.Agents()), false)
	for from := range ingesters {
		files, err := filepath.Glob(filepath.Join(corpus, from, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("there are no recordings of %s: %v", from, err)
		}
		for _, file := range files {
			if ext := filepath.Ext(file); ext == ".sse" || ext == ".body" {
				logs.recording(from, file)
			}
		}
	}
	compareDigests(t, got)
}

// frameLogs takes the digests of what logs become.
type frameLogs struct {
	t        *testing.T
	got      map[string]string
	profiles []frameProfile
}

// recording takes the digests of a provider's stream: of its chunks, of what it
// says, and of what the wires make of it.
func (l *frameLogs) recording(from, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		l.t.Fatal(err)
	}
	name := from + " " + filepath.Base(file)
	chunks := l.ingest(data, "--from", from)
	l.digest(name, "ingest", func(w io.Writer) { _, _ = w.Write(chunks) })
	l.digest(name, "ingest fold", func(w io.Writer) { _, _ = w.Write(l.ingest(data, "--from", from, "--fold")) })
	if len(data) > 32<<10 {
		return // the same to the wires, many times over
	}
	var records []chunk.Record
	if err := readChunks(bytes.NewReader(chunks), func(r chunk.Record) error {
		records = append(records, r)
		return nil
	}); err != nil {
		l.t.Fatal(err)
	}
	l.project(name, records, true)
}

func (l *frameLogs) ingest(data []byte, args ...string) []byte {
	var out, errs bytes.Buffer
	if code := spoolBinary.run(append([]string{"ingest"}, args...), streams{bytes.NewReader(data), &out, &errs}); code != 0 {
		fmt.Fprintf(&out, "code %d: %s", code, errs.String())
	}
	return out.Bytes()
}

// project takes the digests of a log on each wire: of the whole log, or of each of
// its turns, its children's too.
func (l *frameLogs) project(name string, records []chunk.Record, recorded bool) {
	state := fold.New(chunk.RootID(records[0].Agent))
	for _, r := range records {
		if err := state.Apply(r); err != nil {
			l.t.Fatalf("%s: %v", name, err)
		}
	}
	for _, p := range l.profiles {
		if recorded && p.rare {
			continue
		}
		if !p.turns {
			l.digest(name, p.name, func(w io.Writer) { l.frames(w, p.new("", ""), records) })
			continue
		}
		l.digest(name, p.name, func(w io.Writer) { l.turns(w, p, state, records) })
	}
}

// turns writes what the turns of an agent and of those below it become.
func (l *frameLogs) turns(w io.Writer, p frameProfile, f *fold.Fold, records []chunk.Record) {
	for _, turn := range f.Turns {
		fmt.Fprintf(w, "==== %s, turn %s\n", f.Session, turn.ID)
		from := slices.IndexFunc(records, func(r chunk.Record) bool { return r.Seq > turn.Start() })
		l.frames(w, p.new(f.Session, turn.ID), records[from:])
	}
	for _, child := range f.Children {
		l.turns(w, p, child, records)
	}
}

// frames writes what records become, and the plan behind them: each of a short
// log, and some of a long one.
func (l *frameLogs) frames(w io.Writer, p spool.Projector, records []chunk.Record) {
	write := func(frames []spool.Frame) {
		for _, f := range frames {
			fmt.Fprintf(w, "%d %t %t %s", f.Seq, f.Terminal, f.Cut, f.Data)
		}
	}
	plan := func() {
		frames, err := p.Plan()
		if err != nil {
			l.t.Fatal(err)
		}
		write(frames)
	}
	stride := 1 + len(records)/50
	for i, r := range records {
		if i%stride == 0 {
			fmt.Fprintf(w, "== plan before %d\n", r.Seq)
			plan()
		}
		frames, err := p.Apply(nil, r)
		fmt.Fprintf(w, "== record %d %s %v\n", r.Seq, r.Type, err)
		write(frames)
	}
	fmt.Fprintln(w, "== plan in the end")
	plan()
}

func (l *frameLogs) digest(log, profile string, write func(io.Writer)) {
	var sum hash.Hash = sha256.New()
	var w io.Writer = sum
	if *framesTo != "" {
		dir := filepath.Join(*framesTo, fileName(log))
		if err := os.MkdirAll(dir, 0o777); err != nil {
			l.t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, fileName(profile)+".txt"))
		if err != nil {
			l.t.Fatal(err)
		}
		defer f.Close()
		w = io.MultiWriter(sum, f)
	}
	write(w)
	l.got[log+"\t"+profile] = fmt.Sprintf("%x", sum.Sum(nil)[:12])
}

// compareDigests compares digests with those of the golden file, or with -update
// writes it.
func compareDigests(t *testing.T, got map[string]string) {
	t.Helper()
	if *update {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(got)) {
			fmt.Fprintf(&b, "%s\t%s\n", name, got[name])
		}
		if err := os.WriteFile(framesFile, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(framesFile)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(data)) {
		i := strings.LastIndexByte(line, '\t')
		want[line[:i]] = strings.TrimSpace(line[i+1:])
	}
	wrong := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		now, known := got[name]
		if delete(got, name); !known {
			t.Errorf("%s: there is no such log or profile any more", name)
		} else if now != want[name] {
			wrong++
			t.Errorf("%s: not what it was", name)
		}
	}
	for name := range got {
		t.Errorf("%s: it is new", name)
	}
	if wrong > 0 {
		t.Logf("to see what is different: go test ./cmd/cli -run TestFramesAreUnchanged -frames DIR, here and on an older commit; then diff -r")
	}
}
