//go:build nodes && unix

package natsstore

import (
	"testing"

	"github.com/spool-run/spool/internal/engines"
	"github.com/spool-run/spool/store/contract"
	"github.com/spool-run/spool/store/doctor"
)

// A server is examined as it is, over two connections, and nothing is left in it.
func TestDoctorNATS(t *testing.T) {
	t.Parallel()
	server := engines.NATS(t, "max_payload: 4MB")
	var stores [2]*Store
	for i := range stores {
		var err error
		if stores[i], err = Open("nats://"+server.Addr(), nil); err != nil {
			t.Fatal(err)
		}
		defer stores[i].Close()
	}
	level := map[string]contract.Level{}
	for _, f := range doctor.Examine(t.Context(), stores[0], stores[1]) {
		if level[f.Check] = f.Level; f.Level == contract.Problem {
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{"reach", "version", "payload", "replicas", "clock"} {
		if level[check] != contract.OK {
			t.Errorf("%s: %q of %v", check, level[check], level)
		}
	}
	if level["append"] == "" || level["wake"] == "" {
		t.Errorf("%v", level)
	}
	server.Kill()
	if f := stores[0].Check(t.Context()); len(f) != 1 || f[0].Check != "reach" || f[0].Level != contract.Problem {
		t.Errorf("without a server: %+v", f)
	}
}
