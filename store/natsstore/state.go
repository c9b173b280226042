package natsstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// What the last token of a message's subject says. All but trace are in the index of every
// process, so trace has only what changes nothing there.
const (
	kindKept    = "i.k" // an owner's records, kept ones among them
	kindCommand = "i.c"
	kindMeta    = "i.m" // no records
	kindShown   = "i.t" // trace that the index has to know of
	kindBlob    = "i.b."
	kindTrace   = "t"
)

const (
	headerState = "Spool-State"
	headerID    = "Spool-Id" // of the message, to find out whether it was stored
)

// state is a session after a message.
type state struct {
	Session    string     `json:"session"`
	Exists     bool       `json:"exists,omitempty"`
	Generation uint64     `json:"generation,omitempty"` // grows with each loss
	At         int64      `json:"at"`                   // when the message was made, by the store's clock
	Head       spool.Head `json:"head"`
	Row        spool.Row  `json:"row"` // its Status and Principal are the head's
	Updated    int64      `json:"updated,omitempty"`
	Shown      int64      `json:"shown,omitempty"` // Updated of the latest message in the index
	Bytes      int64      `json:"bytes,omitempty"` // of records
	Blobs      int64      `json:"blobs,omitempty"` // bytes of blobs
	Command    uint64     `json:"command,omitempty"`
	Deleted    uint64     `json:"deleted,omitempty"` // how often the session was deleted

	Claim   string `json:"claim,omitempty"` // the lease's
	Owner   string `json:"owner,omitempty"` // "" when released or never claimed
	TTL     int64  `json:"ttl,omitempty"`
	Expires int64  `json:"expires,omitempty"`

	Kind    string `json:"kind"`              // of this message
	Base    uint64 `json:"base,omitempty"`    // older messages are not the log's
	Indexed uint64 `json:"indexed,omitempty"` // the latest message in the index before this one
	Metas   int    `json:"metas,omitempty"`   // messages without records that were not purged
	Marks   []mark `json:"marks,omitempty"`   // where some records are, in order

	writers []written
}

// mark says that the message at Stream has the record Seq as its first.
type mark struct {
	Seq    uint64 `json:"s"`
	Stream uint64 `json:"m"`
}

// written is the last append of one writer under the latest epoch.
type written struct {
	writer               [16]byte
	ordinal, first, last uint64
}

const (
	markEvery = 500 // records
	maxMarks  = 64
)

// write is a message to be published: the state with its records.
type write struct {
	kind    string
	records []chunk.Record
	data    []byte // instead of records
}

func writerKey(name string) (k [16]byte) {
	sum := sha256.Sum256([]byte(name))
	return [16]byte(sum[:])
}

func (st *state) writer(k [16]byte) *written {
	for i := range st.writers {
		if st.writers[i].writer == k {
			return &st.writers[i]
		}
	}
	return nil
}

// clone returns a state that can be changed.
func (st *state) clone() *state {
	c := *st
	c.writers = slices.Clone(st.writers)
	return &c
}

// size is what SessionInfo.Bytes shows.
func (st *state) size() int64 { return st.Bytes + st.Blobs }

func (st *state) info() spool.SessionInfo {
	return spool.SessionInfo{Session: st.Session, Row: st.Row, Head: st.Head, Updated: st.Updated, Bytes: st.size()}
}

func (st *state) readyAt() int64 {
	if !st.Exists {
		return contract.Never
	}
	return contract.ReadyAt(&st.Head, st.Expires)
}

// create makes the session exist, after what an earlier one has left.
func (st *state) create(principal string, hidden bool, now int64, seq uint64) {
	if st.Exists {
		return
	}
	st.Exists = true
	st.Head = contract.Created(st.Head, principal, hidden)
	base := st.Generation * contract.Generation
	st.Head.Incarnation, st.Head.Epoch = max(st.Head.Incarnation, base+1), max(st.Head.Epoch, base)
	st.Row = spool.Row{Status: chunk.StatusEnded, Principal: principal}
	st.Updated, st.Base, st.Marks = now, seq, nil
}

func (st *state) renew(now int64) {
	if st.Owner != "" {
		st.Expires = now + st.TTL
	}
}

func (st *state) release() { st.Claim, st.Owner, st.TTL, st.Expires = "", "", 0, 0 }

// raise brings a state to a generation: what was lost may have given out higher numbers.
func (st *state) raise(generation uint64) {
	if generation <= st.Generation {
		return
	}
	by := (generation - st.Generation) * contract.Generation
	if st.Head.Incarnation > 0 {
		st.Head.Incarnation += by
		st.Head.Epoch += by
	}
	st.Generation = generation
	st.release()
	st.writers = nil
}

// numbered sets what follows from the message before, at the sequence seq.
func (st *state) numbered(was *state, seq uint64, w *write) {
	st.Kind, st.Indexed = w.kind, was.Indexed
	if seq > 0 && was.Kind != kindTrace {
		st.Indexed = seq
	}
	if w.kind == kindMeta {
		st.Metas++
	}
	if w.kind != kindTrace {
		st.Shown = st.Updated
	}
}

// mark notes where a message that was stored begins, if it is far from the last mark.
func (st *state) mark(first, seq uint64) {
	if n := len(st.Marks); n > 0 && first < st.Marks[n-1].Seq+markEvery {
		return
	}
	marks := slices.Clone(st.Marks)
	if len(marks) >= maxMarks {
		thin := marks[:0]
		for i := 0; i < len(marks); i += 2 {
			thin = append(thin, marks[i])
		}
		marks = thin
	}
	st.Marks = append(marks, mark{first, seq})
}

// encode makes the message.
func (st *state) encode(subject, id string, w *write) (*nats.Msg, error) {
	text, err := json.Marshal(st)
	if err != nil {
		return nil, err
	}
	size := 16 + 40*len(st.writers) + len(w.data)
	for i := range w.records {
		r := &w.records[i]
		size += 40 + len(r.Type) + len(r.Agent) + len(r.Data)
	}
	b := make([]byte, 0, size)
	b = binary.AppendUvarint(b, uint64(len(st.writers)))
	for _, x := range st.writers {
		b = append(b, x.writer[:]...)
		b = binary.AppendUvarint(b, x.ordinal)
		b = binary.AppendUvarint(b, x.first)
		b = binary.AppendUvarint(b, x.last)
	}
	b = binary.AppendUvarint(b, uint64(len(w.records)))
	for i := range w.records {
		r := &w.records[i]
		b = binary.AppendUvarint(b, r.Seq)
		b = append(b, byte(r.Class))
		b = binary.AppendVarint(b, r.Time)
		b = appendText(b, string(r.Type))
		b = appendText(b, r.Agent)
		b = binary.AppendUvarint(b, uint64(len(r.Data)))
		b = append(b, r.Data...)
	}
	b = append(b, w.data...)
	return &nats.Msg{Subject: subject, Header: nats.Header{headerState: {string(text)}, headerID: {id}}, Data: b}, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errMalformed = errors.New("a message of the stream is malformed")

// decodeState returns the state that a message's header holds.
func decodeState(h nats.Header) (*state, error) {
	st := &state{}
	if err := json.Unmarshal([]byte(h.Get(headerState)), st); err != nil {
		return nil, errors.Join(errMalformed, err)
	}
	return st, nil
}

// decoder reads a payload.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// decodePayload returns the writers, the records and what follows them.
func decodePayload(b []byte) (writers []written, records []chunk.Record, rest []byte, err error) {
	d := decoder{b: b}
	n := d.uint()
	if n > contract.MaxWriters {
		return nil, nil, nil, errMalformed
	}
	for range n {
		var x written
		copy(x.writer[:], d.bytes(16))
		x.ordinal, x.first, x.last = d.uint(), d.uint(), d.uint()
		writers = append(writers, x)
	}
	if n = d.uint(); n > spool.MaxAppendRecords {
		return nil, nil, nil, errMalformed
	}
	records = make([]chunk.Record, 0, n)
	for range n {
		r := chunk.Record{Seq: d.uint()}
		if class := d.bytes(1); len(class) == 1 {
			r.Class = chunk.Class(class[0])
		}
		r.Time = d.int()
		r.Type = chunk.Type(d.bytes(d.uint()))
		r.Agent = string(d.bytes(d.uint()))
		r.Data = d.bytes(d.uint())
		records = append(records, r)
	}
	if d.bad {
		return nil, nil, nil, errMalformed
	}
	return writers, records, d.b, nil
}

// token is a name as a token of a subject.
func token(name string) string {
	if len(name) <= 64 {
		plain := name != ""
		for i := 0; i < len(name) && plain; i++ {
			c := name[i]
			plain = c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		}
		if plain {
			return name
		}
	}
	sum := sha256.Sum256([]byte(name))
	return "=" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// subject is the subject of a session's messages of a kind; ">" for all.
func (s *Store) subject(session, kind string) string {
	return s.prefix + ".s." + token(session) + "." + kind
}
