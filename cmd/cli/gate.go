package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/spool-run/spool"
)

// gate is a store whose owners ask for permission before each append. The conformance
// tests hold a run at a chosen record by not answering. It is used only if
// SPOOL_TEST_GATE is set.
type gate struct {
	Store
	url string

	mu      sync.Mutex
	n       map[string]int         // owner appends of each session
	last    map[string]appendNamed // the append that n counted last, by session and writer
	through map[string]int         // granted ahead, by an answer's Gate-Through header
}

// appendNamed identifies an append: a repeat has the same values as the first attempt.
type appendNamed struct {
	epoch, ordinal uint64
	n              int
}

func newGate(store Store, url string) *gate {
	return &gate{Store: store, url: strings.TrimSuffix(url, "/"), n: map[string]int{}, last: map[string]appendNamed{}, through: map[string]int{}}
}

// number counts an append and reports whether it was granted ahead. A repeat keeps its
// number.
func (g *gate) number(a spool.Append) (n int, granted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := a.Session + "\x00" + a.Writer
	if l, ok := g.last[key]; ok && a.Ordinal != 0 && l.epoch == a.Epoch && l.ordinal == a.Ordinal {
		return l.n, l.n <= g.through[a.Session]
	}
	g.n[a.Session]++
	g.last[key] = appendNamed{a.Epoch, a.Ordinal, g.n[a.Session]}
	return g.n[a.Session], g.n[a.Session] <= g.through[a.Session]
}

// Append asks for permission and waits for it.
func (g *gate) Append(ctx context.Context, a spool.Append) (spool.Appended, error) {
	if a.Epoch > 0 && len(a.Records) > 0 {
		n, granted := g.number(a)
		if granted {
			return g.Store.Append(ctx, a)
		}
		types := make([]string, len(a.Records))
		for i, r := range a.Records {
			types[i] = string(r.Type)
		}
		target := fmt.Sprintf("%s/%s/%d?types=%s", g.url, url.PathEscape(a.Session), n, url.QueryEscape(strings.Join(types, ",")))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return spool.Appended{}, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return spool.Appended{}, fmt.Errorf("test gate: %w", err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return spool.Appended{}, fmt.Errorf("test gate: %s", res.Status)
		}
		if through, err := strconv.Atoi(res.Header.Get("Gate-Through")); err == nil {
			g.mu.Lock()
			g.through[a.Session] = through
			g.mu.Unlock()
		}
	}
	return g.Store.Append(ctx, a)
}
