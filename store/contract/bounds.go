package contract

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// Bounds of what stores keep beside the Data of records, in bytes where nothing else is
// said. Engines have limits of their own, on index keys for example; within these bounds
// every driver takes what any other takes.
const (
	// MaxName bounds each name: of a session, an agent, an agent type, a principal, a record's
	// type, a writer, an owner, a claim, a saved fold, and the hash of a blob.
	MaxName  = 512
	MaxTitle = 1 << 10
	MaxBlob  = 16 << 20
	MaxFold  = 16 << 20 // the Data of a saved fold
	// MaxWriters is how many writers may number their appends under one epoch.
	MaxWriters = 1000
	// MaxAgents is how many agent types a claim may be for.
	MaxAgents = 1000
)

// checkText checks a text that engines keep as text: it is valid UTF-8 without zero bytes.
func checkText(what, text string, most int) error {
	switch {
	case len(text) > most:
		return chunk.ErrTooLarge.Because(fmt.Sprintf("the %s is longer than %d bytes", what, most))
	case !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0:
		return chunk.ErrInvalid.Because("the " + what + " is not UTF-8, or has a zero byte")
	}
	return nil
}

// names checks the names of a call; the first error counts.
type names struct{ err error }

func (n *names) check(what, name string) {
	if n.err == nil && name != "" {
		n.err = checkText(what, name, MaxName)
	}
}

// CheckRow checks the fields of a session's row. It returns nil, [chunk.ErrTooLarge] or
// [chunk.ErrInvalid], as the functions below do.
func CheckRow(r *spool.Row) error {
	var n names
	n.check("status", string(r.Status))
	n.check("agent type", r.Agent)
	n.check("principal", r.Principal)
	if n.err == nil {
		n.err = checkText("title", r.Title, MaxTitle)
	}
	return n.err
}

// checkRecords checks the types and agents of records, and their number and size.
func checkRecords(recs []chunk.Record) error {
	if len(recs) > spool.MaxAppendRecords {
		return chunk.ErrTooLarge.Because("the append has too many records")
	}
	var n names
	var typ chunk.Type
	agent, total := "", 0
	for i := range recs {
		r := &recs[i]
		if len(r.Data) > chunk.MaxRecordBytes {
			return chunk.ErrTooLarge.Because("a record is too large")
		}
		total += len(r.Data)
		if r.Type != typ || r.Agent != agent { // mostly they are those of the record before
			typ, agent = r.Type, r.Agent
			n.check("type of a record", string(typ))
			n.check("agent of a record", agent)
		}
	}
	if total > spool.MaxAppendBytes {
		return chunk.ErrTooLarge.Because("the append is too large")
	}
	return n.err
}

// CheckWriter checks whether a writer may number its appends, if others did so under the
// epoch and this one did not.
func CheckWriter(session string, others int) error {
	if others >= MaxWriters {
		return chunk.ErrTooLarge.Because(fmt.Sprintf("the epoch has %d writers", others)).With(session, nil)
	}
	return nil
}

// CheckBlob checks a blob. Drivers call it first in PutBlob.
func CheckBlob(session, hash string, data []byte) error {
	if len(data) > MaxBlob {
		return chunk.ErrTooLarge.Because("the value is larger than 16 MiB").With(session, nil)
	}
	return checkKept(session, "hash of a blob", hash)
}

// CheckFold checks a saved fold. Drivers call it first in SaveFold.
func CheckFold(session, name string, f *spool.SavedFold) error {
	if len(f.Data) > MaxFold {
		return chunk.ErrTooLarge.Because("the fold is larger than 16 MiB").With(session, nil)
	}
	return checkKept(session, "name of a fold", name)
}

// checkKept checks what is kept beside a log under a name.
func checkKept(session, what, name string) error {
	if session == "" || name == "" {
		return chunk.ErrInvalid.Because("the session or the "+what+" is missing").With(session, nil)
	}
	var n names
	n.check("name of the session", session)
	n.check(what, name)
	return n.err
}
