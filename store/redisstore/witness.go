package redisstore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool"
)

// A server that was restarted may have lost records. Whether it has, its data cannot tell: a
// backup is as consistent as what it replaced. Two things together can. The server synced each
// write before it answered, before its end and after it, and no replica can have taken its
// place. And a process that saw the server within its last two seconds finds all that it saw.
// Then nothing was lost, and the session's numbers stay. Otherwise a restart counts as a loss.

// sight is what a process saw of a bucket when it looked last.
type sight struct {
	server, clock, base, safe, node string
}

// lookEvery is how often a process looks, so that what it saw is fresh when a server ends.
const lookEvery = time.Second

// watch looks at the servers until the store is closed.
func (s *Store) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = s.within(s.ctx, s.check) // the next look, or call, finds out
		case <-s.ctx.Done():
			return
		}
	}
}

// check has every bucket's server compared with the one that was noted, and with what this
// process saw last.
func (s *Store) check(ctx context.Context) error {
	s.checking.Lock()
	defer s.checking.Unlock()
	const rounds = 3
	for round := 1; ; round++ {
		dials := s.dials.Load()
		ask, err := s.compare(ctx, dials, round == rounds)
		if ask { // a server that could not be reached when it was asked for its settings
			continue
		}
		if err == nil {
			s.verified.Store(dials)
		}
		return err
	}
}

// compare looks at every bucket's server. It reports whether one has to be asked for its
// settings first.
func (s *Store) compare(ctx context.Context, dials int64, last bool) (ask bool, err error) {
	settings := s.settings(ctx)
	commands := make([]rueidis.Completed, len(s.tags))
	for i, tag := range s.tags {
		saw := &s.saw[i]
		commands[i] = s.client.B().Eval().Script(checkText).Numkeys(1).Key(tag).
			Arg(saw.server, saw.clock, saw.base, saw.safe, saw.node, settings, flag(last)).Build()
	}
	results := s.client.DoMulti(ctx, commands...)
	same := s.dials.Load() == dials // otherwise the settings may be those of a server that has ended
	for i, r := range results {
		list, failed := r.ToArray()
		if failed != nil {
			err = translate(failed)
			continue
		}
		now := reply(list)
		switch now.text(0) {
		case "ok":
			s.saw[i] = sight{now.text(1), now.text(2), now.text(3), flag(same && now.text(4) == "1"), now.text(5)}
		case "ask":
			ask = true
		default:
			err = spool.ErrUnavailable.Because("the Redis server is a replica").With("", spool.ErrNotStored)
		}
	}
	return ask, err
}

// settings tells which servers sync each change to their disks before they answer, as check.lua
// has it. Those that cannot be reached are left out: they may have no part of the store.
func (s *Store) settings(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	var (
		asked sync.WaitGroup
		mu    sync.Mutex
		all   strings.Builder
	)
	for _, node := range s.client.Nodes() {
		asked.Go(func() {
			if said, ok := s.ask(ctx, node); ok {
				mu.Lock()
				defer mu.Unlock()
				all.WriteString(said)
			}
		})
	}
	asked.Wait()
	return all.String()
}

// ask asks a server for its settings. One that refuses to tell them does not sync.
func (s *Store) ask(ctx context.Context, node rueidis.Client) (said string, ok bool) {
	id := ""
	if s.client.Mode() == rueidis.ClientModeCluster {
		var err error
		if id, err = node.Do(ctx, node.B().ClusterMyid().Build()).ToString(); err != nil {
			if _, refused := rueidis.IsRedisErr(err); !refused {
				return "", false
			}
			id = "unknown"
		}
	}
	has, err := node.Do(ctx, node.B().ConfigGet().Parameter("*append*").Build()).AsStrMap()
	if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
		return "", false
	}
	synced := has["appendonly"] == "yes" && has["appendfsync"] == "always" && has["no-appendfsync-on-rewrite"] == "no"
	return " " + id + "=" + flag(synced), true
}
