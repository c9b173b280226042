package aisdk_test

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool/chunk"
)

// Clients' parsers end a stream at a value that could set a prototype. In streams, plans
// and snapshots alike these members are left out, wherever a value comes from.
func TestValuesThatSetPrototypes(t *testing.T) {
	t.Parallel()
	const bad = `{"__proto__":{"x":1},"constructor":{"prototype":{"y":1},"name":"A"},"kept":1}`
	data := json.RawMessage(bad)
	l := newLog(t).user("t")
	l.run = "r"
	l.add(&chunk.RunStarted{TurnID: "t", MessageID: "a-t", Mode: "start", Commands: []string{"t"}, Metadata: data})
	l.begin().call("c", "look", `{"__proto__":`, `{}}`).said().dispatch("c", "look", bad).result("c", "look", bad)
	l.add(&chunk.Custom{EventName: "note", ID: "n", Data: data}, &chunk.Custom{EventName: "loose", Data: data}, &chunk.Custom{EventName: "passing", Data: data, Transient: true})
	l.add(&chunk.StatePatch{Patches: []chunk.PatchOperation{{Op: "add", Path: "/a", Value: data}}})
	l.commit().begin()
	l.add(&chunk.Thinking{Content: "hm", IsComplete: true, ProviderMetadata: json.RawMessage(`{"p":` + bad + `}`)})
	l.text("done").said().commit()
	l.add(&chunk.RunFinished{Outcome: chunk.OutcomeCompleted, FinishReason: "stop", Metadata: data})
	for name, o := range profiles {
		t.Run(name, func(t *testing.T) { checkLog(t, l, o) })
	}
}
