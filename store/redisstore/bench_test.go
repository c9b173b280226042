//go:build nodes

package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/storetest"
)

func BenchmarkStore(b *testing.B) {
	server := engines.Redis(b, "--appendfsync", "everysec")
	storetest.Bench(b, func(t testing.TB) spool.Store { return newPlace(t, server, false, "").open(t) })
}

// BenchmarkAgainstRedis has the store and bare commands of Redis do the same in turn, on one
// server. An iteration is a round of both. ratio is the median of the rounds' ratios of rates,
// from low to high: 1 is as fast as Redis, 0.5 half as fast.
func BenchmarkAgainstRedis(b *testing.B) {
	server := engines.Redis(b, "--appendfsync", "everysec")
	bare, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true, PipelineMultiplex: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	for _, size := range []int{1, 10, 100} {
		for name, append := range map[string]func(b *testing.B, c rueidis.Client, size int) func(){"XADD": bareXadd, "EVALSHA": bareScript} {
			b.Run(fmt.Sprintf("Append/batch=%d/%s", size, name), func(b *testing.B) {
				s := newPlace(b, server, false, "").open(b)
				compare(b, max(2000/size, 50), storeAppend(b, s, size), append(b, bare, size))
			})
		}
	}
	b.Run("Deliver", func(b *testing.B) { benchDeliver(b, server, bare) })
	b.Run("CatchUp/20000", func(b *testing.B) { benchCatchUp(b, server, bare) })
	b.Run("CallsPerDelta", func(b *testing.B) { benchCalls(b, server) })
}

// compare has both do it so often in each round.
func compare(b *testing.B, times int, ours, bare func()) {
	var ratios []float64
	var took [2]time.Duration
	measure := func(i int, f func()) time.Duration {
		start := time.Now()
		for range times {
			f()
		}
		t := time.Since(start)
		took[i] += t
		return t
	}
	for b.Loop() {
		floor := measure(1, bare)
		ratios = append(ratios, floor.Seconds()/measure(0, ours).Seconds())
	}
	slices.Sort(ratios)
	n := float64(times * len(ratios))
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(ratios[0], "low")
	b.ReportMetric(ratios[len(ratios)-1], "high")
	b.ReportMetric(float64(took[0].Microseconds())/n, "store-µs")
	b.ReportMetric(float64(took[1].Microseconds())/n, "redis-µs")
}

// delta is a record's data, of 120 bytes of JSON.
var delta = []byte(`{"type":"text_delta","delta":"` + strings.Repeat("x", 88) + `"}`)

func deltas(n int) []chunk.Record {
	out := make([]chunk.Record, n)
	for i := range out {
		out[i] = chunk.Record{Type: chunk.TypeTextDelta, Agent: "s", Time: 1795392518078, Class: chunk.Trace, Data: delta}
	}
	return out
}

func storeAppend(b *testing.B, s spool.Store, size int) func() {
	l, err := s.(spool.Leaser).Claim(b.Context(), spool.Claim{Owner: "o", Session: "s", Force: true, TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	records, n := deltas(size), uint64(0)
	return func() {
		n++
		if _, err := s.Append(b.Context(), spool.Append{Session: "s", Epoch: l.Epoch, Writer: "w", Ordinal: n, Records: records}); err != nil {
			b.Fatal(err)
		}
	}
}

// bareXadd sends the records as commands of one pipeline.
func bareXadd(b *testing.B, c rueidis.Client, size int) func() {
	key, records := "xadd"+strconv.Itoa(size), deltas(size)
	return func() {
		commands := make([]rueidis.Completed, size)
		for i := range commands {
			commands[i] = c.B().Xadd().Key(key).Id("*").FieldValue().FieldValue("h", header(&records[i])).FieldValue("d", string(records[i].Data)).Build()
		}
		for _, r := range c.DoMulti(b.Context(), commands...) {
			if err := r.Error(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// bareScript sends them as arguments of a script that does nothing else.
func bareScript(b *testing.B, c rueidis.Client, size int) func() {
	script := rueidis.NewLuaScript(`for i = 1, #ARGV, 2 do redis.call('XADD', KEYS[1], '*', 'h', ARGV[i], 'd', ARGV[i + 1]) end return 1`)
	keys, records := []string{"script" + strconv.Itoa(size)}, deltas(size)
	return func() {
		args := make([]string, 0, 2*size)
		for i := range records {
			args = append(args, header(&records[i]), string(records[i].Data))
		}
		if err := script.Exec(b.Context(), c, keys, args).Error(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchDeliver measures from before an append, or a PUBLISH of the same bytes, until a reader
// with connections of its own has the record.
func benchDeliver(b *testing.B, server *engines.Server, bare rueidis.Client) {
	p := newPlace(b, server, false, "")
	s, other := p.open(b), p.open(b)
	ours := storeAppend(b, s, 1)
	ctx, cancel := context.WithCancel(b.Context())
	got, heard := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{}, 2)
	defer func() { cancel(); <-ended; <-ended }()
	seen, err := other.Head(ctx, "s")
	if err != nil {
		b.Fatal(err)
	}
	send := func(to chan struct{}) {
		select {
		case to <- struct{}{}:
		case <-ctx.Done():
		}
	}
	go func() {
		defer func() { ended <- struct{}{} }()
		for {
			h, records, err := other.Wait(ctx, "s", seen)
			if err == nil && len(records) == 0 {
				records, h, err = other.Read(ctx, "s", seen.Seq, 0)
			}
			if err != nil {
				return
			}
			if seen = h; len(records) > 0 {
				send(got)
			}
		}
	}()
	listener, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	subscribed := make(chan struct{})
	go func() {
		defer func() { ended <- struct{}{} }()
		hooked, release := listener.Dedicate()
		defer release()
		broken := hooked.SetPubSubHooks(rueidis.PubSubHooks{
			OnSubscription: func(rueidis.PubSubSubscription) { close(subscribed) },
			OnMessage:      func(rueidis.PubSubMessage) { send(heard) },
		})
		if err := hooked.Do(ctx, hooked.B().Subscribe().Channel("bare").Build()).Error(); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-broken:
		}
	}()
	<-subscribed
	compare(b, 500, func() { ours(); <-got }, func() {
		if err := bare.Do(ctx, bare.B().Publish().Channel("bare").Message(string(delta)).Build()).Error(); err != nil {
			b.Fatal(err)
		}
		<-heard
	})
}

// benchCatchUp reads 20,000 records in pages, as readers do, against XRANGE.
func benchCatchUp(b *testing.B, server *engines.Server, bare rueidis.Client) {
	const n, page = 20_000, 1000
	s := newPlace(b, server, false, "").open(b)
	ours, floor := storeAppend(b, s, page), bareXadd(b, bare, page)
	for range n / page {
		ours()
		floor()
	}
	key := "xadd" + strconv.Itoa(page)
	compare(b, 1, func() {
		for after := uint64(0); after < n; {
			records, _, err := s.Read(b.Context(), "s", after, page)
			if err != nil || len(records) == 0 {
				b.Fatalf("after %d: %d records, %v", after, len(records), err)
			}
			after = records[len(records)-1].Seq
		}
	}, func() {
		from := "-"
		for read := 0; read < n; {
			entries, err := bare.Do(b.Context(), bare.B().Xrange().Key(key).Start(from).End("+").Count(page).Build()).AsXRange()
			if err != nil || len(entries) == 0 {
				b.Fatalf("after %d: %d entries, %v", read, len(entries), err)
			}
			read, from = read+len(entries), "("+entries[len(entries)-1].ID
		}
	})
}

// benchCalls counts the scripts that the server runs for each delta that a viewer in another
// process follows, the append included.
func benchCalls(b *testing.B, server *engines.Server) {
	p := newPlace(b, server, false, "")
	s, other := p.open(b), p.open(b)
	logs := spool.NewLogs(other, nil)
	defer logs.Close()
	ours := storeAppend(b, s, 1)
	g, err := logs.Log("s")
	if err != nil {
		b.Fatal(err)
	}
	r := g.Reader(spool.ReadOptions{Follow: true})
	follow := func(n int) {
		for got := 0; got < n; {
			records, err := r.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			got += len(records)
		}
	}
	ours()
	follow(1)
	calls := func() int {
		text, err := do(b, server, "INFO", "commandstats").ToString()
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, command := range []string{"evalsha", "xrange"} {
			_, rest, _ := strings.Cut(text, "cmdstat_"+command+":calls=")
			count, _, _ := strings.Cut(rest, ",")
			some, _ := strconv.Atoi(count)
			n += some
		}
		return n
	}
	before, n := calls(), 0
	for b.Loop() {
		ours()
		follow(1)
		n++
	}
	b.ReportMetric(float64(calls()-before)/float64(n), "calls/delta")
}
