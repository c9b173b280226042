package aisdk_test

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool/internal/matrix"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/wiretest"
)

func TestWire(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default", "ui7", "flatten", "flatten7"} {
		o, ok := profiles[name]
		if !ok {
			t.Fatalf("there is no profile %s", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wiretest.Run(t, wiretest.Wire{
				Profile: o.Profile(),
				Stride:  matrix.Stride(t, 29),
				Fold: func(stream []byte) (json.RawMessage, error) {
					c := &aisdk.Client{UI7: o.UI7}
					if err := c.Write(stream); err != nil {
						return nil, err
					}
					return json.Marshal(canonical(t, c.Message, &o))
				},
			})
		})
	}
}
