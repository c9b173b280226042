package sim_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/store/storetest"
	"github.com/spool-run/spool/tool"
)

// audit is the store that all nodes share. It compares what the engine answers with what
// a store must answer, and remembers what was acknowledged.
type audit struct {
	storetest.Engine // what is not checked
	w                *world
	memory           *memstore.Store
	options          *memstore.Options
	rewound          *storetest.Rewound

	mu       sync.Mutex
	sessions map[string]*audited
	highest  map[string]uint64 // epochs, whatever the store was set back to
	losses   int               // how often it was set back
	pending  bool              // it is about to be
	old      []*memstore.Store // that it was before
}

// audited is what was acknowledged of a session.
type audited struct {
	epoch    uint64
	owner    string
	claim    string
	ttl      time.Duration
	until    time.Time // when the lease ends
	released bool
	records  []chunk.Record
	appends  map[written]spool.Appended
	finished map[call]bool // that have an outcome
	answered map[step]bool // model phases whose answer can be resumed
}

type written struct {
	epoch   uint64
	writer  string
	ordinal uint64
}

// step is a model phase of an agent, and call one of its calls.
type step struct {
	agent, run string
	number     int
}

type call struct{ agent, id string }

func newAudit(w *world, m *memstore.Store, o *memstore.Options) *audit {
	r := storetest.NewRewound(w.spoil(m))
	return &audit{Engine: r, w: w, memory: m, options: o, rewound: r, sessions: map[string]*audited{}, highest: map[string]uint64{}}
}

func (w *world) spoil(e storetest.Engine) storetest.Engine {
	if w.spoiled.store == nil {
		return e
	}
	return w.spoiled.store(e)
}

func (a *audit) close() {
	for _, m := range append(a.old, a.memory) {
		_ = m.Close()
	}
}

// of returns a session's state, under mu.
func (a *audit) of(session string) *audited {
	s := a.sessions[session]
	if s == nil {
		s = &audited{appends: map[written]spool.Appended{}, finished: map[call]bool{}, answered: map[step]bool{}}
		a.sessions[session] = s
	}
	return s
}

func (s *audited) clone() *audited {
	c := *s
	c.records = slices.Clip(s.records)
	c.appends, c.finished, c.answered = maps.Clone(s.appends), maps.Clone(s.finished), maps.Clone(s.answered)
	return &c
}

func (a *audit) Append(ctx context.Context, x spool.Append) (spool.Appended, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	res, err := a.Engine.Append(ctx, x)
	if err == nil {
		a.appended(&x, &res)
	}
	return res, err
}

func (a *audit) appended(x *spool.Append, res *spool.Appended) {
	s := a.of(x.Session)
	key := written{x.Epoch, x.Writer, x.Ordinal}
	before, known := s.appends[key]
	switch {
	case x.Epoch > 0 && x.Epoch != s.epoch:
		a.w.fail("%s: an append under epoch %d was taken after a claim under epoch %d", x.Session, x.Epoch, s.epoch)
		return
	case known != res.Repeated:
		a.w.fail("%s: append %+v was made before: %v, and answered as a repeat: %v", x.Session, key, known, res.Repeated)
		return
	case known && (before.First != res.First || before.Last != res.Last):
		a.w.fail("%s: append %+v is at %d–%d, and was at %d–%d", x.Session, key, res.First, res.Last, before.First, before.Last)
		return
	}
	if x.Epoch > 0 && !s.released {
		s.until = time.Now().Add(s.ttl)
	}
	if known {
		return
	}
	if n := uint64(len(s.records)); len(x.Records) > 0 && (res.First != n+1 || res.Last != n+uint64(len(x.Records))) {
		a.w.fail("%s: %d records are stored at %d–%d after %d", x.Session, len(x.Records), res.First, res.Last, n)
		return
	}
	if x.Ordinal > 0 {
		s.appends[key] = *res
	}
	for i, r := range x.Records {
		r.Seq = res.First + uint64(i)
		s.records = append(s.records, r)
		s.note(&r)
	}
}

// note remembers what tools and models must know of.
func (s *audited) note(r *chunk.Record) {
	switch r.Type {
	case chunk.TypeToolEnd, chunk.TypeAnswerStarted:
	default:
		return
	}
	var c struct {
		ToolCallID  string `json:"toolCallId"`
		Preliminary bool   `json:"preliminary"`
		RunID       string `json:"runId"`
		Step        int    `json:"step"`
	}
	if json.Unmarshal(r.Data, &c) != nil {
		return
	}
	if r.Type == chunk.TypeAnswerStarted {
		s.answered[step{r.Agent, c.RunID, c.Step}] = true
	} else if !c.Preliminary {
		s.finished[call{r.Agent, c.ToolCallID}] = true
	}
}

func (a *audit) Claim(ctx context.Context, c spool.Claim) (spool.Lease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, err := a.Engine.Claim(ctx, c)
	if err != nil {
		return l, err
	}
	s, now := a.of(l.Session), time.Now()
	switch {
	case c.ID != "" && l.Epoch == s.epoch && c.ID == s.claim && c.Owner == s.owner: // a repeat
	case l.Epoch <= a.highest[l.Session]:
		a.w.fail("%s: epoch %d was given out after %d", l.Session, l.Epoch, a.highest[l.Session])
	case !c.Force && !s.released && now.Add(time.Millisecond).Before(s.until): // stores count in milliseconds
		a.w.fail("%s: %s got the session, and %s still had it for %v", l.Session, c.Owner, s.owner, s.until.Sub(now))
	}
	s.epoch, s.owner, s.claim, s.released = l.Epoch, c.Owner, c.ID, false
	s.ttl = c.TTL
	if s.ttl == 0 {
		s.ttl = spool.DefaultLeaseTTL
	}
	s.until = now.Add(s.ttl)
	a.highest[l.Session] = max(a.highest[l.Session], l.Epoch)
	return l, nil
}

func (a *audit) Renew(ctx context.Context, l spool.Lease) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.Engine.Renew(ctx, l)
	if err == nil {
		s := a.of(l.Session)
		if s.epoch != l.Epoch || s.released {
			a.w.fail("%s: the lease of epoch %d was renewed; the latest is %d, released: %v", l.Session, l.Epoch, s.epoch, s.released)
		}
		s.until = time.Now().Add(s.ttl)
	}
	return err
}

func (a *audit) Release(ctx context.Context, l spool.Lease) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.Engine.Release(ctx, l)
	if s := a.of(l.Session); err == nil && s.epoch == l.Epoch {
		s.released = true
	}
	return err
}

// setBack takes the store's state of now, and puts it back after a while: as a replica
// that was promoted, or a backup that was restored.
func (a *audit) setBack(after time.Duration) {
	a.mu.Lock()
	if a.pending {
		a.mu.Unlock()
		return
	}
	a.pending = true
	fork := a.memory.Fork(a.options)
	then := map[string]*audited{}
	for id, s := range a.sessions {
		then[id] = s.clone()
	}
	a.mu.Unlock()
	a.w.ended.Go(func() {
		time.Sleep(after)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.pending = false
		if a.w.isCalm() {
			return
		}
		a.w.happened("the store is set back by %v", after)
		old := a.memory
		fork.Raise()
		a.memory, a.sessions = fork, then
		for _, s := range a.sessions {
			s.epoch, s.until, s.appends = 0, time.Time{}, map[written]spool.Appended{}
		}
		a.losses++
		a.rewound.Set(a.w.spoil(fork))
		a.old = append(a.old, old)
	})
}

// lost is how often the store was set back.
func (a *audit) lost() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.losses
}

// acknowledged returns what the session's log must be.
func (a *audit) acknowledged(session string) []chunk.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clip(a.of(session).records)
}

func (a *audit) isFinished(c tool.Call) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of(chunk.RootID(c.Session)).finished[call{c.Session, c.ID}]
}

func (a *audit) isAnswered(at step) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of(chunk.RootID(at.agent)).answered[at]
}

// records reads what the store has.
func (a *audit) records(session string) (all []chunk.Record, err error) {
	for {
		var after uint64
		if n := len(all); n > 0 {
			after = all[n-1].Seq
		}
		page, _, err := a.Engine.Read(context.Background(), session, after, 0)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
	}
}
