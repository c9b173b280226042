package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
)

// named says who makes a request by a header.
func named(r *http.Request) (string, error) { return r.Header.Get("Who"), nil }

// Of several principals who create a session with the same id, by a message or by a
// producer's claim, one has it. The others are refused, and nothing of theirs is in it.
func TestCreationRace(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Principal: named, Authorize: func(_ context.Context, a server.Access) error {
		if a.Owner != a.Principal {
			return errors.New("not yours")
		}
		return nil
	}})
	for round := range 25 {
		session := fmt.Sprint("s", round)
		status := map[string]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i, who := range []string{"ann", "bob", ""} {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				path, body := "/api/chat/"+session, userBody(session, "by-"+who, "of "+who)
				if (round+i)%3 == 0 {
					path, body = "/stream/"+session+"?claim", ""
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.http.URL+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Who", who)
				res, err := k.http.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_ = res.Body.Close()
				mu.Lock()
				defer mu.Unlock()
				status[who] = res.StatusCode
			})
		}
		wg.Wait()
		h, err := k.store.Head(t.Context(), session)
		if err != nil {
			t.Fatal(err)
		}
		winners := 0
		for who, code := range status {
			if code != http.StatusOK {
				continue
			}
			if winners++; h.Principal != who {
				t.Errorf("%q was told 200, and the session is %q's", who, h.Principal)
			}
		}
		if winners != 1 {
			t.Errorf("one of three creates the session, they were answered %v", status)
		}
		recs, _, err := k.store.Read(t.Context(), session, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			for who := range status {
				if who != h.Principal && strings.Contains(string(r.Data), `"of `+who+`"`) {
					t.Errorf("the session of %q holds %s", h.Principal, r.Data)
				}
			}
		}
	}
}

// A turn that is begun from Go can belong to somebody.
func TestExecuteForAPrincipal(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	in := runner.Text("hello")
	in.Session, in.Principal = "s", "ann"
	if _, err := runner.Execute(t.Context(), k.logs, in); err != nil {
		t.Fatal(err)
	}
	if h, err := k.store.Head(t.Context(), "s"); err != nil || h.Principal != "ann" {
		t.Fatalf("%+v, %v", h, err)
	}
}

// The principal of a session stays its own when others write into it.
func TestPrincipalStays(t *testing.T) {
	t.Parallel()
	k := newKit(t, &server.Options{Principal: named, Authorize: func(context.Context, server.Access) error { return nil }})
	for _, first := range []string{"ann", ""} {
		session := "of-" + first
		k.stream("POST", "/api/chat/"+session, userBody(session, "m1", "hello"), "Who", first)
		o := k.own(session)
		o.start("m1")
		o.finish()
		k.stream("POST", "/api/chat/"+session, userBody(session, "m2", "and mine"), "Who", "bob")
		o = k.own(session)
		o.start("m2")
		o.finish()
		var run struct {
			Epoch uint64 `json:"epoch"`
		}
		if err := json.Unmarshal(k.status(http.StatusOK, "POST", "/stream/"+session+"?claim", "", "Who", "bob"), &run); err != nil || run.Epoch == 0 {
			t.Fatalf("%+v, %v", run, err)
		}
		h, err := k.store.Head(t.Context(), session)
		if err != nil || h.Principal != first {
			t.Errorf("%q's session is %q's now (%v)", first, h.Principal, err)
		}
		page, err := k.store.Sessions(t.Context(), spool.SessionQuery{Principal: "bob"})
		if err != nil || len(page.Sessions) > 0 {
			t.Errorf("bob has %v (%v)", page.Sessions, err)
		}
	}
}
