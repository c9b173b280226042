package transfer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/blobref"
	"github.com/spool-run/spool/internal/jsonenc"
	"github.com/spool-run/spool/store/contract"
)

// The file of a session is lines of JSON. The first member of each says what it is:
//
//	{"spool":"session","version":1,"session":"s1",…}             the head and the row, once, first
//	{"fold":14,"incarnation":1,"seq":90,"data":{…}}               the saved fold, if records that it stands for are gone
//	{"value":"sha256:…","data":…}                                 a large value, before the records that refer to it
//	{"seq":1,"type":"…","agent":"…","time":0,"class":"kept","data":{…}}
//	{"end":{"records":42,"values":1,"sha256":"…"}}                once, last
//
// "data" has the bytes as they are; bytes that are no JSON in one line are in "base64"
// instead. The hash at the end is that of all lines before it. docs/session-files.md is its
// specification.

const (
	// FileVersion is the version of the files that Export writes. Import reads no other.
	FileVersion = 1
	// MaxFileValues is how many large values a file may have.
	MaxFileValues = 1 << 20

	maxLine = contract.MaxBlob/3*4 + 64<<10 // the largest value, in base64, and what is around it
)

// header is the first line.
type header struct {
	Spool       string       `json:"spool"` // "session"
	Version     int          `json:"version"`
	Session     string       `json:"session"`
	Status      chunk.Status `json:"status"`
	Agent       string       `json:"agent,omitempty"`
	Principal   string       `json:"principal,omitempty"`
	Title       string       `json:"title,omitempty"`
	Updated     int64        `json:"updated"`
	Seq         uint64       `json:"seq"`
	TraceFloor  uint64       `json:"traceFloor"`
	Floor       uint64       `json:"floor"`
	Incarnation uint64       `json:"incarnation"`
	Epoch       uint64       `json:"epoch"`
	Due         int64        `json:"due,omitempty"`
	Pending     bool         `json:"pending,omitempty"`
}

func headerOf(i spool.SessionInfo) header {
	h := i.Head
	return header{Spool: "session", Version: FileVersion, Session: i.Session, Status: h.Status, Agent: i.Agent, Principal: i.Principal, Title: i.Title,
		Updated: i.Updated, Seq: h.Seq, TraceFloor: h.TraceFloor, Floor: h.Floor, Incarnation: h.Incarnation, Epoch: h.Epoch, Due: h.Due, Pending: h.Pending}
}

func (h *header) info() spool.SessionInfo {
	return spool.SessionInfo{
		Session: h.Session, Updated: h.Updated,
		Row: spool.Row{Status: h.Status, Agent: h.Agent, Principal: h.Principal, Title: h.Title},
		Head: spool.Head{Seq: h.Seq, Incarnation: h.Incarnation, TraceFloor: h.TraceFloor, Floor: h.Floor, Epoch: h.Epoch,
			Status: h.Status, Due: h.Due, Pending: h.Pending, Principal: h.Principal},
	}
}

// payload is bytes in a line.
type payload struct {
	Data   json.RawMessage `json:"data"`
	Base64 []byte          `json:"base64"`
}

func (p *payload) bytes() ([]byte, error) {
	if (p.Data == nil) == (p.Base64 == nil) {
		return nil, errors.New(`it has not one of "data" and "base64"`)
	}
	if p.Data != nil {
		return p.Data, nil
	}
	return p.Base64, nil
}

// appendPayload ends a line. Its bytes are read back as they are.
func appendPayload(dst, data []byte) []byte {
	if jsonenc.Valid(data) && utf8.Valid(data) && bytes.IndexByte(data, '\n') < 0 && len(bytes.TrimSpace(data)) == len(data) {
		return append(append(append(dst, `,"data":`...), data...), "}\n"...)
	}
	dst = append(dst, `,"base64":"`...)
	return append(base64.StdEncoding.AppendEncode(dst, data), "\"}\n"...)
}

type valueLine struct {
	Value string `json:"value"`
	payload
}

type foldLine struct {
	Fold        int    `json:"fold"` // the version
	Incarnation uint64 `json:"incarnation"`
	Seq         uint64 `json:"seq"`
	payload
}

type recordLine struct {
	Seq   uint64     `json:"seq"`
	Type  chunk.Type `json:"type"`
	Agent string     `json:"agent"`
	Time  int64      `json:"time"`
	Class string     `json:"class"`
	payload
}

type endLine struct {
	End struct {
		Records uint64 `json:"records"`
		Values  int    `json:"values"`
		SHA256  string `json:"sha256"`
	} `json:"end"`
}

func appendRecord(dst []byte, r *chunk.Record) []byte {
	dst = strconv.AppendUint(append(dst, `{"seq":`...), r.Seq, 10)
	dst = jsonenc.AppendString(append(dst, `,"type":`...), string(r.Type))
	dst = jsonenc.AppendString(append(dst, `,"agent":`...), r.Agent)
	dst = strconv.AppendInt(append(dst, `,"time":`...), r.Time, 10)
	dst = jsonenc.AppendString(append(dst, `,"class":`...), r.Class.String())
	return appendPayload(dst, r.Data)
}

// lineReader reads a file once, and checks all that can be checked without another look.
type lineReader struct {
	in      *bufio.Reader
	buf     []byte
	hash    hash.Hash
	header  header
	n       int    // lines read
	seq     uint64 // of the last record
	records uint64
	values  map[[sha256.Size]byte]bool // the hashes of those that were read
}

// entry is a line after the header: one of its members is set, or none at the end.
type entry struct {
	rec   *chunk.Record
	fold  *spool.SavedFold
	value string // hash of data
	data  []byte
}

// readHeader begins to read a file.
func readHeader(in io.Reader) (*lineReader, error) {
	f := &lineReader{in: bufio.NewReaderSize(in, 64<<10), hash: sha256.New(), values: map[[sha256.Size]byte]bool{}}
	line, err := f.line()
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(line, []byte(`{"spool":"session",`)) {
		return nil, chunk.ErrInvalid.Because("this is not the file of a session")
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return nil, f.invalid(err.Error())
	}
	if v.Version != FileVersion {
		return nil, spool.ErrUnsupported.Because(fmt.Sprintf("the file has version %d; this program reads version %d", v.Version, FileVersion))
	}
	if err := f.decode(line, &f.header); err != nil {
		return nil, err
	}
	f.hash.Write(line)
	f.seq = f.header.Floor
	return f, f.checked(&spool.Import{})
}

// checked checks a part of the session as stores do.
func (f *lineReader) checked(i *spool.Import) error {
	i.Info, i.Epoch = f.header.info(), 1
	err := contract.CheckImport(i)
	if known, ok := errors.AsType[*chunk.Error](err); ok {
		return known.Because(fmt.Sprintf("line %d: %s", f.n, known.Message))
	}
	return err
}

func (f *lineReader) invalid(why string) error {
	return chunk.ErrInvalid.Because(fmt.Sprintf("line %d: %s", f.n, why))
}

// line returns the next line with its end. It is valid until the next call.
func (f *lineReader) line() ([]byte, error) {
	f.n++
	f.buf = f.buf[:0]
	for {
		part, err := f.in.ReadSlice('\n')
		if len(f.buf)+len(part) > maxLine {
			return nil, chunk.ErrTooLarge.Because(fmt.Sprintf("line %d is too long", f.n))
		}
		f.buf = append(f.buf, part...)
		switch {
		case err == nil:
			return f.buf, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, ErrDamaged.Because("the file ends early")
		default:
			return nil, err
		}
	}
}

// decode reads a line of which every member is known.
func (f *lineReader) decode(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return f.invalid(err.Error())
	}
	if rest := line[d.InputOffset():]; string(rest) != "\n" {
		return f.invalid("something follows the object")
	}
	return nil
}

// next returns the next entry, or io.EOF after the end line, which is checked.
func (f *lineReader) next() (e entry, err error) {
	line, err := f.line()
	if err != nil {
		return e, err
	}
	switch {
	case bytes.HasPrefix(line, []byte(`{"end":`)):
		return e, f.end(line)
	case bytes.HasPrefix(line, []byte(`{"seq":`)):
		err = f.record(line, &e)
	case bytes.HasPrefix(line, []byte(`{"value":`)):
		err = f.value(line, &e)
	case bytes.HasPrefix(line, []byte(`{"fold":`)):
		err = f.fold(line, &e)
	default:
		err = f.invalid("it is no entry of this version")
	}
	f.hash.Write(line)
	return e, err
}

func (f *lineReader) record(line []byte, e *entry) error {
	var l recordLine
	if err := f.decode(line, &l); err != nil {
		return err
	}
	data, err := l.bytes()
	if err != nil {
		return f.invalid(err.Error())
	}
	e.rec = &chunk.Record{Seq: l.Seq, Type: l.Type, Agent: l.Agent, Time: l.Time, Data: data}
	switch l.Class {
	case chunk.Kept.String():
	case chunk.Trace.String():
		e.rec.Class = chunk.Trace
	default:
		return f.invalid("the class is neither kept nor trace")
	}
	if err := f.checked(&spool.Import{After: f.seq, Records: []chunk.Record{*e.rec}}); err != nil {
		return err
	}
	f.seq = l.Seq
	f.records++
	return nil
}

func (f *lineReader) value(line []byte, e *entry) error {
	var l valueLine
	if err := f.decode(line, &l); err != nil {
		return err
	}
	data, err := l.bytes()
	if err != nil {
		return f.invalid(err.Error())
	}
	if err := contract.CheckBlob(f.header.Session, l.Value, data); err != nil {
		return err
	}
	if blobref.Hash(data) != l.Value {
		return ErrDamaged.Because(fmt.Sprintf("line %d: the value is not what its hash says", f.n))
	}
	key := sha256.Sum256(data)
	if len(f.values) >= MaxFileValues && !f.values[key] {
		return chunk.ErrTooLarge.Because("the file has too many large values")
	}
	f.values[key] = true
	e.value, e.data = l.Value, data
	return nil
}

func (f *lineReader) fold(line []byte, e *entry) error {
	var l foldLine
	if err := f.decode(line, &l); err != nil {
		return err
	}
	data, err := l.bytes()
	if err != nil {
		return f.invalid(err.Error())
	}
	e.fold = &spool.SavedFold{Version: l.Fold, Incarnation: l.Incarnation, Seq: l.Seq, Data: data}
	if h := &f.header; h.Floor == 0 || l.Seq < h.Floor || l.Seq > h.Seq || l.Incarnation != h.Incarnation || l.Fold < 0 {
		return f.invalid("the fold does not belong to the session")
	}
	return contract.CheckFold(f.header.Session, spool.FoldName, e.fold)
}

// end checks the last line, and that the file ends there.
func (f *lineReader) end(line []byte) error {
	var l endLine
	if err := f.decode(line, &l); err != nil {
		return err
	}
	if _, err := f.in.Peek(1); !errors.Is(err, io.EOF) {
		return f.invalid("something follows the end")
	}
	if l.End.Records != f.records || l.End.Values != len(f.values) || l.End.SHA256 != hex.EncodeToString(f.hash.Sum(nil)) {
		return ErrDamaged.Because("the file is not what the counts and the hash in its last line say")
	}
	if err := f.checked(&spool.Import{After: f.seq, Done: true}); err != nil {
		return err
	}
	return io.EOF
}

// refers counts the references of a record that have a value in the file.
func (f *lineReader) refers(data []byte) (n int) {
	for _, name := range blobref.In(data) {
		if strings.ToLower(name) != name {
			continue // the store has none under this name
		}
		var key [sha256.Size]byte
		if digits, err := hex.DecodeString(name[len("sha256:"):]); err == nil && len(digits) == len(key) {
			if copy(key[:], digits); f.values[key] {
				n++
			}
		}
	}
	return n
}
