package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// broken is a store that cannot be reached, and says more than clients may know.
type broken struct {
	spool.Store
	err error
}

func (b broken) Head(context.Context, string) (spool.Head, error) { return spool.Head{}, b.err }

func TestErrorsKeepTheirCauses(t *testing.T) {
	t.Parallel()
	k := newKit(t, nil)
	cause := errors.New("dial redis://admin:hunter2@10.0.0.7: refused")
	for _, err := range []error{cause, spool.ErrUnavailable.With("s", cause), spool.ErrUnsupported.With("s", cause)} {
		logs := spool.NewLogs(broken{k.store, err}, nil)
		t.Cleanup(func() { _ = logs.Close() })
		b := k.over(logs, nil)
		for _, path := range []string{"/api/chat/s/stream", "/api/chat/s/snapshot", "/stream/s", "/readyz"} {
			res := b.do("GET", path, "")
			data, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			body := string(data)
			if res.StatusCode < http.StatusInternalServerError || strings.Contains(body, "hunter2") || strings.Contains(body, "10.0.0.7") {
				t.Errorf("%s: %s %s", path, res.Status, body)
			}
		}
	}
}
