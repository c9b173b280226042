package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// StoredChunk is a chunk and its place in its stream.
type StoredChunk struct {
	Chunk    chunk.Chunk
	Sequence uint64 // 1, 2, 3, …
}

// ChunkType returns the type of the chunk; "" if there is none.
func (s StoredChunk) ChunkType() chunk.Type {
	if s.Chunk == nil {
		return ""
	}
	return s.Chunk.ChunkType()
}

// Stored returns the chunk and its sequence.
func (s StoredChunk) Stored() (chunk.Chunk, uint64) { return s.Chunk, s.Sequence }

// Info is the present state of a stream.
type Info struct {
	Status         chunk.Status `json:"status"`
	TotalChunks    uint64       `json:"totalChunks"`
	LatestSequence uint64       `json:"latestSequence"`
	Error          string       `json:"error,omitempty"` // of a failed stream
}

// EndSentinelName is the name under which stream readers in other languages register
// their end sentinel.
const EndSentinelName = "helix.stream.end"

// EndSentinel tells how a reader's stream ended.
type EndSentinel struct {
	Status chunk.Status // ended, failed or paused
	Error  string       // of a failed stream
	// Message is the stream_end of a stream that ended normally; nil of others.
	Message *chunk.StreamEnd
}

// MarshalJSON writes the sentinel in the form of stream readers in other languages:
// {"__streamEnd":true,"status":…,"error":…}.
func (e EndSentinel) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		StreamEnd bool         `json:"__streamEnd"`
		Status    chunk.Status `json:"status"`
		Error     string       `json:"error,omitempty"`
	}{true, e.Status, e.Error})
}

// CreateReader returns a stream's chunks from the first until the stream is ended,
// failed or paused. Where trace was trimmed, as in a branch, the kept chunks are left;
// then the first chunk is a [*chunk.Unknown] of type [chunk.TypeTraceOmitted]. The
// iterator may be used once.
func (m *Manager) CreateReader(ctx context.Context, streamID string) iter.Seq2[chunk.Chunk, error] {
	return func(yield func(chunk.Chunk, error) bool) {
		g, err := m.logs.Log(streamID)
		if err != nil {
			yield(nil, err)
			return
		}
		Chunks(g.Records(ctx, spool.ReadOptions{}))(yield)
	}
}

// ResumableReader reads a stream from a position, and tells its present position. Use
// it from one goroutine at a time.
type ResumableReader struct {
	m       *Manager
	stream  string
	r       *spool.Reader
	first   spool.Head // when the reader was made
	pending []chunk.Record
	current uint64
	end     *EndSentinel
}

// CreateResumableReader returns a reader of the chunks after fromSequence, or
// nil if there is no such stream or it failed. From 0 it reads what
// [Manager.CreateReader] does; from a sequence inside trimmed trace, Next fails with
// [spool.ErrTrimmed].
func (m *Manager) CreateResumableReader(ctx context.Context, streamID string, fromSequence uint64) (*ResumableReader, error) {
	g, err := m.logs.Log(streamID)
	if err != nil {
		return nil, err
	}
	h, err := g.Head(ctx)
	switch {
	case errors.Is(err, spool.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case h.Status == chunk.StatusFailed:
		return nil, nil
	}
	after := spool.Cursor{Seq: fromSequence}
	if fromSequence > 0 {
		after.Incarnation = h.Incarnation
	}
	return &ResumableReader{m: m, stream: streamID, r: g.Reader(spool.ReadOptions{After: after}), first: h, current: fromSequence}, nil
}

// Next returns the next chunk, blocking until there is one. At the stream's end
// it fails with io.EOF, and [ResumableReader.End] says how it ended.
func (r *ResumableReader) Next(ctx context.Context) (StoredChunk, error) {
	if len(r.pending) == 0 {
		records, err := r.r.Next(ctx)
		if err == io.EOF && r.end == nil {
			if r.end, err = r.m.ending(ctx, r.stream, r.Status()); err == nil {
				err = io.EOF
			}
		}
		if err != nil {
			return StoredChunk{}, err
		}
		r.pending = records
	}
	next := r.pending[0]
	r.pending = r.pending[1:]
	c, err := chunk.Decode(next.Data)
	if err != nil {
		return StoredChunk{}, err
	}
	r.current = next.Seq
	return StoredChunk{c, next.Seq}, nil
}

// ending returns the sentinel of a stream that has ended with this status.
func (m *Manager) ending(ctx context.Context, streamID string, status chunk.Status) (*EndSentinel, error) {
	end := &EndSentinel{Status: status}
	g, err := m.logs.Log(streamID)
	if err != nil {
		return nil, err
	}
	err = g.View(ctx, func(f *fold.Fold) error {
		if f.Error != nil {
			end.Error = f.Error.Error
		}
		turn := f.LastTurn()
		if status != chunk.StatusEnded || turn == nil {
			return nil
		}
		end.Message = &chunk.StreamEnd{StreamID: streamID, Timestamp: turn.LastRun().EndTime}
		if message := f.Message(turn.MessageID); message != nil {
			end.Message.FinalOutput = message.Output()
		}
		return nil
	})
	switch {
	case errors.Is(err, spool.ErrNotFound): // deleted meanwhile
		return end, nil
	case err != nil:
		return nil, err
	case end.Message != nil && end.Message.FinalOutput != nil:
		end.Message.FinalOutput, err = g.Blob(ctx, end.Message.FinalOutput)
		if errors.Is(err, spool.ErrNotFound) || errors.Is(err, spool.ErrUnsupported) {
			err = nil // its reference is all there is
		}
	}
	return end, err
}

// All is Next as an iterator, to the stream's end.
func (r *ResumableReader) All(ctx context.Context) iter.Seq2[StoredChunk, error] {
	return func(yield func(StoredChunk, error) bool) {
		for {
			c, err := r.Next(ctx)
			if err == io.EOF {
				return
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// CurrentSequence is the sequence of the chunk that Next returned last, and before that
// the position at which the reader started.
func (r *ResumableReader) CurrentSequence() uint64 { return r.current }

// TotalChunks is the number of the stream's chunks, as far as the reader knows.
func (r *ResumableReader) TotalChunks() uint64 { return r.head().Seq }

// Status is the stream's, as far as the reader knows.
func (r *ResumableReader) Status() chunk.Status { return r.head().Status }

func (r *ResumableReader) head() spool.Head {
	if h := r.r.Head(); h != (spool.Head{}) {
		return h
	}
	return r.first
}

// End tells how the stream ended. It is nil until Next has returned io.EOF.
func (r *ResumableReader) End() *EndSentinel { return r.end }

// GetStreamInfo returns the present state of a stream, or nil if there is no such
// stream.
func (m *Manager) GetStreamInfo(ctx context.Context, streamID string) (*Info, error) {
	g, err := m.logs.Log(streamID)
	if err != nil {
		return nil, err
	}
	h, err := g.Head(ctx)
	if errors.Is(err, spool.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info := &Info{Status: h.Status, TotalChunks: h.Seq, LatestSequence: h.Seq}
	if h.Status == chunk.StatusFailed {
		err = g.View(ctx, func(f *fold.Fold) error {
			if f.Error != nil {
				info.Error = f.Error.Error
			}
			return nil
		})
	}
	return info, err
}

// GetAllChunks returns all stored chunks of a stream. Where trace was trimmed, only
// kept chunks are left. It fails with [spool.ErrNotFound] if there is no such stream.
func (m *Manager) GetAllChunks(ctx context.Context, streamID string) ([]StoredChunk, error) {
	return m.GetChunksFromSequence(ctx, streamID, 0)
}

// GetChunksFromSequence returns the chunks after a sequence. After the last sequence
// before a turn, those are the turn's chunks.
func (m *Manager) GetChunksFromSequence(ctx context.Context, streamID string, sequence uint64) ([]StoredChunk, error) {
	if err := chunk.CheckID(streamID); err != nil {
		return nil, err
	}
	records, err := m.records(ctx, streamID, sequence)
	if err != nil {
		return nil, err
	}
	chunks := make([]StoredChunk, 0, len(records))
	for _, r := range records {
		c, err := chunk.Decode(r.Data)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, StoredChunk{c, r.Seq})
	}
	return chunks, nil
}

// GetChunksFromStep returns the chunks of the latest run from the first that was
// written at this step or a later one.
func (m *Manager) GetChunksFromStep(ctx context.Context, streamID string, step int) ([]StoredChunk, error) {
	all, err := m.GetAllChunks(ctx, streamID)
	if err != nil {
		return nil, err
	}
	run := 0
	for i, c := range all {
		if b := c.Chunk.ChunkBase(); chunk.Is(c.Chunk, chunk.TypeRunStarted) && b.AgentID == streamID {
			run = i
		}
	}
	for i, c := range all[min(run, len(all)):] {
		if b := c.Chunk.ChunkBase(); !chunk.IsChild(b.AgentID) && b.Step >= step {
			return all[run+i:], nil
		}
	}
	return nil, nil
}

// records reads the stored records after a sequence: kept records where trace was
// trimmed, all records after that.
func (m *Manager) records(ctx context.Context, streamID string, after uint64) ([]chunk.Record, error) {
	const page = 1000
	store := m.logs.Store()
	g, err := m.logs.Log(streamID)
	if err != nil {
		return nil, err
	}
	h, err := g.Head(ctx) // a branch is not there before it is whole
	if err != nil {
		return nil, err
	}
	var all []chunk.Record
	after = max(after, h.Floor)
	for after < h.Seq {
		var some []chunk.Record
		var at spool.Head
		if after < h.TraceFloor {
			some, at, err = store.ReadKept(ctx, streamID, spool.KeptQuery{After: after, Max: page})
			if err = sameLog(err, at, h); err != nil {
				return nil, err
			}
			kept := some
			for i, r := range some {
				if r.Seq > h.TraceFloor {
					kept = some[:i]
					break
				}
			}
			after = h.TraceFloor
			if n := len(some); n > 0 && n == len(kept) {
				after = some[n-1].Seq // others may follow
			}
			all = append(all, kept...)
			continue
		}
		some, at, err = store.Read(ctx, streamID, after, page)
		if err = sameLog(err, at, h); err != nil {
			return nil, err
		}
		if len(some) == 0 {
			break
		}
		all = append(all, some...)
		after = some[len(some)-1].Seq
	}
	return all, nil
}

// sameLog is a read's error, or that the log was deleted or lost since the first head.
func sameLog(err error, at, first spool.Head) error {
	if err == nil && at.Incarnation != first.Incarnation {
		return spool.ErrCursorAhead
	}
	return err
}
