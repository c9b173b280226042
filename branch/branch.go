// Package branch makes branches: new sessions that begin as another session was at a
// checkpoint.
package branch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/blobref"
)

// Options say where a branch begins and what it is called.
type Options struct {
	CheckpointID string
	Session      string // the new session's id
	// CommandID is the idempotency key of the call. Without one, the new session's id
	// is the key.
	CommandID string
	// Principal is the new session's principal; "" copies the source's.
	Principal string
}

// Make copies a session's kept records up to a checkpoint into a new session. The new
// session is invisible until its last record, a stream_resync that names its source, is
// written. Its fold is the session's fold at the checkpoint, under the new session's id and
// with its own sequences. Commands that had not taken effect are not copied. A run that
// was open at the checkpoint is suspended as interrupted. If the run did nothing after
// the checkpoint except end, the branch contains its end.
//
// After a crash, the unfinished branch is invisible, and the same call completes it. A
// call for a branch that exists already returns its origin. Make needs memory for the
// session's fold and a page of records.
//
// Errors: [spool.ErrNotFound] for an unknown session or checkpoint, [chunk.ErrInvalidID],
// [spool.ErrExists] if the new session's id is taken, [spool.ErrBusy] if another process is making
// the same branch and does not finish in time, [spool.ErrUnsupported], [chunk.ErrTooLarge],
// or the store's.
func Make(ctx context.Context, logs *spool.Logs, source string, o Options) (*fold.Origin, error) {
	if err := errors.Join(chunk.CheckSessionID(source), chunk.CheckSessionID(o.Session)); err != nil {
		return nil, err
	}
	leaser, ok := logs.Store().(spool.Leaser)
	if !ok {
		return nil, spool.ErrUnsupported
	}
	from, err := logs.Log(source)
	if err != nil {
		return nil, err
	}
	to, err := logs.Log(o.Session)
	if err != nil {
		return nil, err
	}
	b := &branching{logs: logs, from: from, to: to, o: o}
	if made, err := b.made(ctx); made != nil || err != nil {
		return made, err
	}
	if err := b.plan(ctx); err != nil {
		return nil, err
	}
	made, err := b.make(ctx, leaser)
	switch {
	case errors.Is(err, spool.ErrExists): // another process may have made it meanwhile
		if made, madeErr := b.made(ctx); made != nil || madeErr != nil {
			return made, madeErr
		}
	case errors.Is(err, spool.ErrSuperseded):
		return b.await(ctx)
	}
	return made, err
}

func (b *branching) make(ctx context.Context, leaser spool.Leaser) (*fold.Origin, error) {
	if err := b.claim(ctx, leaser); err != nil {
		return nil, err
	}
	defer func() { _ = leaser.Release(context.WithoutCancel(ctx), b.lease) }()
	if err := b.copy(ctx); err != nil {
		return nil, err
	}
	return b.finish(ctx)
}

// await waits a few seconds for the branch of the process that has taken over.
func (b *branching) await(ctx context.Context) (*fold.Origin, error) {
	for tries := range 10 {
		if err := b.logs.Sleep(ctx, min(10*time.Millisecond<<tries, time.Second)); err != nil {
			return nil, err
		}
		if made, err := b.made(ctx); made != nil || err != nil {
			return made, err
		}
	}
	busy := *spool.ErrBusy
	busy.Message, busy.Hint = "another process is making this branch", "send the request again"
	return nil, busy.With(b.o.Session, nil)
}

// made returns the origin of the new session if a call with this idempotency key has made
// it, nil if there is no such session, and [spool.ErrExists] for any other session.
func (b *branching) made(ctx context.Context) (origin *fold.Origin, err error) {
	o := &b.o
	err = b.to.View(ctx, func(f *fold.Fold) error {
		if f.Seq == 0 {
			return nil // only claimed yet, by another maker of this branch
		}
		if f.Origin == nil || f.Origin.Session != b.from.Session() || f.Origin.CheckpointID != o.CheckpointID || f.Origin.CommandID != o.CommandID {
			return spool.ErrExists.With(f.Session, nil)
		}
		copied := *f.Origin
		origin = &copied
		return nil
	})
	if errors.Is(err, spool.ErrNotFound) {
		return nil, nil
	}
	return origin, err
}

// branching makes one branch. All records but the last are a function of the source and
// the options alone, so that a process that continues a copy finds what it would have
// written itself.
type branching struct {
	logs     *spool.Logs
	from, to *spool.Log
	o        Options
	source   spool.Head

	checkpoint fold.Checkpoint
	run        string // of the checkpoint
	end        uint64 // the last sequence to copy: the checkpoint's, or its run's end
	drop       map[string]bool
	suffix     []chunk.Chunk // what settles the branch
	status     chunk.Status  // the status of the branch then
	row        spool.Row
	refs       []seqRef // sorted

	lease   spool.Lease
	ordinal uint64
	done    uint64 // the records that the branch holds
	count   uint64 // the records that it should hold so far
	held    []chunk.Record
	batch   []chunk.Record
	size    int
	blobs   map[string]bool
}

// seqRef is a sequence that a record refers to, and its counterpart in the branch.
type seqRef struct {
	old, new uint64
	fill     bool // a part has its place in the order by this sequence
}

// plan decides what to copy.
func (b *branching) plan(ctx context.Context) error {
	var err error
	if b.source, err = b.from.Head(ctx); err != nil {
		return err
	}
	if err := b.findEnd(ctx); err != nil {
		return err
	}
	f, err := b.from.FoldAt(ctx, b.end)
	if err != nil {
		return err
	}
	b.dropCommands(f)
	b.close(f)
	if lister, ok := b.logs.Store().(spool.Lister); ok {
		info, err := lister.Session(ctx, b.from.Session())
		if err != nil {
			return err
		}
		b.row = spool.Row{Agent: info.Agent, Title: info.Title}
	}
	b.row.Principal = cmp.Or(b.o.Principal, b.source.Principal)
	if err := b.to.CheckQuota(ctx, b.row); err != nil {
		return err
	}
	return b.collectRefs(ctx)
}

// findEnd decides how far the source is copied: up to the checkpoint, or to the end of
// its run if that did nothing more than end.
func (b *branching) findEnd(ctx context.Context) error {
	err := b.from.View(ctx, func(f *fold.Fold) error {
		i := slices.IndexFunc(f.Checkpoints, func(c fold.Checkpoint) bool { return c.ID == b.o.CheckpointID })
		if i < 0 {
			return spool.ErrNotFound.Because("there is no such checkpoint").With(f.Session, nil)
		}
		b.checkpoint = f.Checkpoints[i]
		b.end = b.checkpoint.Seq
		run := f.Run(b.checkpoint.RunID)
		last := i == len(f.Checkpoints)-1 || f.Checkpoints[i+1].RunID != b.checkpoint.RunID
		if run != nil && last && run.Outcome == chunk.OutcomeCompleted {
			b.run, b.end = run.ID, run.End
		}
		return nil
	})
	if err == nil && b.run != "" && !b.onlyEnds(ctx) {
		b.run, b.end = "", b.checkpoint.Seq
	}
	return err
}

// dropCommands leaves out the commands that no owner has acted on at the branch's end.
func (b *branching) dropCommands(f *fold.Fold) {
	b.drop = map[string]bool{}
	for _, c := range append(slices.Clone(f.Waiting), f.Continue, f.Stop, f.Interrupt) {
		if c != nil {
			b.drop[c.ID] = true
			if c.EditID != "" {
				b.drop[c.EditID] = true
			}
		}
	}
}

// close decides the branch's status. If a run is open at its end, close adds the
// records that suspend the run.
func (b *branching) close(f *fold.Fold) {
	b.status = f.Status
	if f.OpenRun() == nil {
		return
	}
	b.status = chunk.StatusPaused
	suspended := f.Owed().Suspend(chunk.SuspendedInterrupted, nil, 0)[0].(*chunk.RunSuspended)
	suspended.CheckpointID = b.o.CheckpointID
	b.suffix = fold.Split(append(f.Owed().UnsettledChildren("the session was branched while this ran"), suspended))
	for _, c := range b.suffix {
		c.ChunkBase().Timestamp = b.checkpoint.Time
	}
}

// collectRefs finds the sequences that records of the branch refer to.
func (b *branching) collectRefs(ctx context.Context) error {
	err := b.eachKept(ctx, b.source.Floor, func(_ chunk.Record, c chunk.Chunk) error {
		b.collect(c)
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range b.suffix {
		b.collect(c)
	}
	slices.SortFunc(b.refs, func(x, y seqRef) int {
		if x.old == y.old && x.fill != y.fill && x.fill {
			return -1 // not dropped
		}
		return cmp.Compare(x.old, y.old)
	})
	b.refs = slices.CompactFunc(b.refs, func(x, y seqRef) bool { return x.old == y.old })
	return nil
}

// onlyEnds reports whether the run did nothing after its last checkpoint except end.
func (b *branching) onlyEnds(ctx context.Context) bool {
	only := true
	err := b.eachKept(ctx, b.checkpoint.Seq, func(_ chunk.Record, c chunk.Chunk) error {
		if _, more := c.(*chunk.StepStarted); more {
			only = false
		}
		return nil
	})
	return err == nil && only
}

func (b *branching) collect(c chunk.Chunk) {
	fold.Sequences(c, func(seq *uint64, part bool) {
		if *seq > 0 {
			b.refs = append(b.refs, seqRef{old: *seq, fill: part})
		}
	})
}

// eachKept calls fn with the records to copy after a sequence, decoded.
func (b *branching) eachKept(ctx context.Context, at uint64, fn func(chunk.Record, chunk.Chunk) error) error {
	for at < b.end {
		recs, _, err := b.logs.Store().ReadKept(ctx, b.from.Session(), spool.KeptQuery{After: at})
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return spool.ErrNotFound.With(b.from.Session(), nil) // it was deleted meanwhile
		}
		for _, r := range recs {
			if at = r.Seq; at > b.end {
				return nil
			}
			c, err := chunk.Decode(r.Data)
			if err != nil {
				return chunk.ErrInvalidChunk.With(b.from.Session(), err)
			}
			switch command := chunk.IsCommand(r.Type); {
			case command && b.drop[chunk.CommandID(c)]:
				continue
			case r.Seq > b.checkpoint.Seq && (command || !b.ofRun(c.ChunkBase().RunID)):
				continue
			}
			if err := fn(r, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofRun reports whether a run is the checkpoint's, or the run of a child in it.
func (b *branching) ofRun(id string) bool { return id == b.run || strings.HasPrefix(id, b.run+".") }

// claim makes the new session, hidden: the store refuses commands for it.
func (b *branching) claim(ctx context.Context, leaser spool.Leaser) error {
	lease, err := leaser.Claim(ctx, spool.Claim{Owner: "branch-" + b.logs.NewID(), Session: b.o.Session, Force: true, Hidden: true,
		InProcess: true, Principal: b.row.Principal, SamePrincipal: true})
	if err != nil {
		return err
	}
	b.lease = lease
	if !lease.Head.Hidden {
		_ = leaser.Release(context.WithoutCancel(ctx), lease)
		return spool.ErrExists.With(b.o.Session, nil)
	}
	b.done = lease.Head.Seq
	return nil
}

func (b *branching) append(ctx context.Context, recs []chunk.Record, row spool.Row, show bool) (spool.Appended, error) {
	b.ordinal++
	return b.logs.Append(ctx, spool.Append{Session: b.o.Session, Epoch: b.lease.Epoch, Writer: "branch", Ordinal: b.ordinal,
		Records: recs, Row: row, Show: show})
}

// copy writes all but the last record.
func (b *branching) copy(ctx context.Context) error {
	next := 0 // of refs
	err := b.eachKept(ctx, b.source.Floor, func(r chunk.Record, c chunk.Chunk) error {
		for ; next < len(b.refs) && b.refs[next].old <= r.Seq; next++ {
			ref := &b.refs[next]
			switch {
			case ref.old == r.Seq:
				ref.new = b.count + 1
			case !ref.fill:
				ref.new = b.count
			default: // a part was opened here, by a record that is not copied
				if err := b.put(ctx, chunk.TraceOmitted(b.o.Session, r.Time, 0)); err != nil {
					return err
				}
				ref.new = b.count
			}
		}
		return b.write(ctx, r, c)
	})
	for ; next < len(b.refs) && err == nil; next++ {
		if b.refs[next].fill {
			err = b.put(ctx, chunk.TraceOmitted(b.o.Session, b.checkpoint.Time, 0))
		}
		b.refs[next].new = b.count
	}
	for _, c := range b.suffix {
		if err == nil {
			err = b.write(ctx, chunk.Record{Type: c.ChunkType(), Agent: c.ChunkBase().AgentID, Time: c.ChunkBase().Timestamp}, c)
		}
	}
	if err != nil {
		return err
	}
	if b.done > b.count {
		return spool.ErrExists.With(b.o.Session, nil) // the beginning of another branch
	}
	return b.flush(ctx)
}

// write writes the branch's version of a record, and the large values that it refers
// to.
func (b *branching) write(ctx context.Context, r chunk.Record, c chunk.Chunk) error {
	for _, hash := range blobref.In(r.Data) {
		if err := b.copyBlob(ctx, hash); err != nil {
			return err
		}
	}
	fold.Sequences(c, func(seq *uint64, _ bool) {
		i, ok := slices.BinarySearchFunc(b.refs, *seq, func(ref seqRef, seq uint64) int { return cmp.Compare(ref.old, seq) })
		if ok && *seq > 0 {
			*seq = b.refs[i].new
		}
	})
	data, err := fold.Readdress(c, b.rename)
	if err != nil {
		return chunk.ErrInvalidChunk.With(b.from.Session(), err)
	}
	r.Agent, r.Data = b.rename(r.Agent), data
	return b.put(ctx, r)
}

// rename returns the name that an agent of the source has in the branch.
func (b *branching) rename(agent string) string {
	if suffix, ok := bytes.CutPrefix([]byte(agent), []byte(b.from.Session())); ok && chunk.RootID(agent) == b.from.Session() {
		return b.o.Session + string(suffix)
	}
	return agent
}

// put adds a record to the branch, or checks that it is there.
func (b *branching) put(ctx context.Context, r chunk.Record) error {
	if len(r.Data) > chunk.MaxRecordBytes {
		return chunk.ErrTooLarge.Because("a record would exceed the size limit under the new session's id").With(b.o.Session, nil)
	}
	b.count++
	if b.count <= b.done {
		return b.check(ctx, r)
	}
	if len(b.batch) >= b.logs.BatchRecords() || b.size+len(r.Data) > spool.MaxAppendBytes {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.batch = append(b.batch, r)
	b.size += len(r.Data)
	return nil
}

func (b *branching) check(ctx context.Context, r chunk.Record) error {
	if len(b.held) == 0 {
		var err error
		b.held, _, err = b.logs.Store().ReadKept(ctx, b.o.Session, spool.KeptQuery{After: b.count - 1, Max: 64})
		if err != nil {
			return err
		}
	}
	if len(b.held) == 0 || b.held[0].Seq != b.count || !bytes.Equal(b.held[0].Data, r.Data) {
		return spool.ErrExists.With(b.o.Session, nil)
	}
	b.held = b.held[1:]
	return nil
}

func (b *branching) flush(ctx context.Context) error {
	if len(b.batch) == 0 {
		return nil
	}
	res, err := b.append(ctx, b.batch, spool.Row{}, false)
	if err != nil {
		return err
	}
	b.done, b.batch, b.size = res.Last, nil, 0
	return nil
}

// copyBlob copies a large value, before the record that refers to it.
func (b *branching) copyBlob(ctx context.Context, hash string) error {
	store, ok := b.logs.Store().(spool.BlobStore)
	if !ok || b.blobs[hash] {
		return nil
	}
	data, err := store.GetBlob(ctx, b.from.Session(), hash)
	if errors.Is(err, spool.ErrNotFound) {
		return nil // gone in the source, too; or it never was a reference
	}
	if err != nil {
		return err
	}
	if err := store.PutBlob(ctx, b.o.Session, hash, data); err != nil {
		return err
	}
	if b.blobs == nil || len(b.blobs) > 1000 {
		b.blobs = map[string]bool{}
	}
	b.blobs[hash] = true
	return nil
}

// finish writes the record that makes the branch visible.
func (b *branching) finish(ctx context.Context) (*fold.Origin, error) {
	if h, err := b.from.Head(ctx); err != nil {
		return nil, err
	} else if h.Incarnation != b.source.Incarnation {
		return nil, spool.ErrNotFound.With(b.from.Session(), nil)
	}
	c := &chunk.StreamResync{CheckpointID: b.checkpoint.ID, StepCount: b.checkpoint.StepCount, MessageCount: b.checkpoint.MessageCount,
		FromSequence: b.count, Reason: "branch", SourceSessionID: b.from.Session(), CommandID: b.o.CommandID}
	c.Base = chunk.Base{AgentID: b.o.Session, AgentType: b.row.Agent, Timestamp: b.logs.Now().UnixMilli()}
	data, err := chunk.Append(nil, c)
	if err != nil {
		return nil, err
	}
	last := chunk.Record{Type: c.ChunkType(), Agent: c.AgentID, Time: c.Timestamp, Data: data}
	// Assistant messages carry the order of parts, and deltas are not copied: for
	// readers the trace up to here is trimmed.
	if trimmer, ok := b.logs.Store().(spool.Trimmer); ok {
		if err := trimmer.Trim(ctx, b.o.Session, b.count, 0); err != nil {
			return nil, err
		}
	}
	b.row.Status = b.status
	res, err := b.append(ctx, []chunk.Record{last}, b.row, true)
	if err != nil {
		return nil, err
	}
	return &fold.Origin{Session: b.from.Session(), CheckpointID: b.checkpoint.ID, CommandID: b.o.CommandID, Seq: res.Last}, nil
}
