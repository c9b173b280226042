package chat

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// rollTo makes the resumption a rewind.
func (r *resumption) rollTo(at *fold.Checkpoint, mode string) {
	copied := *at
	r.at = &copied
	r.resume = &chunk.ResumeRequested{CommandID: r.id, Mode: mode, CheckpointID: at.ID}
	r.chunks = []chunk.Chunk{r.resume}
}

// rollbackBytes bounds the part of a history in one append.
const rollbackBytes = 256 << 10

// rollBack appends the log's content at the checkpoint and the command that continues
// from there. The rewind takes effect with the last append only.
func (r *resumption) rollBack(ctx context.Context, g *Session) error {
	f, err := g.FoldAt(ctx, r.at.Seq)
	if err != nil {
		return err
	}
	r.resume.NoRun = !r.resume.WithMessage && !f.Owed().Goes()
	if !r.resume.NoRun {
		if err := g.CheckQuota(ctx, spool.Row{}); err != nil {
			return err
		}
	}
	series := f.Owed().Content("replace-"+hash(r.id, r.at.ID), r.at.ID)
	last := len(series) - 1
	var batch []chunk.Chunk
	size := 0
	for _, c := range series[:last] {
		data, err := chunk.Append(nil, c)
		if err != nil {
			return err
		}
		if size+len(data) > rollbackBytes && len(batch) > 0 {
			if err := g.command(ctx, spool.Row{}, batch...); err != nil {
				return err
			}
			batch, size = nil, 0
		}
		batch, size = append(batch, c), size+len(data)
	}
	if len(batch) > 0 {
		if err := g.command(ctx, spool.Row{}, batch...); err != nil {
			return err
		}
	}
	return g.command(ctx, spool.Row{}, append([]chunk.Chunk{series[last]}, r.chunks...)...)
}
