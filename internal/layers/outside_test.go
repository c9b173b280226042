package layers

import (
	"os/exec"
	"testing"
)

// What the author of a wire needs is public: a wire in a module of its own passes
// the suite, and a server offers it.
func TestAWireOutsideTheModule(t *testing.T) {
	t.Parallel()
	test := exec.Command("go", "test", "./...")
	test.Dir = "../../examples/wire"
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
