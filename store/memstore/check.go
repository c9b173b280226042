package memstore

import (
	"context"

	"github.com/spool-run/spool/store/contract"
)

var _ contract.Checker = (*Store)(nil)

// Check implements [contract.Checker].
func (s *Store) Check(context.Context) []contract.Finding {
	return []contract.Finding{{Check: "durability", Level: contract.Warning, Text: "everything is in the memory of this process, and ends with it",
		Hint: "use a store with a disk for what is to be kept"}}
}
