package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A server exports what it has done, at the latest when it ends.
func TestServeExports(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[string][]byte{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		sent[r.URL.Path] = append(sent[r.URL.Path], body...)
	}))
	defer collector.Close()
	s := serveSpool(t, filepath.Join(t.TempDir(), "s.db"), "--otlp-endpoint", collector.URL)
	res, err := http.Post(s.url+"/api/chat/s", "application/json", strings.NewReader(`{"id":"s","trigger":"submit-message","message":{"id":"m1","role":"user","parts":[{"type":"text","text":"hello"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%d, %v", res.StatusCode, err)
	}
	_ = res.Body.Close()
	s.end()
	mu.Lock()
	defer mu.Unlock()
	for path, want := range map[string][]string{
		"/v1/traces":  {"invoke_agent demo", "chat", "POST", "service.name"},
		"/v1/metrics": {"spool.store.call.duration", "gen_ai.client.operation.duration"},
	} {
		for _, w := range want {
			if !bytes.Contains(sent[path], []byte(w)) {
				t.Errorf("%s has no %s", path, w)
			}
		}
	}
}
