// Package commandid makes the ids of the commands that the server computes, and tells
// them from those that clients choose.
package commandid

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strconv"
	"strings"
)

// hashLen is the length of a hash in an id.
const hashLen = 16

// kinds begin the ids that the server computes: what the command is for. "m" stands for
// a client's id that cannot be taken as it is, "call" for a call that gives work to a
// child agent, "claim" for the run of a producer's claim.
var kinds = []string{"stop", "interrupt", "continue", "retry", "resume", "edit", "regen", "approval", "result", "replace", "branch", "m", "call", "claim"}

// New returns the id of a command of this kind about these things.
func New(kind string, about ...string) string { return kind + "-" + Hash(about...) }

// Hash returns a short hash of some texts.
func Hash(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		_, _ = io.WriteString(h, strconv.Itoa(len(t))+":"+t)
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLen]
}

// Reserved reports whether an id has the form of those that the server computes: a kind,
// a dash and a hash, whatever follows. No client's command has such an id.
func Reserved(id string) bool {
	id = strings.TrimPrefix(id, "rewind-") // of an edit
	kind, rest, ok := strings.Cut(id, "-")
	return ok && slices.Contains(kinds, kind) && len(rest) >= hashLen && strings.Trim(rest[:hashLen], "0123456789abcdef") == ""
}
