// Package wiretest is the suite that every wire passes.
//
// A wire is a deterministic fold over a log with two outputs, and a client
// that attaches anywhere must end with what the log says. The suite takes the value
// that is served, a fold of its frames as a client reads them, and a log that
// holds every chunk type, and attaches at every cut.
package wiretest

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
)

// Wire is a wire as the suite sees it.
type Wire struct {
	// Profile is what is served. If it shows turns, the projector of one is given
	// the records after the turn's Start, later turns' too. Else it is given the
	// log.
	Profile wire.Profile
	// Fold reads a stream from its first byte, as a client does, and returns the
	// client's state as JSON. It fails if the stream breaks the protocol. The
	// stream may stop between any two frames.
	Fold func(stream []byte) (json.RawMessage, error)
	// Truth, if set, says what the client's state must be in the end, made from
	// the log and not from the wire's frames.
	Truth func(log []chunk.Record, turn *fold.Turn) (json.RawMessage, error)
	// Raw says that frames are not events of a text/event-stream.
	Raw bool
	// Log is what is projected; nil for [Corpus], and then [Agents].
	Log []chunk.Record
	// OnlyLog leaves out the checks that bring a log of their own.
	OnlyLog bool

	// Stride leaves out cuts: only each so many-th is tried. 0: every cut. It is
	// for runs with the race detector, which take ten times as long.
	Stride int

	stride int // of the checks that rebuild projectors: each so many-th cut
}

// Run runs the suite, on the wire's log or on [Corpus] and [Agents].
func Run(t *testing.T, w Wire) {
	t.Helper()
	whole := w.Log == nil // other logs may hold too little for some checks
	if whole {
		w.Log = Corpus()
		t.Run("the log holds every chunk type", func(t *testing.T) {
			if missing := missingTypes(w.Log); len(missing) > 0 {
				t.Errorf("no record of %v", missing)
			}
		})
	}
	subjects, err := w.subjects()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range subjects {
				if err := c.check(s); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			}
		})
	}
	if !whole {
		return
	}
	below := w
	below.Log, below.OnlyLog, below.stride = Agents(), true, 17
	t.Run("with children", func(t *testing.T) { Run(t, below) })
	for _, flaw := range flaws {
		if flaw.ofLogs && !w.ofLog() || flaw.ofTurns && w.ofLog() {
			continue
		}
		t.Run("it is seen when the wire "+flaw.name, func(t *testing.T) {
			if found, err := w.finds(flaw); err != nil || !found {
				t.Errorf("the suite sees nothing (%v)", err)
			}
		})
	}
}

// ofLog reports whether a stream shows the log, and no turn.
func (w *Wire) ofLog() bool { return w.Profile.Log != nil }

// checks are the promises of a wire. Each fails with what is wrong. Those of the
// content compare what readers end with.
var checks = []struct {
	name    string
	check   func(*subject) error
	content bool
}{
	{"frames have the right shape", checkShape, false},
	{"frames are marked as what they are", checkMarks, false},
	{"frames that are not counted say nothing", checkUncounted, false},
	{"who was cut does not come back to the same cut", checkSince, false},
	{"the same records become the same frames", checkDeterminism, false},
	{"the projectors of a profile share nothing", checkApart, false},
	{"frames of a log depend on their record alone", checkStateless, false},
	{"frames never change after they were made", checkFrozen, false},
	{"a rebuilt projector is the live one", checkRebuilt, false},
	{"a reader that never left sees what the plan says", checkPlan, true},
	{"a reader that attaches at any cut ends as one that never left", checkAttach, true},
	{"a reader that was cut inside a plan goes on", checkCutInPlan, false},
	{"kept records alone give the same", checkKept, false},
	{"the client ends with what the log says", checkTruth, true},
	{"a long answer is planned in few frames", checkLong, false},
	{"a failure is shown once", checkFailures, false},
}

// subject is a stream that the wire offers: of one turn, or of the whole log.
type subject struct {
	Wire
	name    string
	turn    *fold.Turn
	records []chunk.Record // what the projector is given
	live    *run           // what whole returns
}

func (w Wire) subjects() ([]*subject, error) {
	if w.ofLog() {
		return []*subject{{Wire: w, name: "log", records: w.Log}}, nil
	}
	f := fold.New(chunk.RootID(w.Log[0].Agent))
	for _, r := range w.Log {
		if err := f.Apply(r); err != nil {
			return nil, fmt.Errorf("fold record %d: %w", r.Seq, err)
		}
	}
	var list []*subject
	for _, t := range f.Turns {
		list = append(list, &subject{Wire: w, name: "turn " + t.ID, turn: t, records: after(w.Log, t.Start())})
	}
	return list, nil
}

func after(log []chunk.Record, seq uint64) []chunk.Record {
	return log[slices.IndexFunc(log, func(r chunk.Record) bool { return r.Seq > seq }):]
}

// run is one projector's life: what each record became, and the plan behind it.
type run struct {
	frames [][]spool.Frame
	plans  [][]spool.Frame // plans[0] is the plan before the first record
}

// agent is whose stream it is.
func (s *subject) agent() string { return chunk.RootID(s.Log[0].Agent) }

// projector returns one that has seen nothing.
func (s *subject) projector() spool.Projector {
	of := wire.Subject{Agent: s.agent(), Resolve: func(v json.RawMessage) (json.RawMessage, error) { return v, nil }}
	if s.turn != nil {
		of.Turn = s.turn.ID
	}
	return s.Profile.Projector(of)
}

// whole is what all records become, with every plan. The checks share it.
func (s *subject) whole() (run, error) {
	if s.live == nil {
		live, err := s.project(s.records, true)
		if err != nil {
			return run{}, err
		}
		s.live = &live
	}
	return *s.live, nil
}

// project gives the records to a fresh projector and asks for every plan.
func (s *subject) project(records []chunk.Record, plans bool) (run, error) {
	p := s.projector()
	out := run{}
	plan := func() error {
		frames, err := p.Plan()
		if err != nil {
			return fmt.Errorf("the plan behind %d records: %w", len(out.frames), err)
		}
		out.plans = append(out.plans, clone(frames))
		return nil
	}
	if err := plan(); err != nil {
		return run{}, err
	}
	for i, r := range records {
		frames, err := p.Apply(nil, r)
		if err != nil {
			return run{}, fmt.Errorf("record %d (%s): %w", r.Seq, r.Type, err)
		}
		out.frames = append(out.frames, clone(frames))
		if plans || i == len(records)-1 {
			if err := plan(); err != nil {
				return run{}, err
			}
		}
	}
	if len(records) == 0 && !plans {
		out.plans = append(out.plans, out.plans[0])
	}
	return out, nil
}

// cuts yields the cuts among from…to that are tried, the first and the last always.
func (s *subject) cuts(from, to int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for c := from; c <= to; c++ {
			if ((c-from)%max(1, s.Stride) == 0 || c == to) && !yield(c) {
				return
			}
		}
	}
}

func clone(frames []spool.Frame) []spool.Frame {
	out := slices.Clone(frames)
	for i := range out {
		out[i].Data = slices.Clone(out[i].Data)
	}
	return out
}

// stream is what a reader receives that attached when the projector had seen c
// records and is still there when it has seen n.
func (s *subject) stream(r run, c, n int) []byte {
	return s.streamOf(r, c, n, func(spool.Frame) bool { return true })
}

// streamOf is stream of a reader that is given only some frames.
func (s *subject) streamOf(r run, c, n int, given func(spool.Frame) bool) []byte {
	var b []byte
	var held []spool.Frame // terminal frames of the last record that became any
	take := func(frames []spool.Frame) {
		if len(frames) > 0 {
			held = nil
		}
		for _, f := range frames {
			switch {
			case !given(f):
			case f.Terminal:
				held = append(held, f)
			default:
				b = append(b, f.Data...)
			}
		}
	}
	take(r.plans[c])
	for i := c; i < n; i++ {
		take(r.frames[i])
		if !s.ofLog() && slices.ContainsFunc(r.frames[i], func(f spool.Frame) bool { return f.Cut }) {
			b, held = nil, nil // the reader comes back
			take(r.plans[i+1])
		}
	}
	for _, f := range held {
		b = append(b, f.Data...)
	}
	return b
}

// fold folds a stream and writes the state canonically.
func (s *subject) fold(stream []byte) (string, error) {
	state, err := s.Fold(stream)
	if err != nil {
		return "", fmt.Errorf("the client refuses the stream: %w\n%s", err, tail(string(stream)))
	}
	return canonical(state)
}

func canonical(state json.RawMessage) (string, error) {
	var v any
	if err := json.Unmarshal(state, &v); err != nil {
		return "", fmt.Errorf("the client's state is not JSON: %w", err)
	}
	data, err := json.MarshalIndent(v, "", " ")
	return string(data), err
}

// missingTypes lists the registered chunk types that a log does not hold.
func missingTypes(log []chunk.Record) []chunk.Type {
	return slices.DeleteFunc(chunk.Types(), func(t chunk.Type) bool {
		return slices.ContainsFunc(log, func(r chunk.Record) bool { return r.Type == t })
	})
}

// ends lists the sequences at which the root agent's runs end or pause.
func ends(log []chunk.Record) []uint64 {
	var list []uint64
	for _, r := range log {
		if r.Agent == chunk.RootID(r.Agent) && (r.Type == chunk.TypeRunFinished || r.Type == chunk.TypeRunSuspended) {
			list = append(list, r.Seq)
		}
	}
	return list
}
