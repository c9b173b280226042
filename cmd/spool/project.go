package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/wire/aisdk"
	"github.com/spool-run/spool/wire/merlin"
	"github.com/spool-run/spool/wire/native"
)

type projectCmd struct {
	Wire    string      `enum:"native,aisdk,merlin-v1,merlin-v2" required:"" help:"native, aisdk, merlin-v1 (not paced) or merlin-v2."`
	After   uint64      `help:"Leave out the frames of the first N chunks."`
	UI      int         `name:"ui" enum:"6,7" default:"6" help:"AI SDK profile."`
	Merlin  merlinFlags `embed:"" prefix:"merlin-"`
	Framing string      `enum:"bare,event" default:"bare" help:"Framing of the native wire."`
}

// Run is a filter: chunk i of the input is record i of a log. The last turn is
// shown, but on the native wire, which shows all records.
func (c *projectCmd) Run(_ context.Context, std streams) error {
	recs, fold, err := readChunks(std.in)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(std.out)
	defer out.Flush()
	var p spool.Projector
	switch c.Wire {
	case "native":
		framing := native.Bare
		if c.Framing == "event" {
			framing = native.Event
		}
		p = native.New(framing)
	default:
		turn := fold.LastTurn()
		if turn == nil {
			return errors.New("the chunks hold no run_started: there is no turn to show")
		}
		if p, err = c.projector(turn.ID); err != nil {
			return err
		}
	}
	var frames, held []spool.Frame
	write := func(f spool.Frame) {
		if f.Seq != 0 {
			fmt.Fprintf(out, "id: %s\n", spool.Cursor{Seq: f.Seq})
		}
		_, _ = out.Write(f.Data)
	}
	for _, r := range recs {
		frames, err = p.Apply(frames[:0], r)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", r.Seq, err)
		}
		if r.Seq <= c.After {
			continue
		}
		for _, f := range frames {
			if f.Terminal {
				held = append(held, f)
				continue
			}
			held = held[:0]
			write(f)
		}
	}
	for _, f := range held {
		write(f)
	}
	if c.Wire == "native" {
		text := ""
		if fold.Error != nil {
			text = fold.Error.Error
		}
		_, _ = out.Write(native.Terminal(fold.Status, fold.Reason, text))
	}
	return out.Flush()
}

// projector is the turn's on the command's wire.
func (c *projectCmd) projector(turn string) (spool.Projector, error) {
	if c.Wire == "aisdk" {
		return aisdk.NewProjector(turn, &aisdk.Options{UI7: c.UI == 7}), nil
	}
	literal, err := c.Merlin.literal()
	if err != nil {
		return nil, err
	}
	o := &merlin.Options{Literal: literal, Suppress: c.Merlin.suppress()}
	if c.Wire == "merlin-v1" {
		o.Version = merlin.V1
	}
	return merlin.NewProjector(turn, o), nil
}

// readChunks reads one JSON chunk a line, as records 1, 2, 3, … of a log.
func readChunks(in io.Reader) ([]spool.Record, *spool.Fold, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 32<<20)
	var recs []spool.Record
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		data := append([]byte(nil), lines.Bytes()...)
		c, err := spool.DecodeChunk(data)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
		b := c.ChunkBase()
		recs = append(recs, spool.Record{Seq: uint64(len(recs) + 1), Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Class: spool.ClassOf(c), Data: data})
	}
	if err := lines.Err(); err != nil {
		return nil, nil, err
	}
	fold := spool.NewFold(rootAgent(recs))
	for _, r := range recs {
		if err := fold.Apply(r); err != nil {
			return nil, nil, fmt.Errorf("chunk %d: %w", r.Seq, err)
		}
	}
	return recs, fold, nil
}

// rootAgent is the session that the chunks are of.
func rootAgent(recs []spool.Record) string {
	for _, r := range recs {
		if r.Agent != "" {
			return spool.RootID(r.Agent)
		}
	}
	return ""
}
