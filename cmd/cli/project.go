package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/server/wires"
	"github.com/spool-run/spool/wire"
)

type projectCmd struct {
	Wire    string      `enum:"${wires}" required:"" help:"${wires}; nothing is paced."`
	After   uint64      `help:"Leave out the frames of the first N chunks."`
	UI      int         `name:"ui" enum:"6,7" default:"6" help:"AI SDK profile."`
	Wires   wires.Flags `embed:""`
	Framing string      `enum:"bare,event,lean" default:"bare" help:"Framing of the native wire."`
}

// Run is a filter: chunk i of the input is record i of a log. It writes one stream per
// turn, one after the other; the native wire writes all records.
func (c *projectCmd) Run(_ context.Context, std streams) error {
	profile, err := c.profile()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(std.out)
	p := &projection{profile: profile, from: c.After, out: out}
	err = readChunks(&source{src: std.in, out: out}, p.apply)
	if err == nil {
		err = p.end()
	}
	return errors.Join(err, out.Flush())
}

// projection writes the frames of a log's records.
type projection struct {
	profile wire.Profile
	from    uint64 // the frames of the records up to here are left out
	out     *bufio.Writer
	fold    *fold.Fold
	turn    string
	proj    spool.Projector
	frames  []spool.Frame
	held    []spool.Frame // terminal frames that a later record may make obsolete
}

func (p *projection) apply(r chunk.Record) error {
	if p.fold == nil {
		p.fold = fold.New(chunk.RootID(r.Agent))
	}
	if err := p.fold.Apply(r); err != nil {
		return err
	}
	if p.follow(); p.proj == nil || p.profile.Log != nil && r.Seq <= p.from {
		return nil
	}
	var err error
	if p.frames, err = p.proj.Apply(p.frames[:0], r); err != nil || r.Seq <= p.from {
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

// follow keeps a projector for the log's present turn, if there is one.
func (p *projection) follow() {
	if p.profile.Log != nil {
		if p.proj == nil {
			p.proj = p.profile.Projector(wire.Subject{})
		}
		return
	}
	turn := p.fold.LastTurn()
	if turn == nil || turn.ID == p.turn {
		return
	}
	p.release()
	p.turn = turn.ID
	p.proj = p.profile.Projector(wire.Subject{Turn: turn.ID})
}

// end writes what a reader at the head gets.
func (p *projection) end() error {
	switch {
	case p.fold == nil:
		return errors.New("there are no chunks on standard input")
	case p.profile.Log != nil:
		text := ""
		if p.fold.Error != nil {
			text = p.fold.Error.Error
		}
		if event := p.profile.Log.End(p.fold.Status, p.fold.Reason, text); event != nil {
			p.write(spool.Frame{Data: event, Seq: p.fold.Seq})
		}
	case p.proj == nil:
		return errors.New("the chunks contain no run_started, so there is no turn to show")
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

// write ignores errors: the buffered writer keeps the first one.
func (p *projection) write(f spool.Frame) {
	if f.Seq != 0 {
		_, _ = p.out.Write(spool.Cursor{Seq: f.Seq}.AppendID(nil))
	}
	_, _ = p.out.Write(f.Data)
}

// profile returns the profile that the command's flags name.
func (c *projectCmd) profile() (wire.Profile, error) {
	o, err := c.Wires.Options()
	if err != nil {
		return wire.Profile{}, &usageError{err.Error()}
	}
	w, _ := wires.Find(wires.List(o), c.Wire) // the flag accepts no others
	return w.Profile(wire.Request{Query: url.Values{"ui": {strconv.Itoa(c.UI)}, "framing": {c.Framing}}})
}

const maxLine = 32 << 20

// readChunks reads one JSON chunk per line, as records 1, 2, 3, … of a log.
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
