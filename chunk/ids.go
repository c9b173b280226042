package chunk

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// errInvalidSessionID also matches [ErrInvalidID].
var errInvalidSessionID = &Error{
	Code:    "invalid_session_id",
	Message: "the session id is reserved for a child agent",
	Hint:    "an id that ends in a dot and digits is the session of a child agent. Clients can read, answer and stop it; only its parent gives it work",
	Err:     ErrInvalidID,
}

// CheckID checks an id of any kind. It must have 1 to [MaxIDBytes] bytes of valid
// UTF-8 without control characters, '/' and '\', and be neither "." nor "..". CheckID
// fails with [ErrInvalidID].
func CheckID(id string) error {
	if problem := idProblem(id); problem != "" {
		return ErrInvalidID.Because("the id " + problem)
	}
	return nil
}

// CheckSessionID is [CheckID] for the id of a root session, which must not end in a dot
// and digits either (code invalid_session_id).
func CheckSessionID(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if IsChild(id) {
		return errInvalidSessionID
	}
	return nil
}

// RootID returns the id of the session in whose log an agent writes. It is the agent's
// id without the ".n" that each generation of child agents adds.
func RootID(id string) string {
	for {
		bare := strings.TrimRight(id, "0123456789")
		if len(bare) == len(id) || len(bare) < 2 || bare[len(bare)-1] != '.' {
			return id
		}
		id = bare[:len(bare)-1]
	}
}

// IsChild reports whether an id is a child agent's.
func IsChild(id string) bool { return RootID(id) != id }

// ChildCallID is the id that a child agent's call has among the calls of its
// root's message: the child's session, a slash, and the call's own id.
func ChildCallID(session, callID string) string { return session + "/" + callID }

// SplitCallID takes an id of [ChildCallID] apart. One that is no child's of this
// root is the root's own.
func SplitCallID(root, id string) (session, callID string) {
	session, callID, ok := strings.Cut(id, "/")
	if !ok || callID == "" || session == root || RootID(session) != RootID(root) || !strings.HasPrefix(session, root+".") {
		return root, id
	}
	return session, callID
}

func idProblem(id string) string {
	switch {
	case id == "":
		return "is missing"
	case len(id) > MaxIDBytes:
		return "is longer than 256 bytes"
	case id == "." || id == "..":
		return "is a relative path"
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c >= utf8.RuneSelf:
			return unicodeIDProblem(id[i:])
		case c < ' ' || c == 0x7f:
			return "contains a control character"
		case c == '/' || c == '\\':
			return "contains a slash"
		}
	}
	return ""
}

func unicodeIDProblem(id string) string {
	if !utf8.ValidString(id) {
		return "is not valid UTF-8"
	}
	for _, r := range id {
		switch {
		case unicode.IsControl(r):
			return "contains a control character"
		case r == '/' || r == '\\':
			return "contains a slash"
		}
	}
	return ""
}
