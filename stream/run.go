package stream

import (
	"context"
	"errors"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// run is an external run, whose producer has an agent of its own, under a claim of this
// process. It is the state machine of all such runs, of those that programs write
// through a [Manager] and of those that come over HTTP ([External]): it knows in which
// phase of which step a run is, writes the chunks that belong between its producer's
// chunks, obeys stops and settles the run. [runs.open] opens one.
//
// Its state comes from the log and from the results of its own appends. One call at a
// time uses it.
type run struct {
	logs  *spool.Logs
	log   *spool.Log // set while a call uses it: an idle claim keeps no log in memory
	lease spool.Lease
	info  fold.Run
	// counted: the producer's chunks are counted, and the claim itself begins a step.
	counted   bool
	messageID string

	open  bool
	stop  bool // a stop command waits
	in    place
	since uint64 // the last sequence before the turn
	// subs are the types of the sub-agents that this turn's records name, by their ids;
	// nil: not read yet.
	subs map[string]string

	writer string // the name of our appends,
	sent   uint64 // and the number of records that they have stored
	at     uint64 // the last known sequence of the log
	behind bool   // the log may have grown: look before the next append

	count uint64 // the producer's chunks in the log,
	last  uint64 // the sequence of the last of them,
	first uint64 // and that of number nth, counted from 1, when it came
	nth   uint64
}

// errOvertaken: another process that handles the same append has stored more or less of
// it. The run's present state must be read from the log.
var errOvertaken = errors.New("stream: the place is taken")

func overtaken(session string) error {
	return spool.ErrUnavailable.Because("another node is handling the same append").With(session, errOvertaken)
}

// append stores the chunks of e, in as few appends as possible. The last of them
// carries row and settle.
//
// The ordinal of an append is the number of records before it. So if two processes
// write for the same claim from the same point, they use the same ordinal, and the
// store accepts one of them.
func (r *run) append(ctx context.Context, e spool.Entry) error {
	e.Chunks = fold.Split(e.Chunks) // each is a record, as the ordinals count them
	n := uint64(len(e.Chunks))
	e.Writer, e.Ordinal = r.writer, r.sent+1
	if n == 0 {
		e.Ordinal = 0
	}
	if e.Base.RunID == "" {
		e.Base.RunID = r.info.ID
	}
	res, err := r.log.Append(ctx, r.lease, e)
	if errors.Is(err, chunk.ErrTooLarge) && n > 1 {
		half := e
		half.Chunks, half.Row, half.Settle = e.Chunks[:n/2], spool.Row{}, nil
		if err := r.append(ctx, half); err != nil {
			return err
		}
		e.Chunks = e.Chunks[n/2:]
		return r.append(ctx, e)
	}
	if err != nil {
		r.behind = true
		return err
	}
	r.behind = r.behind || res.Head.Seq != r.at+n || n > 0 && res.First != r.at+1
	if n > 0 && res.Last+1-res.First != n {
		r.behind = true
		return overtaken(r.lease.Session)
	}
	r.sent += n
	r.at = max(r.at, res.Last)
	for i, c := range e.Chunks {
		if !fatal(c) {
			r.counts(c.ChunkType(), res.First+uint64(i))
		}
	}
	return nil
}

// fatal reports whether a chunk is the error that a failed run writes before its end.
func fatal(c chunk.Chunk) bool {
	e, ok := c.(*chunk.ErrorChunk)
	return ok && e.Fatal
}

// counts notes a record of the run. The run's end counts as the chunk with which the
// producer asked for it.
func (r *run) counts(t chunk.Type, seq uint64) {
	if !allowed(t) && t != chunk.TypeRunFinished && t != chunk.TypeRunSuspended {
		return
	}
	r.count++
	r.last = seq
	if r.count == r.nth {
		r.first = seq
	}
}

// catchUp reads the log if it may have grown: by another process, as the result of the
// last append shows, or in this process.
func (r *run) catchUp(ctx context.Context) error {
	if known := r.log.Known(); !r.behind && known.Seq <= r.at && known.Epoch <= r.lease.Epoch {
		return nil
	}
	return r.look(ctx)
}

// look reads the run's state from the log. It fails with [spool.ErrSuperseded] if the
// claim is over.
func (r *run) look(ctx context.Context) error {
	head, err := r.log.Head(ctx)
	if errors.Is(err, spool.ErrNotFound) || err == nil && head.Epoch != r.lease.Epoch {
		return spool.ErrSuperseded.With(r.lease.Session, nil)
	}
	if err != nil {
		return err
	}
	before := *r
	err = r.log.View(ctx, func(f *fold.Fold) error {
		turn := f.LastTurn()
		if turn == nil || turn.LastRun().Mode != chunk.ModeExternal {
			return spool.ErrSuperseded.With(r.lease.Session, nil)
		}
		r.info, r.messageID = *turn.LastRun(), turn.MessageID
		r.open = f.OpenRun() != nil
		r.stop = r.open && f.Stop != nil
		r.in = placeOf(f)
		r.at = f.Seq
		return nil
	})
	if err == nil && r.counted {
		err = r.recount(ctx, before.at)
	}
	if err != nil {
		*r = before
	}
	r.behind = err != nil
	return err
}

// recount counts the records between a sequence and the one that the run has been
// seen at. 0: from the run's start.
func (r *run) recount(ctx context.Context, from uint64) error {
	if from == 0 {
		from, r.sent, r.count, r.last = r.info.Start, 0, 0, r.info.Start
	}
	for from < r.at {
		records, _, err := r.logs.Store().Read(ctx, r.lease.Session, from, 0)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return spool.ErrUnavailable.Because("the log is shorter than it was").With(r.lease.Session, nil)
		}
		for _, rec := range records {
			from = rec.Seq
			if rec.Seq > r.at || rec.Agent != r.lease.Session || chunk.IsCommand(rec.Type) || r.info.End != 0 && rec.Seq > r.info.End {
				continue
			}
			r.sent++
			if rec.Type == chunk.TypeError {
				if c, err := chunk.Decode(rec.Data); err == nil && fatal(c) {
					continue
				}
			}
			r.counts(rec.Type, rec.Seq)
		}
	}
	return nil
}

// obey ends the run if a stop waits for it. Then it returns [ErrProducerStopped].
func (r *run) obey(ctx context.Context) error {
	if !r.open || !r.stop {
		return nil
	}
	if err := r.finish(ctx, &chunk.RunFinished{Outcome: chunk.OutcomeStopped, FinishReason: "other"}, ""); err != nil {
		return err
	}
	_ = r.release(ctx)
	return ErrProducerStopped.With(r.lease.Session, nil)
}

// ask returns what the log says must be written next. If another node may write the
// same chunks, the log must be where this run has seen it: two nodes whose appends begin
// at the same record must write the same number of records.
func (r *run) ask(ctx context.Context, what func(*fold.Fold) []chunk.Chunk) (chunks []chunk.Chunk, err error) {
	err = r.log.View(ctx, func(f *fold.Fold) error {
		if r.counted && f.Seq > r.at {
			r.behind = true
			return overtaken(r.lease.Session)
		}
		chunks = what(f)
		return nil
	})
	return chunks, err
}

// finish settles the run: it writes what the run still lacks, the producer's last
// chunks, the run's end, the session's row and, if no command waits, the due time. why
// is the error of calls without an outcome; "" for the default text.
func (r *run) finish(ctx context.Context, end *chunk.RunFinished, why string, last ...chunk.Chunk) error {
	var settle *spool.Settle
	chunks, err := r.ask(ctx, func(f *fold.Fold) []chunk.Chunk {
		if len(f.Waiting) == 0 {
			settle = &spool.Settle{Seen: f.Seq}
		}
		if why != "" {
			return f.Owed().Unsettled(why)
		}
		list := f.Owed().Settle(end)
		return list[:len(list)-1]
	})
	if err != nil {
		return err
	}
	status := chunk.StatusEnded
	if end.Outcome == chunk.OutcomeFailed {
		status = chunk.StatusFailed
	}
	for _, c := range chunks {
		if step, ok := c.(*chunk.StepCommitted); ok && !r.counted && end.Outcome == chunk.OutcomeCompleted {
			step.Partial = false // only its producer knows where the step ends
		}
	}
	chunks = append(append(chunks, last...), end)
	err = r.append(ctx, spool.Entry{Base: r.base(0), Row: spool.Row{Status: status}, Settle: settle, Chunks: chunks})
	r.open = r.open && err != nil
	return err
}

// suspend pauses the run.
func (r *run) suspend(ctx context.Context, pause *chunk.RunSuspended) error {
	err := r.append(ctx, spool.Entry{Base: r.base(0), Row: spool.Row{Status: chunk.StatusPaused}, Chunks: []chunk.Chunk{pause}})
	r.open = r.open && err != nil
	return err
}

// base is the base fields of the run's own chunks.
func (r *run) base(step int) chunk.Base {
	return chunk.Base{AgentType: r.info.AgentType, RunID: r.info.ID, Step: step}
}

// release gives the claim up. If the store cannot be reached, the claim expires.
func (r *run) release(ctx context.Context) error {
	if leaser, ok := r.logs.Store().(spool.Leaser); ok {
		return leaser.Release(context.WithoutCancel(ctx), r.lease)
	}
	return nil
}

func stepID(run string, n int) string { return run + "-s" + strconv.Itoa(n) }
