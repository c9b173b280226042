package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/spool-run/spool/chunk"
)

func TestLogsCache(t *testing.T) {
	_, g := newTestLog(t, nil)
	if again := mustLog(t, g.logs); again != g {
		t.Error("another handle for the same session")
	}
	if _, err := g.logs.Log("a/b"); !errors.Is(err, chunk.ErrInvalidID) {
		t.Error(err)
	}
	if id := g.logs.NewID(); len(id) != 36 || id[14] != '7' {
		t.Errorf("NewID %q", id)
	}
	if _, err := g.logs.Claim(context.Background(), Claim{}); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
	if _, err := g.Head(context.Background()); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := g.Reader(ReadOptions{}).Next(context.Background()); !errors.Is(err, ErrNotFound) || errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// Logs that nobody holds are forgotten, but for the warm ones; a held one is
// always the same.
func TestIdleLogsAreForgotten(t *testing.T) {
	logs := NewLogs(newFakeStore(), &Options{WarmBytes: 4 * leastLog})
	defer logs.Close()
	held, err := logs.Log("held")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := logs.Log(fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
	}
	for tries := 0; ; tries++ {
		runtime.GC()
		runtime.Gosched()
		logs.mu.Lock()
		n := len(logs.logs)
		logs.mu.Unlock()
		if n <= 5 {
			break
		}
		if tries == 1000 {
			t.Fatalf("%d logs are still known", n)
		}
	}
	if again, err := logs.Log("held"); err != nil || again != held {
		t.Errorf("another handle: %v", err)
	}
}
