package transfer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// Export writes a session to a file as it is now: its row, its records and its large values,
// and the saved fold where records that it stands for are gone. [Import] reads the file into
// any store. Nothing is written to the source, and what is appended meanwhile is not in the
// file.
//
// Errors: [spool.ErrNotFound], [spool.ErrUnsupported], [ErrChanged], [ErrDamaged],
// [chunk.ErrTooLarge] if there are more than [MaxFileValues] large values, and those of the
// store and of w.
func Export(ctx context.Context, from spool.Store, session string, w io.Writer) error {
	src, err := storedIn(from, session)
	if err != nil {
		return err
	}
	info, err := src.look(ctx)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	f := &fileWriter{out: out, hash: sha256.New(), values: map[string]bool{}}
	if err := f.session(ctx, src, info); err != nil {
		return err
	}
	return out.Flush()
}

// fileWriter writes the file of a session.
type fileWriter struct {
	out     io.Writer
	hash    hash.Hash
	line    []byte
	records uint64
	values  map[string]bool // the hashes of those that were written
}

func (f *fileWriter) session(ctx context.Context, src *stored, info spool.SessionInfo) error {
	first, err := json.Marshal(headerOf(info))
	if err != nil {
		return err
	}
	if err := f.write(append(first, '\n')); err != nil {
		return err
	}
	h := info.Head
	if err := f.fold(ctx, src, h); err != nil {
		return err
	}
	for at := h.Floor; at < h.Seq; {
		p, err := src.next(ctx, h, at, f.value)
		switch {
		case errors.Is(err, spool.ErrTrimmed), err == nil && p.head.Incarnation != h.Incarnation, err == nil && p.at == at:
			return ErrChanged.With(info.Session, nil)
		case err != nil:
			return err
		}
		at = p.at
		for i := range p.recs {
			if p.recs[i].Seq > h.Seq {
				break // appended meanwhile
			}
			f.records++
			if err := f.write(appendRecord(f.line[:0], &p.recs[i])); err != nil {
				return err
			}
		}
	}
	var l endLine
	l.End.Records, l.End.Values, l.End.SHA256 = f.records, len(f.values), hex.EncodeToString(f.hash.Sum(nil))
	last, err := json.Marshal(&l)
	if err != nil {
		return err
	}
	return f.write(append(last, '\n'))
}

func (f *fileWriter) fold(ctx context.Context, src *stored, h spool.Head) error {
	saved, err := src.fold(ctx, h, f.value)
	if errors.Is(err, spool.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	b := strconv.AppendInt(append(f.line[:0], `{"fold":`...), int64(saved.Version), 10)
	b = strconv.AppendUint(append(b, `,"incarnation":`...), saved.Incarnation, 10)
	b = strconv.AppendUint(append(b, `,"seq":`...), saved.Seq, 10)
	return f.write(appendPayload(b, saved.Data))
}

// value writes a large value once.
func (f *fileWriter) value(name string, data []byte) error {
	if f.values[name] {
		return nil
	}
	if len(f.values) >= MaxFileValues {
		return chunk.ErrTooLarge.Because("the session has too many large values for a file")
	}
	f.values[name] = true
	return f.write(appendPayload(jsonenc.AppendString(append(f.line[:0], `{"value":`...), name), data))
}

func (f *fileWriter) write(line []byte) error {
	f.line = line
	f.hash.Write(line)
	_, err := f.out.Write(line)
	return err
}
