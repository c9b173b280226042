package chat

import (
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/commandid"
)

// hash shortens texts to a part of an id.
func hash(texts ...string) string { return commandid.Hash(texts...) }

// commandOf is the command id for an id that a client has chosen, or "" for "". An id
// that the server may compute, or that is no id, is replaced by one of its own: always
// the same one.
func commandOf(f *fold.Fold, id string) string {
	if id == "" || chunk.CheckID(id) == nil && !commandid.Reserved(id) && !ofCall(f, id) {
		return id
	}
	return commandid.New("m", id)
}

// ofCall reports whether an id is that of a call of one of the session's runs, or of a
// child agent's: a call gives its child work under its effect id.
func ofCall(f *fold.Fold, id string) bool {
	run, _, ok := strings.Cut(id, ":")
	for ok && run != "" {
		if f.Run(run) != nil {
			return true
		}
		i := strings.LastIndexByte(run, '.') // a child's run
		run = run[:max(i, 0)]
	}
	return false
}

// known reports whether the log has a command of this id. It fails with
// [chunk.ErrIDConflict] if that asked for something else.
func known(f *fold.Fold, id string, digests ...string) (bool, error) {
	if f.Verdict(id).State == fold.VerdictUnknown {
		return false, nil
	}
	if asked := f.Asked[id]; asked != "" && !slices.Contains(digests, asked) {
		return true, chunk.ErrIDConflict.With(f.Session, nil)
	}
	return true, nil
}

// checkMessageID refuses the id of a new user message that belongs to an assistant message.
func checkMessageID(f *fold.Fold, id string) error {
	if f.Assistant(id) {
		return chunk.ErrIDConflict.Because("this id belongs to an assistant message").With(f.Session, nil)
	}
	return nil
}

// checkNewID refuses the id of a message that is said next, if another message has it: one
// of the history, or one that waits. Their commands may have other ids.
func checkNewID(f *fold.Fold, id string) error {
	waits := func(c *fold.Command) bool { return c.Message != nil && c.Message.ID == id }
	if id != "" && (f.Message(id) != nil || slices.ContainsFunc(f.Waiting, waits)) {
		return chunk.ErrIDConflict.With(f.Session, nil)
	}
	return nil
}
