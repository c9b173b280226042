package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// truth is what a session's log says.
type truth struct {
	records   []chunk.Record
	fold      *fold.Fold
	turn      *fold.Turn // the last one
	retracted bool       // something that readers saw of it was discarded
	err       error
}

// truth reads a session's log from the store.
func (w *world) truth(session string) *truth {
	t := &truth{fold: fold.New(session)}
	t.records, t.err = w.store.records(session)
	for _, r := range t.records {
		if err := t.fold.Apply(r); err != nil && t.err == nil {
			t.err = err
		}
	}
	if t.turn = t.fold.LastTurn(); t.turn == nil {
		return t
	}
	for _, r := range t.records {
		t.retracted = t.retracted || r.Seq > t.turn.Start() && r.Type == chunk.TypeStepDiscarded
	}
	return t
}

// shows reports whether a reader shows a turn of the log that is not the last one.
func (t *truth) shows(r reader) bool {
	for _, turn := range t.fold.Turns {
		other := *t
		if other.turn = turn; r.compare(&other) == "" && other.err == nil {
			return true
		}
	}
	return false
}

// plan is the shortest stream of the turn.
func (t *truth) plan(p wire.Profile) (stream []byte) {
	projector := p.Projector(wire.Subject{Turn: t.turn.ID, Agent: t.fold.Session, Resolve: func(v json.RawMessage) (json.RawMessage, error) { return v, nil }})
	end := t.fold.Seq
	if i := slices.Index(t.fold.Turns, t.turn); i+1 < len(t.fold.Turns) {
		end = t.fold.Turns[i+1].Runs[0].Start - 1 // a message ends a pause, and is before what that adds
	}
	for _, r := range t.records {
		if r.Seq <= t.turn.Start() || r.Seq > end {
			continue
		}
		if _, err := projector.Apply(nil, r); err != nil {
			t.err = err
			return nil
		}
	}
	frames, err := projector.Plan()
	if err != nil {
		t.err = err
	}
	for _, f := range frames {
		stream = append(stream, f.Data...)
	}
	return stream
}

// compare holds what readers show of a turn that is over against the log.
func (u *user) compare(readers []reader) {
	t := u.w.truth(u.name)
	for _, r := range readers {
		if t.err == nil && t.turn != nil {
			wrong := r.compare(t)
			// After a loss a turn that was over may have gone on, which a reader then shows.
			// Positions that only count name no incarnation: they cannot tell.
			if _, counted := r.(*counter); wrong != "" && u.w.store.lost() > 0 && (counted || t.shows(r)) {
				u.says("%s does not show turn %s", r, t.turn.ID)
				continue
			}
			if wrong != "" {
				u.w.fail("%s, turn %s on %s: %s", u.name, t.turn.ID, r, wrong)
			}
		}
	}
	if t.err != nil || t.turn == nil {
		u.w.fail("%s: the log cannot be read: %d records, turn %v, %v", u.name, len(t.records), t.turn, t.err)
	}
}

// check checks everything that must hold in the end.
func (w *world) check(users []*user, producers []*producer) {
	for _, u := range users {
		t := w.truth(u.name)
		w.checkLog(u.name, t)
		w.checkSeen(u, t)
		w.checkSnapshots(u, t)
	}
	for _, p := range producers {
		t := w.truth(p.name)
		w.checkLog(p.name, t)
		p.check(t)
	}
}

// checkLog checks a session's log: it is what was acknowledged, it can be folded from
// the kept records alone, and nothing in it is open.
func (w *world) checkLog(session string, t *truth) {
	if t.err != nil {
		w.fail("%s: %v", session, t.err)
		return
	}
	want := w.store.acknowledged(session)
	for i := range max(len(want), len(t.records)) {
		if i >= len(want) || i >= len(t.records) || t.records[i].Seq != uint64(i)+1 || string(want[i].Data) != string(t.records[i].Data) {
			w.fail("%s: the log has %d records, %d were acknowledged, and record %d is another one", session, len(t.records), len(want), i+1)
			break
		}
	}
	kept := fold.New(session)
	for _, r := range t.records {
		w.count(string(r.Type))
		if r.Class == chunk.Kept {
			if err := kept.Apply(r); err != nil {
				w.fail("%s: %v", session, err)
				return
			}
		}
	}
	kept.Seq = t.fold.Seq
	if got, want := mustJSON(kept), mustJSON(t.fold); got != want {
		w.fail("%s: the kept records say\n  %s\nand all records\n  %s", session, got, want)
	}
	if t.fold.OpenRun() != nil || t.fold.Live() || len(t.fold.Waiting) > 0 {
		w.fail("%s is not settled: %s %s", session, t.fold.Status, t.fold.Reason)
	}
	ids := map[string]bool{}
	for _, m := range t.fold.Messages {
		if ids[m.ID] {
			w.fail("%s: message %s is there twice", session, m.ID)
		}
		ids[m.ID] = true
		for _, p := range m.Parts {
			if p.Open || p.Tool != nil && !p.Tool.State.Done() && t.fold.Status != chunk.StatusPaused {
				w.fail("%s: left open: %s", session, mustJSON(p))
			}
		}
	}
}

// checkSeen checks that what a reader of the log saw is the log.
func (w *world) checkSeen(u *user, t *truth) {
	for range 2 { // the first may find that the store was set back
		if _, err := u.readLog(); err != nil {
			w.fail("%s: reading to the end: %v", u.name, err)
		}
	}
	if len(u.seen) != len(t.records) {
		w.fail("%s saw %d records of %d", u.name, len(u.seen), len(t.records))
		return
	}
	for i, r := range u.seen {
		if string(r.Data) != string(t.records[i].Data) {
			w.fail("%s saw as record %d\n  %s\nand it is\n  %s", u.name, r.Seq, r.Data, t.records[i].Data)
			return
		}
	}
}

// checkSnapshots checks that nodes show the messages of the fold.
func (w *world) checkSnapshots(u *user, t *truth) {
	messages := t.fold.Snapshot(fold.SnapshotOptions{}).Messages
	want := mustJSON(aisdk.ConvertToUIMessages(messages, &aisdk.ConvertOptions{Children: func(m *chunk.Message) (string, []*aisdk.SubAgent) {
		return u.name, aisdk.SubAgentsOf(t.fold, m.ID)[m.ID]
	}}))
	for range 3 {
		snap, err := u.session.Snapshot(context.Background(), client.SnapshotOptions{})
		if errors.Is(err, spool.ErrNotFound) && len(t.records) == 0 {
			return
		}
		if err != nil {
			w.fail("%s: a snapshot: %v", u.name, err)
			return
		}
		if wrong := differs(mustJSON(snap.Messages), want); wrong != "" {
			w.fail("%s: a snapshot at %d: %s", u.name, snap.StreamSequence, wrong)
		}
	}
}
