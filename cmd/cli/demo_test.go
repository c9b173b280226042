package cli

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/tool"
)

func TestDemoToolsAreDeterministic(t *testing.T) {
	a := demoAgent(scripted.New(nil), 0, demoLimits{})
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	if a.Find("researcher") == nil {
		t.Error("there is no researcher")
	}
	for _, tl := range a.Tools {
		for _, input := range []string{`{"city":"Lisbon"}`, `{"query":"packing for Lisbon"}`, `{"city":"Lisbon","days":3}`} {
			if tool.Check(tl, json.RawMessage(input)) != nil {
				continue // another tool's
			}
			var results [2]string
			for i := range results {
				ctx := tool.NewContext(t.Context(), tool.Call{ID: "c"}, nil)
				out, err := tl.Call(ctx, json.RawMessage(input))
				if err != nil {
					t.Fatal(err)
				}
				results[i] = string(out) + string(ctx.State())
			}
			if results[0] != results[1] || len(results[0]) < 20 {
				t.Errorf("%s: %s and %s", tl.Spec().Name, results[0], results[1])
			}
		}
	}
}
