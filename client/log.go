package client

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire/native"
)

// LogOptions say what a log stream shows and where it begins. The zero value is the
// whole log, until its turn ends.
type LogOptions struct {
	After    spool.Cursor // what was seen; the zero value is the start of the log
	Snapshot *Snapshot    // or the snapshot that the caller has built from: see [AttachOptions]
	Follow   bool         // stay when the turn ends
	Self     bool         // leave out the agents below the session
	Wait     bool         // wait for a session that does not exist yet
	Resync   bool         // begin again when the position cannot be served: see [AttachOptions]
}

// Entry is one entry of a log. If trace was trimmed, a log that is read from the start
// begins with a trace_omitted that says so, whose Seq is 0, and the records that remain.
type Entry struct {
	chunk.Record
	Chunk chunk.Chunk // the record, decoded
	// Snapshot is set on an entry that has nothing else: forget what the stream has said,
	// and build from this. If a turn is running, the entries that follow begin with it:
	// the snapshot lacks its message. The snapshot's State has the changes up to its
	// StreamSequence.
	Snapshot *Snapshot
}

// Ending says how the turn ended.
type Ending struct {
	Status chunk.Status // ended, paused or failed
	Reason string       // such as stopped or awaiting_approval; "" if the run was completed
	Error  string       // of a failed run
}

// LogStream is a session's log as typed records, each once and in order. It survives lost
// connections like [Stream]. Use it from one goroutine at a time.
type LogStream struct {
	st   *Stream
	data native.Decoder
	end  Ending
}

// Log returns the session's log. It connects when Next is called, and ends with ctx.
func (s *Session) Log(ctx context.Context, o LogOptions) *LogStream {
	// The framing carries sequences where ids cannot: in the plan of a trimmed log.
	a := AttachOptions{Query: set("framing", "lean"), Snapshot: o.Snapshot, Follow: o.Follow, Wait: o.Wait, Resync: o.Resync}
	if o.After != (spool.Cursor{}) {
		a.After = o.After.String()
	}
	if o.Self {
		a.Query.Set("agent", "self")
	}
	l := &LogStream{st: s.Attach(ctx, a)}
	l.st.older = maps.Clone(a.Query)
	l.st.older.Set("framing", "event") // which all versions of the server know
	return l
}

// Cursor is the position after the last entry that Next has given.
func (l *LogStream) Cursor() spool.Cursor {
	c, err := spool.ParseCursor(l.st.Position())
	if err != nil {
		return spool.Cursor{}
	}
	return c
}

// Ending says how the turn ended, once Next has failed with io.EOF.
func (l *LogStream) Ending() Ending { return l.end }

// Close ends the stream.
func (l *LogStream) Close() error { return l.st.Close() }

// Next returns the next entry. It fails with io.EOF when the turn has ended, paused or
// failed ([LogStream.Ending]), with spool.ErrNotFound if there is no such session, and
// otherwise as [Stream.Next].
func (l *LogStream) Next() (Entry, error) {
	for {
		e, err := l.st.Next()
		if refused, ok := errors.AsType[*Error](err); ok && refused.Code == "stream_failed" { // the end was missed
			l.end = Ending{Status: chunk.StatusFailed, Error: refused.Message}
		}
		switch {
		case err != nil && l.end.Status != "":
			return Entry{}, io.EOF
		case err != nil:
			return Entry{}, err
		case e.Snapshot != nil:
			return Entry{Snapshot: e.Snapshot}, nil
		}
		m, err := l.data.Decode(e.Data)
		if err != nil {
			return Entry{}, err
		}
		if m.Kind != native.KindChunk {
			l.end = Ending{Status: m.Status, Reason: m.Reason, Error: m.Error}
			continue
		}
		return l.entry(e.ID, m)
	}
}

func (l *LogStream) entry(id string, m native.Message) (Entry, error) {
	if at, err := spool.ParseCursor(id); err == nil {
		if err := m.At(at); err != nil {
			return Entry{}, err
		}
	}
	c, err := chunk.Decode(m.Chunk)
	if err != nil {
		return Entry{}, err
	}
	base := c.ChunkBase()
	e := Entry{Chunk: c, Record: chunk.Record{
		Seq: m.Seq, Type: c.ChunkType(), Agent: base.AgentID, Time: base.Timestamp, Class: chunk.ClassOf(c), Data: m.Chunk,
	}}
	return e, nil
}
