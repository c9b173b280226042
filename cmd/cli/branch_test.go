package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spool-run/spool/server/frontend"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/wire/aisdk"
)

// A session that branches at any checkpoint and continues comes to what the source came
// to: the same message, but for the mark of the pause, and the same state. And so
// does a branch of that branch.
func TestEveryBranchGoesOn(t *testing.T) {
	t.Parallel()
	store, err := sqlitestore.Open(filepath.Join(t.TempDir(), "branch.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	logs, end := runAgent(t, store, demoAgent(scripted.New(nil), 0, demoLimits{}))
	defer end()
	front := &frontend.Deps{Deps: chat.Deps{Logs: logs, ContentReplay: true}}
	d := &front.Deps
	// settled waits for the session to rest, and says what it then holds.
	settled := func(session string) (parts, state string) {
		t.Helper()
		g, err := logs.Log(session)
		if err != nil {
			t.Fatal(err)
		}
		for live := true; live; {
			h, err := store.Head(t.Context(), session)
			if err == nil {
				err = g.View(t.Context(), func(f *fold.Fold) error { live = f.Live(); return nil })
			}
			if err == nil && live {
				_, _, err = store.Wait(t.Context(), session, h)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s, err := frontend.BuildSnapshot(t.Context(), front, frontend.SnapshotParams{Session: session})
		if err != nil {
			t.Fatal(err)
		}
		m := s.Messages[len(s.Messages)-1]
		m.Parts = slices.DeleteFunc(m.Parts, func(p aisdk.UIPart) bool { return p.Type == "data-run-interrupted" })
		data, err := json.Marshal(m.Parts)
		if err != nil {
			t.Fatal(err)
		}
		if s.Status != chunk.StatusEnded || s.Reason != "completed" {
			t.Fatalf("%s: %s, %s", session, s.Status, s.Reason)
		}
		return string(data), string(s.State)
	}
	for _, scene := range []string{"branch", "tools"} {
		b, err := frontend.ParseBody([]byte(`{"message":"` + scene + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chat.Handle(t.Context(), d, chat.Params{Session: scene, Body: b, Profile: aisdk.Options{}.Profile()}); err != nil {
			t.Fatal(err)
		}
		parts, state := settled(scene)
		page, err := chat.Checkpoints(t.Context(), d, scene, chat.CheckpointsOptions{})
		if err != nil || len(page.Items) < 3 {
			t.Fatalf("%d checkpoints, %v", len(page.Items), err)
		}
		for i, c := range page.Items {
			for _, source := range []string{scene, fmt.Sprintf("%s-%d", scene, i)} {
				to := fmt.Sprintf("%s-%d", source, i)
				made, err := chat.Branch(t.Context(), d, source, chat.BranchOptions{CheckpointID: c.ID, Session: to})
				if err != nil {
					t.Fatalf("%s at %s: %v", to, c.ID, err)
				}
				if paused := made.Status == chunk.StatusPaused; paused == (i == len(page.Items)-1) {
					t.Errorf("%s is %s", to, made.Status)
				} else if paused {
					if _, err := chat.Resume(t.Context(), d, to, chat.ResumeOptions{Mode: chunk.ModeContinue}); err != nil {
						t.Fatalf("%s: %v", to, err)
					}
				}
				gotParts, gotState := settled(to)
				if gotParts != parts || gotState != state {
					t.Errorf("%s:\n%s\n%s\nits source:\n%s\n%s", to, gotParts, gotState, parts, state)
				}
			}
		}
	}
}
