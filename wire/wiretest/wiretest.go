package wiretest

import (
	"slices"

	"github.com/spool-run/spool"
)

// missingTypes lists the registered chunk types that a log does not hold.
func missingTypes(log []spool.Record) []spool.Type {
	return slices.DeleteFunc(spool.Types(), func(t spool.Type) bool {
		return slices.ContainsFunc(log, func(r spool.Record) bool { return r.Type == t })
	})
}

// ends lists the sequences at which the root agent's runs end or pause.
func ends(log []spool.Record) []uint64 {
	var list []uint64
	for _, r := range log {
		if r.Agent == spool.RootID(r.Agent) && (r.Type == spool.TypeRunFinished || r.Type == spool.TypeRunSuspended) {
			list = append(list, r.Seq)
		}
	}
	return list
}
