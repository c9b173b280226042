package spool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/blobref"
)

// BranchOptions say where a branch begins and what it is called.
type BranchOptions struct {
	CheckpointID string
	Session      string // the new session's id
	// CommandID is the idempotency key of the call. Without one, the new session's id
	// is the key.
	CommandID string
	// Principal is the new session's principal; "" copies the source's.
	Principal string
}

// Branch copies the log's kept records up to a checkpoint into a new session. The new
// session is invisible until its last record, a stream_resync that names its source, is
// written. Its fold is the log's fold at the checkpoint, under the new session's id and
// with its own sequences. Commands that had not taken effect are not copied. A run that
// was open at the checkpoint is suspended as interrupted. If the run did nothing after
// the checkpoint except end, the branch contains its end.
//
// After a crash, the unfinished branch is invisible, and the same call completes it. A
// call for a branch that exists already returns its origin. Branch needs memory for the
// log's fold and a page of records.
//
// Errors: [ErrNotFound] for an unknown session or checkpoint, [chunk.ErrInvalidID],
// [ErrExists] if the new session's id is taken, [ErrBusy] if another process is making
// the same branch and does not finish in time, [ErrUnsupported], [chunk.ErrTooLarge],
// or the store's.
func (g *Log) Branch(ctx context.Context, o BranchOptions) (*fold.Origin, error) {
	if err := errors.Join(chunk.CheckSessionID(g.session), chunk.CheckSessionID(o.Session)); err != nil {
		return nil, err
	}
	leaser, ok := g.logs.store.(Leaser)
	if !ok {
		return nil, ErrUnsupported
	}
	target, err := g.logs.Log(o.Session)
	if err != nil {
		return nil, err
	}
	if made, err := target.madeBy(ctx, g.session, o); made != nil || err != nil {
		return made, err
	}
	b := &branching{from: g, to: target, o: o}
	if err := b.plan(ctx); err != nil {
		return nil, err
	}
	made, err := b.make(ctx, leaser)
	switch {
	case errors.Is(err, ErrExists): // another process may have made it meanwhile
		if made, madeErr := target.madeBy(ctx, g.session, o); made != nil || madeErr != nil {
			return made, madeErr
		}
	case errors.Is(err, ErrSuperseded):
		return b.await(ctx)
	}
	return made, err
}

func (b *branching) make(ctx context.Context, leaser Leaser) (*fold.Origin, error) {
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
		if err := b.from.logs.Sleep(ctx, backoff(tries)); err != nil {
			return nil, err
		}
		if made, err := b.to.madeBy(ctx, b.from.session, b.o); made != nil || err != nil {
			return made, err
		}
	}
	busy := *ErrBusy
	busy.Message, busy.Hint = "another process is making this branch", "send the request again"
	return nil, busy.With(b.o.Session, nil)
}

// madeBy returns the origin of a session that a call with this idempotency key has
// made, nil if there is no such session, and [ErrExists] for any other session.
func (g *Log) madeBy(ctx context.Context, source string, o BranchOptions) (origin *fold.Origin, err error) {
	err = g.View(ctx, func(f *fold.Fold) error {
		if f.Seq == 0 {
			return nil // only claimed yet, by another maker of this branch
		}
		if f.Origin == nil || f.Origin.Session != source || f.Origin.CheckpointID != o.CheckpointID || f.Origin.CommandID != o.CommandID {
			return ErrExists.With(g.session, nil)
		}
		copied := *f.Origin
		origin = &copied
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return origin, err
}

// branching makes one branch. All records but the last are a function of the source and
// the options alone, so that a process that continues a copy finds what it would have
// written itself.
type branching struct {
	from, to *Log
	o        BranchOptions
	source   Head

	checkpoint fold.Checkpoint
	run        string // of the checkpoint
	end        uint64 // the last sequence to copy: the checkpoint's, or its run's end
	drop       map[string]bool
	suffix     []chunk.Chunk // what settles the branch
	status     chunk.Status  // the status of the branch then
	row        Row
	refs       []seqRef // sorted

	lease   Lease
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
	if lister, ok := b.from.logs.store.(Lister); ok {
		info, err := lister.Session(ctx, b.from.session)
		if err != nil {
			return err
		}
		b.row = Row{Agent: info.Agent, Title: info.Title}
	}
	b.row.Principal = cmp.Or(b.o.Principal, b.source.Principal)
	return b.collectRefs(ctx)
}

// findEnd decides how far the source is copied: up to the checkpoint, or to the end of
// its run if that did nothing more than end.
func (b *branching) findEnd(ctx context.Context) error {
	err := b.from.View(ctx, func(f *fold.Fold) error {
		i := slices.IndexFunc(f.Checkpoints, func(c fold.Checkpoint) bool { return c.ID == b.o.CheckpointID })
		if i < 0 {
			return ErrNotFound.Because("there is no such checkpoint").With(f.Session, nil)
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
	page := 64
	for at < b.end {
		recs, _, err := b.from.logs.store.ReadKept(ctx, b.from.session, KeptQuery{After: at, Max: page})
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return ErrNotFound.With(b.from.session, nil) // it was deleted meanwhile
		}
		page = nextPage(page, recs)
		for _, r := range recs {
			if at = r.Seq; at > b.end {
				return nil
			}
			c, err := chunk.Decode(r.Data)
			if err != nil {
				return chunk.ErrInvalidChunk.With(b.from.session, err)
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
func (b *branching) claim(ctx context.Context, leaser Leaser) error {
	lease, err := leaser.Claim(ctx, Claim{Owner: "branch-" + b.from.logs.NewID(), Session: b.o.Session, Force: true, Hidden: true,
		InProcess: true, Principal: b.row.Principal, SamePrincipal: true})
	if err != nil {
		return err
	}
	b.lease = lease
	if !lease.Head.Hidden {
		_ = leaser.Release(context.WithoutCancel(ctx), lease)
		return ErrExists.With(b.o.Session, nil)
	}
	b.done = lease.Head.Seq
	return nil
}

func (b *branching) append(ctx context.Context, recs []chunk.Record, row Row, show bool) (Appended, error) {
	b.ordinal++
	res, _, err := b.to.append(ctx, Append{Session: b.o.Session, Epoch: b.lease.Epoch, Writer: "branch", Ordinal: b.ordinal,
		Records: recs, Row: row, Show: show}, giveUp, false)
	return res, err
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
		return ErrExists.With(b.o.Session, nil) // the beginning of another branch
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
		return chunk.ErrInvalidChunk.With(b.from.session, err)
	}
	r.Agent, r.Data = b.rename(r.Agent), data
	return b.put(ctx, r)
}

// rename returns the name that an agent of the source has in the branch.
func (b *branching) rename(agent string) string {
	if suffix, ok := bytes.CutPrefix([]byte(agent), []byte(b.from.session)); ok && chunk.RootID(agent) == b.from.session {
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
	if len(b.batch) >= b.from.logs.o.BatchRecords || b.size+len(r.Data) > MaxAppendBytes {
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
		b.held, _, err = b.to.logs.store.ReadKept(ctx, b.o.Session, KeptQuery{After: b.count - 1, Max: 64})
		if err != nil {
			return err
		}
	}
	if len(b.held) == 0 || b.held[0].Seq != b.count || !bytes.Equal(b.held[0].Data, r.Data) {
		return ErrExists.With(b.o.Session, nil)
	}
	b.held = b.held[1:]
	return nil
}

func (b *branching) flush(ctx context.Context) error {
	if len(b.batch) == 0 {
		return nil
	}
	res, err := b.append(ctx, b.batch, Row{}, false)
	if err != nil {
		return err
	}
	b.done, b.batch, b.size = res.Last, nil, 0
	return nil
}

// copyBlob copies a large value, before the record that refers to it.
func (b *branching) copyBlob(ctx context.Context, hash string) error {
	store, ok := b.from.logs.store.(BlobStore)
	if !ok || b.blobs[hash] {
		return nil
	}
	data, err := store.GetBlob(ctx, b.from.session, hash)
	if errors.Is(err, ErrNotFound) {
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
		return nil, ErrNotFound.With(b.from.session, nil)
	}
	c := &chunk.StreamResync{CheckpointID: b.checkpoint.ID, StepCount: b.checkpoint.StepCount, MessageCount: b.checkpoint.MessageCount,
		FromSequence: b.count, Reason: "branch", SourceSessionID: b.from.session, CommandID: b.o.CommandID}
	e := chunkEncoder{g: b.to, base: chunk.Base{AgentID: b.o.Session, AgentType: b.row.Agent}}
	recs, err := e.encode(ctx, []chunk.Chunk{c})
	if err != nil {
		return nil, err
	}
	// Assistant messages carry the order of parts, and deltas are not copied: for
	// readers the trace up to here is trimmed.
	if trimmer, ok := b.from.logs.store.(Trimmer); ok {
		if err := trimmer.Trim(ctx, b.o.Session, b.count, 0); err != nil {
			return nil, err
		}
	}
	b.row.Status = b.status
	res, err := b.append(ctx, recs, b.row, true)
	if err != nil {
		return nil, err
	}
	return &fold.Origin{Session: b.from.session, CheckpointID: b.checkpoint.ID, CommandID: b.o.CommandID, Seq: res.Last}, nil
}
