package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
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

// Run is a filter: chunk i of the input is record i of a log. Turns are shown one
// after the other, each as a stream of its own; the native wire shows all records.
func (c *projectCmd) Run(_ context.Context, std streams) error {
	out := bufio.NewWriter(std.out)
	p := &projection{cmd: c, out: out}
	err := readChunks(&source{src: std.in, out: out}, p.apply)
	if err == nil {
		err = p.end()
	}
	return errors.Join(err, out.Flush())
}

// projection writes the frames of a log's records.
type projection struct {
	cmd    *projectCmd
	out    *bufio.Writer
	fold   *fold.Fold
	turn   string
	proj   spool.Projector
	frames []spool.Frame
	held   []spool.Frame // terminal frames: they are dropped if others follow
}

func (p *projection) apply(r chunk.Record) error {
	if p.fold == nil {
		p.fold = fold.New(chunk.RootID(r.Agent))
	}
	if err := p.fold.Apply(r); err != nil {
		return err
	}
	if err := p.follow(); err != nil || p.proj == nil {
		return err
	}
	var err error
	if p.frames, err = p.proj.Apply(p.frames[:0], r); err != nil || r.Seq <= p.cmd.After {
		return err
	}
	for _, f := range p.frames {
		if f.Terminal {
			p.held = append(p.held, f)
			continue
		}
		p.held = p.held[:0]
		p.write(f)
	}
	return nil
}

// follow makes a projector for the turn that the log is in, if it is in one.
func (p *projection) follow() (err error) {
	if p.cmd.Wire == "native" {
		if p.proj == nil {
			p.proj = native.New(p.cmd.framing())
		}
		return nil
	}
	turn := p.fold.LastTurn()
	if turn == nil || turn.ID == p.turn {
		return nil
	}
	p.release()
	p.turn = turn.ID
	p.proj, err = p.cmd.projector(turn.ID)
	return err
}

// end writes what is sent to a reader at the head.
func (p *projection) end() error {
	switch {
	case p.fold == nil:
		return errors.New("there are no chunks on standard input")
	case p.cmd.Wire == "native":
		text := ""
		if p.fold.Error != nil {
			text = p.fold.Error.Error
		}
		_, err := p.out.Write(native.Terminal(p.fold.Status, p.fold.Reason, text))
		return err
	case p.proj == nil:
		return errors.New("the chunks hold no run_started: there is no turn to show")
	}
	p.release()
	return nil
}

func (p *projection) release() {
	for _, f := range p.held {
		p.write(f)
	}
	p.held = nil
}

// write ignores errors: the writer keeps them.
func (p *projection) write(f spool.Frame) {
	if f.Seq != 0 {
		fmt.Fprintf(p.out, "id: %s\n", spool.Cursor{Seq: f.Seq})
	}
	_, _ = p.out.Write(f.Data)
}

func (c *projectCmd) framing() native.Framing {
	if c.Framing == "event" {
		return native.Event
	}
	return native.Bare
}

// projector returns the projector of a turn on the command's wire.
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

const maxLine = 32 << 20

// readChunks reads one JSON chunk a line, as records 1, 2, 3, … of a log.
func readChunks(in io.Reader, fn func(chunk.Record) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	n, seq := 1, uint64(0)
	for ; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		data := bytes.Clone(lines.Bytes())
		c, err := chunk.Decode(data)
		if err == nil {
			seq++
			b := c.ChunkBase()
			err = fn(chunk.Record{Seq: seq, Type: c.ChunkType(), Agent: b.AgentID, Time: b.Timestamp, Class: chunk.ClassOf(c), Data: data})
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	return nil
}
