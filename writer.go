package spool

import (
	"bytes"
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/encode"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/internal/wait"
)

// queueBytes bounds what a writer queues that the store has not taken yet.
const queueBytes = 1 << 20

// MaxLinger bounds [WriterOptions.Linger].
const MaxLinger = 50 * time.Millisecond

// WriterOptions configure a [Writer].
type WriterOptions struct {
	// Name distinguishes the writers of one lease. A name must not be used twice under
	// a lease.
	Name string
	// Defaults of the chunks' base fields. AgentID: the session if empty.
	AgentID, AgentType, RunID string
	// QueueBytes bounds what is queued. 0: 1 MiB.
	QueueBytes int
	// Ordinal is the ordinal of the last append under this name, for a writer that
	// continues another process's. 0: the name is new.
	Ordinal uint64
	// Merge makes one record of neighbouring deltas of one block that wait for the same
	// append, if each of them comes in a call of its own. It is for owners that do not
	// count their records.
	Merge bool
	// Linger is how long, with Merge, a delta that no append is under way before waits for
	// more of its block: until anything else is queued or a call waits for the delta. At
	// most 50 ms.
	Linger time.Duration
}

// Writer appends chunks under a lease. It queues them and makes one append at a time;
// chunks that arrive meanwhile go into the next one. While the store cannot be reached, or
// cannot write, it repeats its append and holds its callers back. If the lease is still
// the latest one when the store is back, nothing is lost, however long that took. The
// first failure is permanent: every later call returns it.
//
// A Writer may be used from several goroutines; the chunks of one call stay
// together.
type Writer struct {
	g      *Log
	lease  Lease
	name   string
	limit  int
	merge  bool
	linger time.Duration
	ctx    context.Context
	cancel context.CancelFunc

	order wait.Lock      // held while one call encodes and queues, so that calls keep their order
	enc   encode.Encoder // used by the holder of order

	mu       sync.Mutex
	base     chunk.Base
	queue    []queued
	bytes    int
	added    uint64        // items ever queued
	done     uint64        // items settled, in order
	changed  chan struct{} // closed when done or err changes; nil if no call waits
	flushing bool
	hurry    context.CancelFunc // ends the flusher's lingering; nil if it does not linger
	buf      []byte             // for encoding deltas
	err      error
	ordinal  uint64 // used by the flusher only
	era      uint64 // of the log, after the last append; used by the flusher only
}

// queued is a record that waits for its append, or the end of a Commit.
type queued struct {
	rec    chunk.Record
	deltas *fold.Deltas // the record's chunk, which is not encoded yet; nil for all others
	none   bool         // no record, only the fields below
	run    int          // number of records of the same call and class from here on
	size   int          // bytes of those records
	commit *commit      // the Commit that it belongs to
	last   bool         // the Commit ends with it
}

// commit is what a Commit's last append carries, and its result.
type commit struct {
	row    Row
	settle *Settle
	first  uint64 // sequence of its first record; 0 while none is stored
	res    Appended
}

// batch is the next append, and its place in the queue.
type batch struct {
	Append
	items  int
	commit *commit // the Commit that it is a part of
	at     int     // index of that Commit's first record in the batch, -1 for none
	last   bool    // the Commit ends here
}

// Writer returns a writer under the lease. Close it when done.
func (g *Log) Writer(lease Lease, o WriterOptions) *Writer {
	w := &Writer{g: g, lease: lease, name: o.Name, limit: cmp.Or(max(o.QueueBytes, 0), queueBytes), ordinal: o.Ordinal, order: wait.NewLock(1),
		merge: o.Merge, linger: min(o.Linger, MaxLinger)}
	w.enc = g.encoder(chunk.Base{})
	w.base = chunk.Base{AgentID: cmp.Or(o.AgentID, g.session), AgentType: o.AgentType, RunID: o.RunID}
	w.ctx, w.cancel = context.WithCancel(WaitForStore(g.logs.ctx))
	return w
}

// SetStep sets the step of the following chunks.
func (w *Writer) SetStep(step int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.base.Step = step
}

// SetRun sets the run of the following chunks.
func (w *Writer) SetRun(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.base.RunID = id
}

// Append fills in the chunks' base fields, encodes the chunks and queues them. It waits
// while the queue is full. Either all of the chunks are queued or, with
// [chunk.ErrTooLarge], [chunk.ErrInvalidChunk] or ctx's error, none. Any other error is
// the writer's permanent failure ([ErrSuperseded], [ErrClosed], …).
func (w *Writer) Append(ctx context.Context, chunks ...chunk.Chunk) error {
	_, err := w.put(ctx, chunks, nil)
	return err
}

// Flush waits until everything queued before it is committed.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	upTo := w.added
	w.mu.Unlock()
	return w.wait(ctx, upTo)
}

// Commit is Append and Flush. Its last append carries row and settle, even if there are
// no chunks. Chunks of one class that fit into one append are appended atomically. The
// result names the sequences of the chunks given.
func (w *Writer) Commit(ctx context.Context, row Row, settle *Settle, chunks ...chunk.Chunk) (Appended, error) {
	c := &commit{row: row, settle: settle}
	upTo, err := w.put(ctx, chunks, c)
	if err != nil {
		return Appended{}, err
	}
	if err := w.wait(ctx, upTo); err != nil {
		return Appended{}, err
	}
	return c.res, nil
}

// Close drops the queue and ends the writer: later calls fail with [ErrClosed].
func (w *Writer) Close() error {
	w.fail(ErrClosed)
	w.cancel()
	return nil
}

// put encodes and queues, and returns the count of items up to its last.
func (w *Writer) put(ctx context.Context, chunks []chunk.Chunk, c *commit) (uint64, error) {
	select {
	case w.order <- struct{}{}:
		defer w.order.Release()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	w.mu.Lock()
	w.enc.Base = w.base
	err := w.err
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if w.merge && c == nil && len(chunks) == 1 {
		w.enc.Fill(chunks[0])
		if d := fold.NewDeltas(chunks[0]); d != nil {
			return w.putDelta(ctx, d, chunks[0])
		}
	}
	recs, err := w.enc.Encode(ctx, chunks)
	if err != nil {
		return 0, err
	}
	items := make([]queued, len(recs), len(recs)+1)
	size := 0
	for i := len(recs) - 1; i >= 0; i-- {
		items[i] = queued{rec: recs[i], run: 1, size: len(recs[i].Data), commit: c}
		if i+1 < len(recs) && recs[i+1].Class == recs[i].Class {
			items[i].run += items[i+1].run
			items[i].size += items[i+1].size
		}
		size += len(recs[i].Data)
	}
	if c != nil {
		if len(items) == 0 {
			items = append(items, queued{none: true, commit: c})
		}
		items[len(items)-1].last = true
	}
	if err := w.room(ctx, size); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queueLocked(items, size)
}

// putDelta is put for a delta that may become one record with its neighbours.
func (w *Writer) putDelta(ctx context.Context, d *fold.Deltas, c chunk.Chunk) (uint64, error) {
	size := d.Len() + recordOverhead
	if err := w.room(ctx, size); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.queue); n > 0 && w.queue[n-1].deltas != nil && w.queue[n-1].deltas.Add(c) {
		w.queue[n-1].size += d.Len()
		w.bytes += d.Len()
		return w.added, nil
	}
	b := c.ChunkBase()
	return w.queueLocked([]queued{{deltas: d, run: 1, size: size,
		rec: chunk.Record{Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Class: chunk.ClassOf(c)}}}, size)
}

// encodeLocked encodes a record of deltas, whose append is next.
func (w *Writer) encodeLocked(q *queued) {
	w.buf, _ = chunk.Append(w.buf[:0], q.deltas.Chunk()) // deltas can always be encoded
	q.rec.Data, q.deltas = bytes.Clone(w.buf), nil
	w.bytes += len(q.rec.Data) - q.size
	q.size = len(q.rec.Data)
}

// queueLocked queues items, which take so many bytes, and returns the count of items up
// to the last.
func (w *Writer) queueLocked(items []queued, size int) (uint64, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.queue = append(w.queue, items...)
	w.bytes += size
	w.added += uint64(len(items))
	w.hurryLocked()
	if !w.flushing && len(w.queue) > 0 {
		w.flushing = w.g.logs.spawn(w.flush)
		if !w.flushing {
			w.failLocked(ErrClosed)
			return 0, ErrClosed
		}
	}
	return w.added, nil
}

// room waits until size more bytes may be queued. An empty queue takes any size.
func (w *Writer) room(ctx context.Context, size int) error {
	for {
		w.mu.Lock()
		if w.err != nil || w.bytes == 0 || w.bytes+size <= w.limit {
			err := w.err
			w.mu.Unlock()
			return err
		}
		if err := w.awaitLocked(ctx); err != nil {
			return err
		}
	}
}

// wait waits until that many items are committed.
func (w *Writer) wait(ctx context.Context, upTo uint64) error {
	for {
		w.mu.Lock()
		if w.done >= upTo {
			w.mu.Unlock()
			return nil
		}
		if err := w.err; err != nil {
			w.mu.Unlock()
			return err
		}
		if err := w.awaitLocked(ctx); err != nil {
			return err
		}
	}
}

// awaitLocked waits for a change. It is called with mu held and returns without it.
func (w *Writer) awaitLocked(ctx context.Context) error {
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	w.hurryLocked()
	changed := w.changed
	w.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(err)
}

func (w *Writer) failLocked(err error) {
	if w.err == nil {
		w.err = err
		w.queue, w.bytes = nil, 0
	}
	w.signalLocked()
}

func (w *Writer) signalLocked() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// flush appends until the queue is empty.
func (w *Writer) flush() {
	for {
		w.gather()
		// One append at a time in this session, for all its writers.
		if w.g.logs.acquire(w.ctx, w.g.flight) != nil {
			w.fail(ErrClosed)
			return
		}
		b, more := w.next()
		if !more {
			w.g.flight.Release()
			return
		}
		var res Appended
		err := error(errLost.With(w.g.session, nil))
		if w.era == 0 || w.era == w.g.tail.seen().era {
			res, w.era, err = w.g.append(w.ctx, b.Append, 0)
		}
		w.g.flight.Release()
		if err != nil {
			if w.ctx.Err() != nil {
				err = ErrClosed
			}
			w.fail(err)
			return
		}
		w.settle(&b, res)
	}
}

// gather gives a delta the time to become more.
func (w *Writer) gather() {
	w.mu.Lock()
	if w.linger <= 0 || len(w.queue) != 1 || w.queue[0].deltas == nil || w.changed != nil {
		w.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.hurry = cancel
	w.mu.Unlock()
	_ = w.g.logs.Sleep(ctx, w.linger)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurry = nil
}

func (w *Writer) hurryLocked() {
	if w.hurry != nil {
		w.hurry()
	}
}

// next takes the next append off the queue: records of one class, within the
// limits, and no further than the end of a Commit. Records of one call are kept
// together if an append can hold them.
func (w *Writer) next() (b batch, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.flushing = false
		return b, false
	}
	b.at = -1
	limit := w.g.logs.o.BatchRecords
	size, together := 0, 0 // together: the number of following records that are known to fit
	for b.items < len(w.queue) && !b.last {
		q := &w.queue[b.items]
		if q.deltas != nil {
			w.encodeLocked(q)
		}
		if n := len(b.Records); !q.none {
			if n > 0 && q.rec.Class != b.Records[0].Class || n == limit || size+len(q.rec.Data) > MaxAppendBytes {
				break
			}
			if together == 0 {
				if n > 0 && q.run <= limit && q.size <= MaxAppendBytes && (n+q.run > limit || size+q.size > MaxAppendBytes) {
					break
				}
				together = q.run
			}
			together--
			size += len(q.rec.Data)
			if q.commit != nil && b.at < 0 {
				b.commit, b.at = q.commit, n
			}
			b.Records = append(b.Records, q.rec)
		}
		if q.last {
			b.commit, b.last = q.commit, true
			b.Row, b.Settle = q.commit.row, q.commit.settle
		}
		b.items++
	}
	w.ordinal++
	b.Session, b.Epoch, b.Writer, b.Ordinal = w.g.session, w.lease.Epoch, w.name, w.ordinal
	clear(w.queue[:b.items])
	w.queue = w.queue[b.items:]
	return b, true
}

// settle notes that an append succeeded.
func (w *Writer) settle(b *batch, res Appended) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := b.commit; c != nil {
		if c.first == 0 && b.at >= 0 {
			c.first = res.First + uint64(b.at)
		}
		if b.last {
			c.res = res
			c.res.First = c.first
			if c.first == 0 {
				c.res.First = res.Last + 1
			}
		}
	}
	for i := range b.Records {
		w.bytes -= len(b.Records[i].Data)
	}
	w.done += uint64(b.items)
	w.signalLocked()
}

// Entry is what [Log.Append] stores.
type Entry struct {
	Writer  string // as in [Append]
	Ordinal uint64
	Base    chunk.Base // defaults of the chunks' base fields; AgentID: the session if empty
	Row     Row
	Settle  *Settle
	Chunks  []chunk.Chunk
}

// Append makes one append under a lease, in the caller's goroutine. It is for owners
// that number their appends themselves and wait for each of them; a [Writer] queues and
// numbers them. While the outcome is unknown the append is repeated, at most for the
// lease's TTL or until ctx ends. An append of which nothing was stored fails at once, with
// [ErrNotStored]; a Writer goes on trying. With a context of [WaitForStore] so does
// Append.
//
// Errors: [chunk.ErrTooLarge] if the chunks do not fit into one append, and
// [chunk.ErrInvalidChunk], both before anything is stored; [ErrSuperseded],
// [ErrUnavailable], the store's or ctx's.
func (g *Log) Append(ctx context.Context, lease Lease, e Entry) (Appended, error) {
	if e.Base.AgentID == "" {
		e.Base.AgentID = g.session
	}
	enc := g.encoder(e.Base)
	recs, err := enc.Encode(ctx, e.Chunks)
	if err != nil {
		return Appended{}, err
	}
	if n, size := sizeOf(recs); n > g.logs.o.BatchRecords || size > MaxAppendBytes {
		return Appended{}, chunk.ErrTooLarge.Because("the chunks are too large for one append").With(g.session, nil)
	}
	// One append at a time in this session, for all its writers.
	if err := g.logs.acquire(ctx, g.flight); err != nil {
		return Appended{}, err
	}
	defer g.flight.Release()
	res, _, err := g.append(ctx, Append{Session: g.session, Epoch: lease.Epoch, Writer: e.Writer, Ordinal: e.Ordinal,
		Records: recs, Row: e.Row, Settle: e.Settle}, lease.patience())
	return res, err
}

// Known returns the newest head that this process has seen, the zero Head if it has
// seen none. It does not ask the store: other processes may have appended more.
func (g *Log) Known() Head { return g.tail.current() }
