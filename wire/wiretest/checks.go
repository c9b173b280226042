package wiretest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// checkShape: only the last frame that a record became carries its sequence,
// none of a plan does, and every frame is whole.
func checkShape(s *subject) error {
	r, err := s.whole()
	if err != nil {
		return err
	}
	for i, frames := range r.frames {
		if err := s.checkFrames(frames, s.records[i]); err != nil {
			return err
		}
	}
	for c, plan := range r.plans {
		for j, f := range plan {
			err := s.intact(f)
			if f.Seq != 0 || f.Cut {
				err = errors.New("it carries a sequence or a cut")
			}
			if err != nil {
				return fmt.Errorf("frame %d of the plan at %s: %w", j+1, s.at(c), err)
			}
		}
		if s.ofLog() && len(plan) > 0 {
			return fmt.Errorf("the plan at %s has frames", s.at(c))
		}
	}
	return nil
}

// checkFrames checks the shape of what a record became.
func (s *subject) checkFrames(frames []spool.Frame, r chunk.Record) error {
	// Terminal frames are left out for readers who pass them, so the frame
	// before them may carry the sequence too.
	last := slices.IndexFunc(frames, func(f spool.Frame) bool { return f.Terminal })
	if last < 0 {
		last = len(frames)
	}
	cut, carried := false, len(frames) == 0
	for j, f := range frames {
		cut = cut || f.Cut
		carried = carried || f.Seq == r.Seq
		var err error
		switch {
		case f.Seq != 0 && f.Seq != r.Seq:
			err = fmt.Errorf("it carries sequence %d", f.Seq)
		case f.Seq != 0 && j != len(frames)-1 && j != last-1:
			err = errors.New("it carries the sequence and is not the last")
		case f.Seq != 0 && f.Cut:
			err = errors.New("it cuts its reader and carries the sequence")
		case f.Cut && s.ofLog():
			err = errors.New("it cuts its reader, who has no plan to come back to")
		case j > last && !f.Terminal:
			err = errors.New("it follows a terminal one and is none")
		default:
			err = s.intact(f)
		}
		if err != nil {
			return fmt.Errorf("frame %d of record %d (%s): %w", j+1, r.Seq, r.Type, err)
		}
	}
	if !carried && !cut {
		return fmt.Errorf("no frame of record %d (%s) carries its sequence", r.Seq, r.Type)
	}
	return nil
}

// maxFrame is what a record or a joined delta may hold, and its envelope.
const maxFrame = chunk.MaxRecordBytes + 4<<10

func (s *subject) intact(f spool.Frame) error {
	switch {
	case len(f.Data) == 0:
		return fmt.Errorf("it is empty")
	case len(f.Data) > maxFrame:
		return fmt.Errorf("it has %d bytes, more than %d", len(f.Data), maxFrame)
	case s.Raw:
		return nil
	case !bytes.HasSuffix(f.Data, []byte("\n\n")):
		return fmt.Errorf("it does not end in a blank line: %q", f.Data)
	case bytes.Contains(f.Data, []byte("\r")):
		return fmt.Errorf("it holds a carriage return: %q", f.Data)
	case bytes.HasPrefix(f.Data, []byte("id:")), bytes.Contains(f.Data, []byte("\nid:")):
		return fmt.Errorf("it holds an id, which is the server's to write: %q", f.Data)
	case bytes.Count(f.Data, []byte("\n\n")) > 1:
		return fmt.Errorf("it holds several events: %q", f.Data)
	case !utf8.Valid(f.Data):
		return fmt.Errorf("it is not UTF-8: %q", f.Data)
	}
	return nil
}

// checkDeterminism: two projectors agree, whether or not anybody asks for plans.
func checkDeterminism(s *subject) error {
	first, err := s.whole()
	if err != nil {
		return err
	}
	for range 3 { // maps are shuffled each time
		again, err := s.project(s.records, false)
		if err != nil {
			return err
		}
		for i := range first.frames {
			if d := difference(first.frames[i], again.frames[i]); d != "" {
				return fmt.Errorf("record %d (%s): %s", s.records[i].Seq, s.records[i].Type, d)
			}
		}
		if d := difference(first.plans[len(first.plans)-1], again.plans[1]); d != "" {
			return fmt.Errorf("the last plan: %s", d)
		}
	}
	return nil
}

// checkFrozen: frames are shared between readers, so that nothing may write to
// them again; nor may Apply write to what is in dst.
func checkFrozen(s *subject) error {
	p := s.projector()
	var frames, plan, frozen, frozenPlan []spool.Frame
	for _, r := range s.records {
		n := len(frames)
		more, err := p.Apply(frames, r)
		if err != nil {
			return err
		}
		if len(more) < n {
			return fmt.Errorf("record %d (%s): Apply takes frames away", r.Seq, r.Type)
		}
		frames = more
		if d := difference(frozen, frames[:n]); d != "" {
			return fmt.Errorf("record %d (%s) changed earlier frames: %s", r.Seq, r.Type, d)
		}
		if d := difference(frozenPlan, plan); d != "" {
			return fmt.Errorf("record %d (%s) changed an earlier plan: %s", r.Seq, r.Type, d)
		}
		frozen = append(frozen, clone(frames[n:])...)
		if plan, err = p.Plan(); err != nil {
			return err
		}
		frozenPlan = clone(plan)
	}
	return nil
}

// checkRebuilt: another node that folds the records up to a cut has the same
// plan, and goes on with the same frames.
func checkRebuilt(s *subject) error {
	live, err := s.whole()
	if err != nil {
		return err
	}
	for c := 0; c <= len(s.records); c += max(1, s.stride, s.Stride) {
		p := s.projector()
		for _, r := range s.records[:c] {
			if _, err := p.Apply(nil, r); err != nil {
				return err
			}
		}
		plan, err := p.Plan()
		if err != nil {
			return err
		}
		if d := difference(live.plans[c], plan); d != "" {
			return fmt.Errorf("the plan at %s: %s", s.at(c), d)
		}
		rest := s.records[c:]
		if c%8 != 0 { // mostly, the next few records tell
			rest = rest[:min(len(rest), 16)]
		}
		for i, r := range rest {
			frames, err := p.Apply(nil, r)
			if err != nil {
				return err
			}
			if d := difference(live.frames[c+i], frames); d != "" {
				return fmt.Errorf("rebuilt at %s, record %d (%s): %s", s.at(c), r.Seq, r.Type, d)
			}
		}
	}
	return nil
}

// checkPlan: at every point, who never left has the state that the plan gives.
// Who was there when a run paused was sent away, and has nothing from then on
// until the next run, even though answers may come in.
func checkPlan(s *subject) error {
	if s.ofLog() {
		return nil
	}
	r, err := s.whole()
	if err != nil {
		return err
	}
	paused := false
	for n := range len(s.records) + 1 {
		if !paused && !s.idle(r, n) && (n%max(1, s.Stride) == 0 || n == len(s.records)) {
			if err := s.attach(r, n, n); err != nil {
				return err
			}
		}
		if n == len(s.records) {
			break
		}
		if next := s.records[n]; next.Agent == chunk.RootID(next.Agent) && next.Type == chunk.TypeRunStarted {
			paused = false
		}
		paused = paused || n > 0 && s.suspended(n)
	}
	return nil
}

// suspended reports whether the n-th record pauses the root agent's run.
func (s *subject) suspended(n int) bool {
	r := s.records[n-1]
	return r.Agent == chunk.RootID(r.Agent) && r.Type == chunk.TypeRunSuspended
}

// idle reports whether the c-th record changes nothing for anybody.
func (s *subject) idle(r run, c int) bool {
	return c > 0 && len(r.frames[c-1]) == 0 && difference(r.plans[c-1], r.plans[c]) == ""
}

// checkAttach: a reader that attaches during a run has, at its end, the state of who
// never left, and so has, at the end of the log, a reader that attached anywhere.
func checkAttach(s *subject) error {
	r, err := s.whole()
	if err != nil {
		return err
	}
	from := 0
	for _, seq := range ends(s.records) {
		n := int(seq-s.records[0].Seq) + 1
		if err := s.attach(r, from, n); err != nil {
			return err
		}
		from = n
	}
	return s.attach(r, 0, len(s.records))
}

func (s *subject) attach(r run, from, n int) error {
	stayed, err := s.fold(s.stream(r, 0, n))
	if err != nil {
		return fmt.Errorf("attached at the start, now at %s: %w", s.at(n), err)
	}
	for c := range s.cuts(from, n) {
		if s.ofLog() || c > from && s.idle(r, c) {
			continue
		}
		came, err := s.fold(s.stream(r, c, n))
		if err != nil {
			return fmt.Errorf("attached at %s, now at %s: %w", s.at(c), s.at(n), err)
		}
		if came != stayed {
			return fmt.Errorf("at %s, who attached at %s and who never left differ: %s", s.at(n), s.at(c), firstLine(came, stayed))
		}
	}
	return nil
}

// checkCutInPlan: k frames of a plan from one node and the others from another,
// which knows only the records up to the cut, are that plan.
func checkCutInPlan(s *subject) error {
	r, err := s.whole()
	if err != nil {
		return err
	}
	n := len(s.records)
	for c := 0; c <= n; c += max(1, s.stride, s.Stride) {
		rebuilt, err := s.project(s.records[:c], false)
		if err != nil {
			return err
		}
		plan := rebuilt.plans[1]
		for k := range len(plan) + 1 {
			if k > len(r.plans[c]) {
				return fmt.Errorf("the plan at %s has %d frames, rebuilt %d", s.at(c), len(r.plans[c]), len(plan))
			}
			joined := append(clone(r.plans[c][:k]), plan[k:]...)
			if d := difference(r.plans[c], joined); d != "" {
				return fmt.Errorf("the plan at %s, cut after frame %d: %s", s.at(c), k, d)
			}
		}
	}
	return nil
}

// checkKept: trimming the trace of a settled turn changes nothing.
func checkKept(s *subject) error {
	if s.ofLog() {
		return nil
	}
	for _, seq := range ends(s.records) {
		n := int(seq-s.records[0].Seq) + 1
		if s.records[n-1].Type != chunk.TypeRunFinished {
			continue // a paused turn is open, and keeps its trace
		}
		for _, end := range []int{n, len(s.records)} {
			whole, err := s.project(s.records[:end], false)
			if err != nil {
				return err
			}
			trimmed := append(KeptOnly(s.records[:n]), s.records[n:end]...)
			kept, err := s.project(trimmed, false)
			if err != nil {
				return fmt.Errorf("trimmed to %s: %w", s.at(n), err)
			}
			w, err := s.fold(s.stream(run{plans: whole.plans[1:]}, 0, 0))
			if err != nil {
				return err
			}
			k, err := s.fold(s.stream(run{plans: kept.plans[1:]}, 0, 0))
			if err != nil {
				return fmt.Errorf("trimmed to %s: %w", s.at(n), err)
			}
			if w != k {
				return fmt.Errorf("trimmed to %s, the plan at %s differs from that of the whole log: %s", s.at(n), s.at(end), firstLine(w, k))
			}
		}
	}
	return nil
}

// checkTruth: the state is the log's.
func checkTruth(s *subject) error {
	if s.Truth == nil {
		return nil
	}
	r, err := s.whole()
	if err != nil {
		return err
	}
	truth, err := s.Truth(s.Log, s.turn)
	if err != nil {
		return err
	}
	want, err := canonical(truth)
	if err != nil {
		return err
	}
	got, err := s.fold(s.stream(r, 0, len(s.records)))
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("the client and the log differ: %s", firstLine(got, want))
	}
	return nil
}

// checkLong: thousands of deltas are planned in frames as large as they may be,
// cut between characters.
func checkLong(s *subject) error {
	if s.ofLog() || s.OnlyLog || s.turn != nil && s.turn.ID != s.firstTurn() {
		return nil
	}
	b := &builder{now: 1763730000000}
	a := &agent{log: b, session: Session, kind: "assistant"}
	a.say("cmd-1", "long", "")
	a.begin("run-1", "cmd-1", "cmd-1")
	a.beginStep()
	const deltas = 3000
	piece := strings.Repeat("x🧵é<", 30)
	for range deltas {
		a.log.emit(&chunk.TextDelta{Base: chunk.Base{AgentID: a.session, AgentType: a.kind, Step: 1, RunID: a.run}, Delta: piece})
	}
	long := *s
	long.records = b.records
	if s.turn != nil {
		long.turn = &fold.Turn{ID: "cmd-1", MessageID: a.message, Opened: 1}
	}
	r, err := long.project(long.records, false)
	if err != nil {
		return err
	}
	plan := r.plans[1]
	size := 0
	for i, f := range plan {
		if err := long.intact(f); err != nil {
			return fmt.Errorf("frame %d of the plan: %w", i+1, err)
		}
		size += len(f.Data)
	}
	if most := 20 + 4*size/chunk.MaxRecordBytes; len(plan) > most {
		return fmt.Errorf("%d deltas are planned in %d frames of %d bytes, more than %d", deltas, len(plan), size, most)
	}
	live, err := long.fold(long.stream(r, 0, len(long.records)))
	if err != nil {
		return err
	}
	planned, err := long.fold(long.stream(run{plans: r.plans[1:]}, 0, 0))
	if err != nil {
		return err
	}
	if live != planned {
		return fmt.Errorf("the plan differs: %s", firstLine(live, planned))
	}
	return nil
}

func (s *subject) firstTurn() string {
	all, err := s.subjects()
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[0].turn.ID
}

// at names a cut by the record before it.
func (s *subject) at(c int) string {
	if c == 0 {
		return "the start"
	}
	r := s.records[c-1]
	return fmt.Sprintf("%d (%s)", r.Seq, r.Type)
}

func difference(a, b []spool.Frame) string {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if !bytes.Equal(x.Data, y.Data) || marks(x) != marks(y) {
			return fmt.Sprintf("frame %d is %q %+v here and %q %+v there", i+1, x.Data, marks(x), y.Data, marks(y))
		}
	}
	if len(a) != len(b) {
		return fmt.Sprintf("%d frames here and %d there", len(a), len(b))
	}
	return ""
}

// marks is a frame without its bytes.
func marks(f spool.Frame) (m struct {
	Seq, Since                     uint64
	Terminal, Cut, Echo, Uncounted bool
}) {
	m.Seq, m.Since = f.Seq, f.Since
	m.Terminal, m.Cut, m.Echo, m.Uncounted = f.Terminal, f.Cut, f.Echo, f.Uncounted
	return m
}

// firstLine shows where two canonical states part.
func firstLine(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		p, q := "nothing", "nothing"
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		if p != q {
			return fmt.Sprintf("line %d is %s and %s, after\n%s", i+1, clip(p), clip(q), strings.Join(x[max(0, i-8):i], "\n"))
		}
	}
	return "nowhere"
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}

func tail(s string) string {
	if len(s) > 2000 {
		return "…" + s[len(s)-2000:]
	}
	return s
}
