package server_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
)

// raisedAt is a store that is told of a loss at a chosen moment of a command's append.
type raisedAt struct {
	*storetest.Rewound
	moment string
	mu     sync.Mutex
	armed  bool
	raise  chan struct{} // closed when the loss may be told
	raised chan struct{} // closed when it is
}

func (r *raisedAt) RaiseAbove(ctx context.Context, session string, known spool.Head) (spool.Head, error) {
	<-r.raise
	defer close(r.raised)
	return r.Rewound.RaiseAbove(ctx, session, known)
}

func (r *raisedAt) at(moment string) {
	r.mu.Lock()
	now := r.armed && moment == r.moment
	r.armed = r.armed && !now
	r.mu.Unlock()
	if now {
		close(r.raise)
		<-r.raised
	}
}

func (r *raisedAt) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	r.at("before")
	res, err := r.Rewound.Append(ctx, a)
	r.at("after")
	return res, err
}

// The first requests after a loss that the store has not noticed find it out themselves, and
// the incarnation is raised beside them. They are served all the same: a message is taken
// once and answered, a snapshot says what there is.
func TestRequestsRightAfterALoss(t *testing.T) {
	for _, moment := range []string{"before", "after"} {
		t.Run(moment, func(t *testing.T) {
			engine := memstore.New(nil)
			store := &raisedAt{Rewound: storetest.NewRewound(engine), moment: moment, raise: make(chan struct{}), raised: make(chan struct{})}
			logs := spool.NewLogs(store, nil)
			k := &kit{T: t, logs: logs, srv: server.New(logs, nil)}
			k.http = httptest.NewServer(asDescribed(t, k.srv))
			t.Cleanup(func() {
				k.http.CloseClientConnections()
				k.http.Close()
				_ = logs.Close()
				_ = engine.Close()
			})
			turn := func(id, text string) {
				post := k.say("s", id, "hi")
				o := k.own("s")
				o.start(id)
				o.text(text)
				o.finish()
				if got := datas(post.all()); !strings.Contains(got, `"`+text+`"`) || !strings.HasSuffix(strings.TrimSpace(got), "[DONE]") {
					t.Errorf("the answer to %s: %s", id, got)
				}
			}
			turn("u1", "kept")
			early := engine.Fork(nil)
			turn("u2", "lost")
			store.mu.Lock()
			store.armed = true
			store.mu.Unlock()
			store.Set(early)

			turn("u3", "again")
			got := string(k.status(200, "GET", "/api/chat/s/snapshot", ""))
			if !strings.Contains(got, "kept") || strings.Contains(got, "lost") || strings.Count(got, "again") != 1 {
				t.Errorf("the snapshot: %s", got)
			}
		})
	}
}
