package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/store/contract"
)

// After so many messages without records the older ones are removed: claims, renewals.
const maxMetas = 64

// errAgain says that what a change was prepared for is no longer so.
var errAgain = errors.New("the session changed meanwhile")

// tidy removes messages that hold nothing but states of the past. Nobody needs it to succeed.
func (s *Store) tidy(session string, st *state) {
	if st.Metas < maxMetas || st.Metas%maxMetas != 0 {
		return
	}
	subject, through := s.subject(session, kindMeta), st.Indexed
	if through == 0 {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
		defer cancel()
		_ = s.purge(ctx, s.log, subject, through-1)
	})
}

// Trim implements [spool.Trimmer].
func (s *Store) Trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	for {
		err := s.trim(ctx, session, traceFloor, floor)
		if !errors.Is(err, errAgain) {
			return err
		}
	}
}

// trim raises the floors if nobody else does meanwhile, and removes what is below them.
func (s *Store) trim(ctx context.Context, session string, traceFloor, floor uint64) error {
	was, seq, err := s.existing(ctx, session)
	if err != nil {
		return err
	}
	to := was.Head
	contract.RaiseFloors(&to, traceFloor, floor)
	if to == was.Head {
		return nil
	}
	gone, err := s.below(ctx, was, seq, to)
	if err != nil {
		return s.failed(ctx, session, err)
	}
	_, _, err = s.update(ctx, session, func(st *state, _ uint64, _ int64) (*write, error) {
		if !st.Exists || st.Head.Incarnation != was.Head.Incarnation || st.Head.TraceFloor != was.Head.TraceFloor || st.Head.Floor != was.Head.Floor || st.Base != was.Base {
			return nil, errAgain
		}
		// With more records by now, the floors may be higher.
		if contract.RaiseFloors(&st.Head, traceFloor, floor); st.Head.TraceFloor != to.TraceFloor || st.Head.Floor != to.Floor {
			return nil, errAgain
		}
		st.Bytes -= gone.bytes
		return &write{kind: kindMeta}, nil
	})
	if err != nil {
		return err
	}
	// The floors are the promise. What cannot be removed now goes with the next trim.
	for _, kind := range []string{kindTrace, kindShown} {
		_ = s.purge(ctx, s.log, s.subject(session, kind), gone.trace)
	}
	for _, kind := range []string{kindKept, kindCommand} {
		_ = s.purge(ctx, s.log, s.subject(session, kind), gone.kept)
	}
	return nil
}

// removal is what lies below new floors: bytes, and the sequences of the last messages that
// can be removed.
type removal struct {
	bytes       int64
	trace, kept uint64
}

func (s *Store) below(ctx context.Context, st *state, seq uint64, to spool.Head) (r removal, err error) {
	err = s.scan(ctx, st, seq, "i.>", st.Head.Floor, func(rec *chunk.Record, at uint64) bool {
		if rec.Seq > to.Floor {
			if r.kept >= at {
				r.kept = at - 1
			}
			return false
		}
		r.kept = at
		if rec.Class == chunk.Kept {
			r.bytes += int64(len(rec.Data))
		}
		return true
	})
	if err != nil {
		return r, err
	}
	err = s.scan(ctx, st, seq, ">", st.Head.TraceFloor, func(rec *chunk.Record, at uint64) bool {
		if rec.Seq > to.TraceFloor {
			if r.trace >= at {
				r.trace = at - 1
			}
			return false
		}
		r.trace = at
		if rec.Class != chunk.Kept {
			r.bytes += int64(len(rec.Data))
		}
		return true
	})
	return r, err
}

// Delete implements [spool.Trimmer].
func (s *Store) Delete(ctx context.Context, session string) error {
	return s.remove(ctx, session, func(*state, int64) bool { return true })
}

// Expire implements [spool.Expirer].
func (s *Store) Expire(ctx context.Context, session string, idle time.Duration) error {
	return s.remove(ctx, session, func(st *state, now int64) bool { return contract.Expires(idle, st.Updated, st.Expires, now) })
}

// remove deletes a session if it may. Its last message stays, and holds what the next session
// of that name begins above.
func (s *Store) remove(ctx context.Context, session string, may func(*state, int64) bool) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	var before uint64
	_, seq, err := s.update(ctx, session, func(st *state, at uint64, now int64) (*write, error) {
		if !st.Exists {
			return nil, spool.ErrNotFound.With(session, nil)
		}
		if !may(st, now) {
			return nil, spool.ErrBusy.With(session, nil)
		}
		before = st.Deleted
		*st = state{Session: session, Generation: st.Generation, Head: contract.Deleted(st.Head), Deleted: st.Deleted + 1, Base: at, Updated: now}
		return &write{kind: kindMeta}, nil
	})
	if err != nil {
		return err
	}
	if err := s.purge(ctx, s.log, s.subject(session, ">"), seq-1); err != nil {
		return nil // it is deleted; the space is not free
	}
	var answer struct{}
	_ = s.api(ctx, "STREAM.PURGE."+s.values, map[string]any{"filter": s.valueSubject(session, before, ">")}, &answer)
	return nil
}

// valueSubject is the subject of values of a session that was deleted so many times before.
func (s *Store) valueSubject(session string, deleted uint64, rest string) string {
	return s.prefix + ".v." + token(session) + "." + strconv.FormatUint(deleted, 10) + "." + rest
}

// value says where the parts of a large value are.
type value struct {
	ID    string `json:"id"`
	Parts int    `json:"parts"`
	Size  int    `json:"size"`
}

// putValue stores a large value in messages of its own.
func (s *Store) putValue(ctx context.Context, session string, deleted uint64, data []byte) (value, error) {
	v := value{ID: nuid.Next(), Size: len(data)}
	part := 512 << 10
	if limit := int(s.nc.MaxPayload()); limit > 0 {
		part = min(part, limit*3/4)
	}
	for len(data) > 0 {
		n := min(part, len(data))
		if err := s.put(ctx, s.valueSubject(session, deleted, v.ID+"."+strconv.Itoa(v.Parts)), data[:n]); err != nil {
			return v, s.failed(ctx, session, err)
		}
		data = data[n:]
		v.Parts++
	}
	return v, nil
}

func (s *Store) put(ctx context.Context, subject string, data []byte) error {
	until, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	_, err := s.js.PublishMsg(until, &nats.Msg{Subject: subject, Data: data}, jetstream.WithRetryAttempts(0))
	return err
}

// getValue returns a large value, or errNoMessage if some of it is gone.
func (s *Store) getValue(ctx context.Context, session string, deleted uint64, v value) ([]byte, error) {
	data := make([]byte, 0, min(v.Size, contract.MaxBlob))
	for i := range v.Parts {
		m, err := s.get(ctx, s.values, query{Last: s.valueSubject(session, deleted, v.ID+"."+strconv.Itoa(i))})
		if err != nil {
			return nil, err
		}
		data = append(data, m.data...)
	}
	if len(data) != v.Size {
		return nil, errNoMessage
	}
	return data, nil
}

// PutBlob implements [spool.BlobStore]. The value is stored first, and then a message of the
// session that says where it is.
func (s *Store) PutBlob(ctx context.Context, session, hash string, data []byte) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := contract.CheckBlob(session, hash, data); err != nil {
		return err
	}
	for {
		st, _, _, err := s.load(ctx, session)
		if err != nil {
			return err
		}
		if _, _, err := s.blob(ctx, session, hash); !errors.Is(err, errNoMessage) {
			return err
		}
		v, err := s.putValue(ctx, session, st.Deleted, data)
		if err != nil {
			return err
		}
		place, err := json.Marshal(v)
		if err != nil {
			return err
		}
		deleted := st.Deleted
		_, _, err = s.update(ctx, session, func(st *state, _ uint64, _ int64) (*write, error) {
			if st.Deleted != deleted {
				return nil, errAgain
			}
			// Nobody else stores it meanwhile, or this message is refused.
			if _, _, err := s.blob(ctx, session, hash); !errors.Is(err, errNoMessage) {
				return nil, err
			}
			st.Blobs += int64(len(data))
			return &write{kind: kindBlob + token(hash), data: place}, nil
		})
		if !errors.Is(err, errAgain) {
			return err
		}
	}
}

// blob returns where a blob is, or errNoMessage.
func (s *Store) blob(ctx context.Context, session, hash string) (v value, deleted uint64, err error) {
	m, err := s.get(ctx, s.log, query{Last: s.subject(session, kindBlob+token(hash))})
	if errors.Is(err, errNoMessage) {
		return v, 0, errNoMessage
	}
	if err != nil {
		return v, 0, s.failed(ctx, session, err)
	}
	st, err := decodeState(m.header)
	if err != nil {
		return v, 0, spool.ErrUnavailable.With(session, err)
	}
	_, _, rest, err := decodePayload(m.data)
	if err == nil {
		err = json.Unmarshal(rest, &v)
	}
	if err != nil {
		return v, 0, spool.ErrUnavailable.With(session, err)
	}
	return v, st.Deleted, nil
}

var errNoBlob = spool.ErrNotFound.Because("there is no such blob")

// GetBlob implements [spool.BlobStore].
func (s *Store) GetBlob(ctx context.Context, session, hash string) ([]byte, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	v, deleted, err := s.blob(ctx, session, hash)
	if errors.Is(err, errNoMessage) {
		return nil, errNoBlob.With(session, nil)
	}
	if err != nil {
		return nil, err
	}
	st, _, _, err := s.load(ctx, session)
	if err != nil {
		return nil, err
	}
	if st.Deleted != deleted { // the message was about to be removed
		return nil, errNoBlob.With(session, nil)
	}
	data, err := s.getValue(ctx, session, deleted, v)
	if errors.Is(err, errNoMessage) {
		return nil, errNoBlob.With(session, nil)
	}
	if err != nil {
		return nil, s.failed(ctx, session, err)
	}
	return data, nil
}

// savedFold is a fold's last message: with its Data, or where that is.
type savedFold struct {
	Version     int    `json:"version"`
	Incarnation uint64 `json:"incarnation"`
	Seq         uint64 `json:"seq"`
	Data        []byte `json:"data,omitempty"`
	Value       *value `json:"value,omitempty"`
}

const maxInline = 256 << 10

func (s *Store) foldSubject(session string, deleted uint64, name string) string {
	return s.valueSubject(session, deleted, "fold."+token(name))
}

// SaveFold implements [spool.FoldStore].
func (s *Store) SaveFold(ctx context.Context, session, name string, f spool.SavedFold) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := contract.CheckFold(session, name, &f); err != nil {
		return err
	}
	st, _, err := s.existing(ctx, session)
	if err != nil {
		return err
	}
	subject := s.foldSubject(session, st.Deleted, name)
	old, _, err := s.fold(ctx, subject)
	if err != nil && !errors.Is(err, errNoMessage) {
		return s.failed(ctx, session, err)
	}
	x := savedFold{Version: f.Version, Incarnation: f.Incarnation, Seq: f.Seq, Data: f.Data}
	if len(f.Data) > maxInline {
		v, err := s.putValue(ctx, session, st.Deleted, f.Data)
		if err != nil {
			return err
		}
		x.Data, x.Value = nil, &v
	}
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if err := s.put(ctx, subject, text); err != nil {
		return s.failed(ctx, session, err)
	}
	// Older ones only need space.
	if m, err := s.get(ctx, s.values, query{Last: subject}); err == nil {
		_ = s.purge(ctx, s.values, subject, m.seq-1)
	}
	if old.Value != nil {
		var answer struct{}
		_ = s.api(ctx, "STREAM.PURGE."+s.values, map[string]any{"filter": s.valueSubject(session, st.Deleted, old.Value.ID+".>")}, &answer)
	}
	return nil
}

func (s *Store) fold(ctx context.Context, subject string) (x savedFold, seq uint64, err error) {
	m, err := s.get(ctx, s.values, query{Last: subject})
	if err == nil {
		err = json.Unmarshal(m.data, &x)
	}
	return x, m.seq, err
}

var errNoFold = spool.ErrNotFound.Because("there is no such saved fold")

// LoadFold implements [spool.FoldStore].
func (s *Store) LoadFold(ctx context.Context, session, name string) (spool.SavedFold, error) {
	if err := s.usable(ctx); err != nil {
		return spool.SavedFold{}, err
	}
	st, _, err := s.existing(ctx, session)
	if err != nil {
		return spool.SavedFold{}, err
	}
	for last := uint64(0); ; {
		x, seq, err := s.fold(ctx, s.foldSubject(session, st.Deleted, name))
		if err == nil && x.Value != nil {
			if x.Data, err = s.getValue(ctx, session, st.Deleted, *x.Value); errors.Is(err, errNoMessage) && seq != last {
				last = seq // another one was saved meanwhile, perhaps
				continue
			}
		}
		if errors.Is(err, errNoMessage) {
			return spool.SavedFold{}, errNoFold.With(session, nil)
		}
		if err != nil {
			return spool.SavedFold{}, s.failed(ctx, session, err)
		}
		return spool.SavedFold{Version: x.Version, Incarnation: x.Incarnation, Seq: x.Seq, Data: x.Data}, nil
	}
}
