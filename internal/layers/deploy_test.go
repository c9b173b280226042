//go:build nodes

package layers

import (
	"os/exec"
	"testing"
)

// The files for containers in the folder deploy are decoded strictly, and what they run runs.
// The decoders are in a module of their own.
func TestContainerFiles(t *testing.T) {
	t.Parallel()
	test := exec.Command("go", "test", "-count=1", "./...")
	test.Dir = "../../deploy/check"
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
