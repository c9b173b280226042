package contract

import (
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
)

// MaxNumber is what sequences, epochs and incarnations stay below: JavaScript reads them.
const MaxNumber = 1 << 53

// CheckImport checks a part of a session on its own: the fields, and that its records follow
// each other. It returns nil, [chunk.ErrTooLarge] or [chunk.ErrInvalid]. Drivers call it
// before anything else.
func CheckImport(i *spool.Import) error {
	id, h := i.Info.Session, &i.Info.Head
	invalid := func(why string) error { return chunk.ErrInvalid.Because(why).With(id, nil) }
	switch {
	case id == "" || i.Epoch == 0:
		return invalid("an import names no session or no epoch")
	case h.Incarnation == 0 || h.Status == "" || max(h.Seq, h.Incarnation, h.Epoch) >= MaxNumber:
		return invalid("the head is not that of a session")
	case h.Hidden:
		return invalid("the session is hidden in the other store")
	case h.Floor > h.TraceFloor || h.TraceFloor > h.Seq:
		return invalid("the floors are above each other or the head")
	}
	var n names
	n.check("name of the session", id)
	err := n.err
	if err == nil {
		err = CheckRow(&i.Info.Row)
	}
	if err == nil {
		err = checkRecords(i.Records)
	}
	if known, ok := errors.AsType[*chunk.Error](err); ok {
		return known.With(id, nil)
	}
	last := i.After
	for _, r := range i.Records {
		switch {
		case r.Seq <= max(last, h.Floor) || r.Seq > h.Seq:
			return invalid("a record is out of order")
		case r.Seq > h.TraceFloor && r.Seq != max(last, h.TraceFloor)+1:
			return invalid("a record is missing")
		case r.Seq <= h.TraceFloor && r.Class != chunk.Kept:
			return invalid("a trace record lies below the trace floor")
		}
		last = r.Seq
	}
	if i.Done && max(last, h.TraceFloor) != h.Seq {
		return invalid("the last part does not reach the head")
	}
	return nil
}

// AdmitImport says whether a session takes a part: one that exists, with the head h.
func AdmitImport(h *spool.Head, i *spool.Import) error {
	switch {
	case !h.Hidden:
		return spool.ErrExists.With(i.Info.Session, nil)
	case h.Epoch != i.Epoch:
		return spool.ErrSuperseded.With(i.Info.Session, nil)
	case i.After != 0 && (i.After != h.Seq || i.Info.Head.TraceFloor < h.TraceFloor || i.Info.Head.Floor < h.Floor):
		return chunk.ErrInvalid.Because("the part does not follow the records that are stored").With(i.Info.Session, nil)
	}
	return nil
}

// Imported changes a session's head, its row and the sequence of its last command as a part
// says. The caller has removed the records if the part starts over.
func Imported(h *spool.Head, row *spool.Row, command *uint64, i *spool.Import) {
	from := &i.Info.Head
	if i.After == 0 {
		h.Seq, h.TraceFloor, h.Floor = 0, 0, 0
	}
	if n := len(i.Records); n > 0 {
		h.Seq = i.Records[n-1].Seq
	}
	h.TraceFloor, h.Floor = max(h.TraceFloor, from.TraceFloor), max(h.Floor, from.Floor)
	h.Incarnation = max(h.Incarnation, from.Incarnation)
	h.Principal, row.Principal = i.Info.Principal, i.Info.Principal
	if !i.Done {
		return
	}
	h.Seq, h.Epoch = from.Seq, max(h.Epoch, from.Epoch)+1
	h.Status, h.Due, h.Pending, h.Hidden = from.Status, from.Due, from.Pending, false
	*row = i.Info.Row
	row.Status = h.Status
	if *command = 0; h.Pending {
		*command = h.Seq // which one it is nobody knows: an owner has to see all
	}
}
