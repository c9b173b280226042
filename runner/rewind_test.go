package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// setBack says when a store loses records.
type setBack struct {
	at      uint64 // when the log has this many records,
	by      uint64 // it loses so many
	noticed bool   // and raises the incarnation, or leaves that to those who notice
}

func (b setBack) String() string {
	return fmt.Sprintf("set back at record %d by %d (noticed: %v)", b.at, b.by, b.noticed)
}

// fallible is a store that loses records once, while everybody is connected: those that it
// has just acknowledged are among them.
type fallible struct {
	*storetest.Rewound
	setBack
	effects *effects

	mu     sync.Mutex
	engine *memstore.Store
	past   *memstore.Store // as it was when there were so many records less
	lost   bool
	left   []chunk.Record // what was left
	before map[string]int // the effects until then
}

func newFallible(b setBack, e *effects) *fallible {
	engine := memstore.New(nil)
	return &fallible{Rewound: storetest.NewRewound(engine), engine: engine, past: engine.Fork(nil), setBack: b, effects: e}
}

func (f *fallible) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost || f.at == 0 {
		return f.Rewound.Append(ctx, a)
	}
	if h, err := f.engine.Head(ctx, a.Session); err == nil && h.Seq+f.by <= f.at {
		f.past = f.engine.Fork(nil)
	}
	res, err := f.Rewound.Append(ctx, a)
	if err == nil && res.Head.Seq >= f.at {
		f.lost, f.before = true, f.effects.calls()
		f.left, _, _ = f.past.Read(ctx, a.Session, 0, 0)
		if f.noticed {
			f.past.Raise()
		}
		f.Set(f.past)
	}
	return res, err
}

// lostRecords reports whether an error is what those are told who knew what is lost.
func lostRecords(err error) bool {
	return errors.Is(err, spool.ErrCursorAhead) || errors.Is(err, spool.ErrNotFound)
}

// viewer reads a log, and begins again whenever it is told that its position is gone.
type viewer struct {
	mu   sync.Mutex
	has  []chunk.Record
	told int
}

func (v *viewer) read(ctx context.Context, g *spool.Log) error {
	for {
		for r, err := range g.Records(ctx, spool.ReadOptions{Follow: true}) {
			switch {
			case ctx.Err() != nil:
				return nil
			case lostRecords(err):
				v.mu.Lock()
				v.has, v.told = nil, v.told+1
				v.mu.Unlock()
			case err != nil:
				return err
			default:
				v.mu.Lock()
				v.has = append(v.has, r)
				v.mu.Unlock()
			}
		}
	}
}

// same reports whether it has seen these records, and no others.
func (v *viewer) same(records []chunk.Record) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.has {
		if i >= len(records) || v.has[i].Seq != records[i].Seq || !bytes.Equal(v.has[i].Data, records[i].Data) {
			return false
		}
	}
	return len(v.has) == len(records)
}

// rewound is a scenario on two processes whose store loses records.
type rewound struct {
	*world
	scene   scenario
	store   *fallible
	effects effects
	here    *world // of the user, and of a reader
	viewers map[string]*viewer
	logs    map[string]*spool.Log
	waiter  chan error
}

// connect lets the processes run, and a reader and a waiter follow.
func (p *rewound) connect() {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, name := range []string{"first", "second", "user"} {
		process := p.on(p.store, name)
		if name == "user" {
			p.here = process
		} else {
			process.start(p.scene.on(process.logs, p.effects.add), &runner.Options{Observer: runner.Observer{Failed: func(string, error) {}}})
		}
		g, v := process.log("s"), &viewer{}
		p.viewers[name], p.logs[name] = v, g
		all.Go(func() {
			if err := v.read(ctx, g); err != nil {
				p.t.Errorf("the reader in process %s: %v", name, err)
			}
		})
	}
	*p.ends = append(*p.ends, func() { cancel(); all.Wait() })
}

// wait waits for the answer, as a request does.
func (p *rewound) wait() {
	p.waiter = make(chan error, 1)
	go func() {
		p.waiter <- p.here.log("s").Until(p.t.Context(), spool.Head{}, func(f *fold.Fold) (spool.Look, error) {
			if f.Turn("u1") != nil && f.Reason != "" && f.OpenRun() == nil {
				return spool.Seen, nil
			}
			return spool.Maybe, nil
		})
	}()
}

// talk says what the scenario begins with, and what it asks for, again if that is lost.
func (p *rewound) talk() *fold.Fold {
	for range 20 {
		f, err := p.rested()
		switch {
		case err != nil && !lostRecords(err):
			p.t.Fatal(err)
		case err != nil || f.Verdict("u1").State == fold.VerdictUnknown:
			p.here.say("s", "u1", p.scene.name)
			if p.waiter == nil {
				p.wait()
				p.here.hasten(p.scene)
			}
		default:
			replies, err := p.replies(f)
			if err == nil && len(replies) > 0 {
				_, err = p.here.log("s").Command(p.t.Context(), spool.Row{}, replies...)
			}
			if err != nil && !lostRecords(err) {
				p.t.Fatalf("%s: %v", p.store.setBack, err)
			}
			if err == nil && len(replies) == 0 {
				return f
			}
		}
	}
	p.t.Fatalf("%s: it waits for ever", p.store.setBack)
	return nil
}

// strays reports whether the log has records that follow on nothing. If only the owner can
// notice a loss, it does so by an append, which is then in the log.
func (p *rewound) strays() bool { return p.store.lost && !p.store.noticed }

// replies is what the user does about a session that waits. If that is for a question
// that is lost, the user stops the run.
func (p *rewound) replies(f *fold.Fold) ([]chunk.Chunk, error) {
	scene := p.scene
	if p.strays() {
		for _, pending := range f.PendingCalls() {
			if part := pending.ToolPart; part.Approval == nil && part.Name != "locate" {
				return []chunk.Chunk{&chunk.StopRequested{CommandID: fmt.Sprint("stop-", f.Seq)}}, nil
			}
		}
		scene.again = false // there may be half a call in the history
	}
	replies, err := scene.replies(p.t.Context(), p.here.log("s"), f)
	for _, reply := range replies { // an answer may be there whose question is lost
		if f.Verdict(chunk.CommandID(reply)).State == fold.VerdictUnknown {
			continue
		}
		switch c := reply.(type) {
		case *chunk.ToolApprovalResponse:
			c.CommandID += fmt.Sprint("-", f.Seq)
		case *chunk.ToolResultSubmitted:
			c.CommandID += fmt.Sprint("-", f.Seq)
		}
	}
	return replies, err
}

// rested returns the fold of the log as it is when it is quiet.
func (p *rewound) rested() (*fold.Fold, error) {
	f := fold.New("s")
	for r, err := range p.here.log("s").Records(p.t.Context(), spool.ReadOptions{}) {
		if err == nil {
			err = f.Apply(r)
		}
		if err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Minute) // what was lost at the very end is noticed
	return f, nil
}

// throughRewind plays a scenario on a store that loses records, and checks what must hold.
func throughRewind(t *testing.T, s scenario, b setBack) (length uint64) {
	inWorld(t, func(w *world) {
		p := &rewound{world: w, scene: s, viewers: map[string]*viewer{}, logs: map[string]*spool.Log{}}
		p.store = newFallible(b, &p.effects)
		p.connect()
		p.talk()
		f := p.talk() // what follows a loss that nobody had noticed
		synctest.Wait()
		p.check(f)
		length = f.Seq
	})
	return length
}

func (p *rewound) check(f *fold.Fold) {
	records := p.here.settled("s")
	where := fmt.Sprintf("%s\n%s", p.store.setBack, kinds(records))
	if f.OpenRun() != nil || f.Reason == "" || f.Status == chunk.StatusFailed && f.Error == nil {
		p.t.Errorf("%s: %s %s, without a reason", where, f.Status, f.Reason)
	}
	for _, turn := range f.Turns {
		for _, r := range turn.Runs {
			if r.Outcome == "" && r.Suspended == "" {
				p.t.Errorf("%s: run %s is not settled", where, r.ID)
			}
		}
	}
	if !p.strays() {
		checkLog(p.t, records)
		for _, part := range toolParts(f) {
			if !part.State.Done() {
				p.t.Errorf("%s: call %s is open", where, part.CallID)
			}
		}
	}
	for name, v := range p.viewers {
		if !v.same(records) {
			p.t.Errorf("%s: the reader in process %s, told %d times, has\n%s", where, name, v.told, kinds(v.has))
		}
	}
	for name, g := range p.logs {
		err := g.View(p.t.Context(), func(v *fold.Fold) error {
			if got, want := mustJSON(v), mustJSON(f); got != want {
				p.t.Errorf("%s: process %s sees\n%s\nand the log says\n%s", where, name, got, want)
			}
			return nil
		})
		if err != nil {
			p.t.Errorf("%s: process %s: %v", where, name, err)
		}
	}
	if err := <-p.waiter; err != nil && !lostRecords(err) {
		p.t.Errorf("%s: who waits for the answer gets %v", where, err)
	}
	if p.store.lost {
		p.checkEffects(where)
	}
}

// checkEffects: what the log still says is done was not done again, and anything else at
// most once more.
func (p *rewound) checkEffects(where string) {
	left := fold.New("s")
	for _, r := range p.store.left {
		if err := left.Apply(r); err != nil {
			p.t.Fatal(err)
		}
	}
	after := p.effects.calls()
	for _, part := range toolParts(left) {
		if id := part.CallID; part.State.Done() && after[id] > p.store.before[id] {
			p.t.Errorf("%s: call %s, whose outcome is in the log, was made again", where, id)
		}
	}
	for id, n := range after {
		if most := max(p.store.before[id], 1) + 1; n > most && !p.scene.again {
			p.t.Errorf("%s: call %s did its work %d times, and %d times before the loss", where, id, n, p.store.before[id])
		}
	}
}

// A store that loses acknowledged records at any record of any scene, one, several, all of
// the turn or, if it notices, the session, while its owner, readers and a waiter are
// connected: every run is settled, every reader has the log as it is then, or is told and
// begins again, and no call whose outcome is in the log is made again.
func TestRewindAtEveryRecord(t *testing.T) {
	t.Parallel()
	stride := uint64(67 * matrix.Stride(t, 3)) // of all points and losses
	if os.Getenv(envChaos) != "" {
		stride = 1
	}
	for _, s := range append(scenarios(), hasty()...) {
		t.Run(s.title(), func(t *testing.T) {
			t.Parallel()
			length := throughRewind(t, s, setBack{})
			for at := uint64(1); at <= length; at++ {
				for i, by := range []uint64{1, 3, at - 1, at} { // all but the message, and all
					for _, noticed := range []bool{false, true} {
						point := at*8 + uint64(i)*2
						if noticed {
							point++
						}
						if point%stride == 0 && by > 0 && by <= at && (noticed || by < at) {
							throughRewind(t, s, setBack{at, by, noticed})
						}
					}
				}
			}
		})
	}
}
