package stream

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool/chunk"
)

// streamOf yields items, then err if there is one, and notes when it is released.
func streamOf[T any](items []T, err error, released *int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		defer func() {
			if released != nil {
				*released++
			}
		}()
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

func mixed() []chunk.Chunk {
	return []chunk.Chunk{
		&chunk.TextDelta{Base: chunk.Base{AgentID: "s", AgentType: "writer"}, Delta: "Hel"},
		&chunk.Thinking{Base: chunk.Base{AgentID: "s", AgentType: "writer"}, Content: "hm"},
		&chunk.TextDelta{Base: chunk.Base{AgentID: "s.1", AgentType: "helper"}, Delta: "<child>"},
		&chunk.TextDelta{Base: chunk.Base{AgentID: "s", AgentType: "writer"}, Delta: "lo"},
		&chunk.ToolStart{Base: chunk.Base{AgentID: "s.1", AgentType: "helper"}, ToolCallID: "c", ToolName: "t"},
	}
}

func mixedRecords(t *testing.T) []chunk.Record {
	var list []chunk.Record
	for i, c := range mixed() {
		data, err := chunk.Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, chunk.Record{Seq: uint64(i + 1), Type: c.ChunkType(), Agent: c.ChunkBase().AgentID, Data: data})
	}
	return list
}

// picked runs a filter over chunks and over records and names what passes.
func picked(t *testing.T, chunks iter.Seq2[chunk.Chunk, error], records iter.Seq2[chunk.Record, error]) []int {
	t.Helper()
	var byChunk, byRecord []int
	all := mixed()
	for c, err := range chunks {
		if err != nil {
			t.Fatal(err)
		}
		byChunk = append(byChunk, slices.IndexFunc(all, func(d chunk.Chunk) bool {
			a, _ := chunk.Append(nil, c)
			b, _ := chunk.Append(nil, d)
			return string(a) == string(b)
		}))
	}
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		byRecord = append(byRecord, int(r.Seq)-1)
	}
	if !slices.Equal(byChunk, byRecord) {
		t.Errorf("chunks %v, records %v", byChunk, byRecord)
	}
	return byChunk
}

func TestFilters(t *testing.T) {
	t.Parallel()
	chunks, records := streamOf(mixed(), nil, nil), streamOf(mixedRecords(t), nil, nil)
	for name, tt := range map[string]struct{ got, want []int }{
		"agent":      {picked(t, FilterByAgentID(chunks, "s"), FilterByAgentID(records, "s")), []int{0, 1, 3}},
		"agent type": {picked(t, FilterByAgentType(chunks, "helper"), FilterByAgentType(records, "helper")), []int{2, 4}},
		"one type":   {picked(t, FilterByType(chunks, chunk.TypeThinking), FilterByType(records, chunk.TypeThinking)), []int{1}},
		"two types":  {picked(t, FilterByType(chunks, chunk.TypeThinking, chunk.TypeToolStart), FilterByType(records, chunk.TypeThinking, chunk.TypeToolStart)), []int{1, 4}},
		"no type":    {picked(t, FilterByType(chunks), FilterByType(records)), nil},
		"all but":    {picked(t, ExcludeTypes(chunks, chunk.TypeTextDelta), ExcludeTypes(records, chunk.TypeTextDelta)), []int{1, 4}},
		"with": {picked(t, FilterWith(chunks, func(c chunk.Chunk) bool { return c.ChunkBase().AgentID != "s" }),
			FilterWith(records, func(r chunk.Record) bool { return r.Agent != "s" })), []int{2, 4}},
		"take":      {picked(t, Take(chunks, 2), Take(records, 2)), []int{0, 1}},
		"take all":  {picked(t, Take(chunks, 9), Take(records, 9)), []int{0, 1, 2, 3, 4}},
		"take none": {picked(t, Take(chunks, 0), Take(records, 0)), nil},
		"skip":      {picked(t, Skip(chunks, 3), Skip(records, 3)), []int{3, 4}},
		"skip none": {picked(t, Skip(chunks, 0), Skip(records, 0)), []int{0, 1, 2, 3, 4}},
		"chained":   {picked(t, Take(Skip(FilterByAgentID(chunks, "s"), 1), 1), Take(Skip(FilterByAgentID(records, "s"), 1), 1)), []int{1}},
		"decoded":   {picked(t, Chunks(records), records), []int{0, 1, 2, 3, 4}},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s passes %v, want %v", name, tt.got, tt.want)
		}
	}
}

func TestTakeReleasesItsSource(t *testing.T) {
	t.Parallel()
	released, asked := 0, 0
	source := FilterWith(streamOf(mixed(), nil, &released), func(chunk.Chunk) bool { asked++; return true })
	if all, err := CollectAll(Take(source, 2)); err != nil || len(all) != 2 || released != 1 || asked != 2 {
		t.Errorf("%d items, %v; the source was asked %d times and released %d times", len(all), err, asked, released)
	}
	for range Skip(FilterByType(Chunks(streamOf(mixedRecords(t), nil, &released)), chunk.TypeTextDelta), 1) {
		break
	}
	if released != 2 {
		t.Errorf("released %d times, want 2", released)
	}
}

func TestFiltersPassErrors(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, stream := range map[string]iter.Seq2[chunk.Chunk, error]{
		"filter": FilterByType(streamOf(mixed(), boom, nil), chunk.TypeOutput),
		"take":   Take(streamOf(mixed(), boom, nil), 9),
		"skip":   Skip(streamOf(mixed(), boom, nil), 9),
		"chunks": Chunks(streamOf(mixedRecords(t), boom, nil)),
	} {
		if _, err := CollectAll(stream); err != boom {
			t.Errorf("%s: %v", name, err)
		}
	}
	if items, err := CollectAll(streamOf(mixed(), boom, nil)); err != boom || len(items) != 5 {
		t.Errorf("CollectAll = %d items, %v", len(items), err)
	}
	if _, err := CollectAll(Chunks(streamOf([]chunk.Record{{Data: []byte("{")}}, nil, nil))); !errors.Is(err, chunk.ErrInvalidChunk) {
		t.Errorf("Chunks of a broken record: %v", err)
	}
}

func TestCollectText(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	if got, err := CollectText(streamOf(mixed(), nil, nil)); got != "Hel<child>lo" || err != nil {
		t.Errorf("CollectText of chunks = %q, %v", got, err)
	}
	if got, err := CollectText(FilterByAgentID(streamOf(mixedRecords(t), nil, nil), "s")); got != "Hello" || err != nil {
		t.Errorf("CollectText of records = %q, %v", got, err)
	}
	if got, err := CollectText(streamOf(mixed(), boom, nil)); got != "Hel<child>lo" || err != boom {
		t.Errorf("CollectText = %q, %v; want the text and the error", got, err)
	}
}

func TestCombineStreams(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	source := func(err error, items ...string) func(context.Context) iter.Seq2[string, error] {
		return func(context.Context) iter.Seq2[string, error] { return streamOf(items, err, nil) }
	}
	var got []string
	errs := 0
	for s, err := range Combine(t.Context(), source(boom, "a1", "a2"), source(nil, "b1", "b2", "b3"), source(nil)) {
		if err != nil {
			errs++
			continue
		}
		got = append(got, s)
	}
	for _, prefix := range []string{"a", "b"} {
		if !slices.IsSorted(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return !strings.HasPrefix(s, prefix) })) {
			t.Errorf("%v: the order of %s is lost", got, prefix)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a1", "a2", "b1", "b2", "b3"}) || errs != 1 {
		t.Errorf("got %v and %d errors", got, errs)
	}
	if all, err := CollectAll(Combine[string](t.Context())); len(all) != 0 || err != nil {
		t.Errorf("no streams: %v, %v", all, err)
	}
}

// A bubble ends only when its goroutines have: the merge must release sources
// that would wait for ever.
func TestCombineStreamsReleasesItsSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waits := func(ctx context.Context) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				if yield(1, nil) {
					<-ctx.Done()
				}
			}
		}
		seen := 0
		for range Combine(t.Context(), waits, waits) {
			if seen++; seen == 2 {
				break
			}
		}
		if seen != 2 {
			t.Errorf("saw %d items", seen)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var last error
		for _, err := range Combine(ctx, waits) {
			last = err // one item may still come
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("the last error is %v", last)
		}
	})
}

// Filters and collectors take the items of a resumable reader, too, and have the names
// that other stream libraries give them.
func TestFiltersOfStoredChunks(t *testing.T) {
	t.Parallel()
	var stored []StoredChunk
	for i, c := range mixed() {
		stored = append(stored, StoredChunk{c, uint64(i + 1)})
	}
	all := func() iter.Seq2[StoredChunk, error] { return streamOf(stored, nil, nil) }
	sequences := func(s iter.Seq2[StoredChunk, error]) (list []uint64) {
		for c := range s {
			list = append(list, c.Sequence)
		}
		return list
	}
	for name, tt := range map[string]struct {
		got  iter.Seq2[StoredChunk, error]
		want []uint64
	}{
		"by type":      {FilterStreamByType(all(), chunk.TypeTextDelta, chunk.TypeToolStart), []uint64{1, 3, 4, 5}},
		"by agent":     {FilterStreamByAgent(all(), "s"), []uint64{1, 2, 4}},
		"by agent id":  {FilterByAgentID(all(), "s.1"), []uint64{3, 5}},
		"by its type":  {FilterByAgentType(all(), "helper"), []uint64{3, 5}},
		"without":      {ExcludeTypes(all(), chunk.TypeTextDelta), []uint64{2, 5}},
		"by predicate": {FilterStream(all(), func(c StoredChunk) bool { return c.Sequence > 3 }), []uint64{4, 5}},
		"some":         {Take(Skip(all(), 1), 2), []uint64{2, 3}},
	} {
		if got := sequences(tt.got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if text, err := CollectText(FilterStreamByAgent(all(), "s")); err != nil || text != "Hello" {
		t.Errorf("the text: %q, %v", text, err)
	}
	if (StoredChunk{}).ChunkType() != "" {
		t.Error("no chunk has a type")
	}
}
