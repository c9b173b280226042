//go:build nodes

package layers

import (
	"os/exec"
	"testing"
)

// The command with a NATS server in it is a module of its own, so that nothing else depends
// on that server.
func TestCommandWithNATS(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-race", "-count=1", "./..."}} {
		run := exec.Command("go", args...)
		run.Dir = "../../cmd/spool-nats"
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
