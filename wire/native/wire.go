package native

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

// Options fix a profile of the wire. The zero value follows the turn and shows all
// agents, in bare framing.
type Options struct {
	Framing Framing
	// Self leaves out the records of agents below the requested one.
	Self bool
	// Follow keeps the stream open after the end of the turn.
	Follow bool
	// Wait waits for a session that does not exist yet.
	Wait bool
}

// Wire returns the wire. Requests choose their profile by ?framing=bare|event|lean,
// ?follow=session, ?wait=1 and ?agent=tree|self.
func Wire() wire.Wire {
	return wire.Wire{
		Name:   "native",
		Attach: []string{"/stream/{session}"},
		Follow: "follow=session",
		Profile: func(r wire.Request) (wire.Profile, error) {
			o, err := options(r)
			if err != nil {
				return wire.Profile{}, err
			}
			return o.Profile(), nil
		},
		Read: read,
	}
}

// Profile returns the profile that the options fix.
func (o Options) Profile() wire.Profile {
	key := "native/" + [...]string{"bare", "event", "lean"}[o.Framing]
	if o.Self {
		key += "/self"
	} else {
		key += "/tree"
	}
	return wire.Profile{
		Key:       key,
		Projector: func(s wire.Subject) spool.Projector { return NewProjector(s, &o) },
		Log:       &wire.LogView{Chained: o.Framing == Lean, Follow: o.Follow, Wait: o.Wait, End: Terminal, Lost: Resync},
	}
}

// options reads the options of a request.
func options(r wire.Request) (o Options, err error) {
	switch r.Query.Get("follow") {
	case "":
	case "session":
		o.Follow = true
	default:
		return o, chunk.ErrInvalid.Because("follow must be session, or be left out")
	}
	switch r.Query.Get("wait") {
	case "", "0":
	case "1":
		o.Wait = true
	default:
		return o, chunk.ErrInvalid.Because("wait must be 1 or 0")
	}
	switch r.Query.Get("framing") {
	case "", "bare":
	case "event":
		o.Framing = Event
	case "lean":
		o.Framing = Lean
	default:
		return o, chunk.ErrInvalid.Because("framing must be bare, event or lean")
	}
	switch r.Query.Get("agent") {
	case "", "tree":
	case "self":
		o.Self = true
	default:
		return o, chunk.ErrInvalid.Because("agent must be self or tree")
	}
	return o, nil
}

// read parses events for programs that print them.
func read() func(string, []byte) wire.Event {
	var d Decoder
	return func(_ string, data []byte) wire.Event { return printed(d.Decode(data)) }
}

func printed(m Message, err error) wire.Event {
	switch {
	case err != nil:
		return wire.Event{Last: true, Err: err}
	case m.Kind == KindEnd:
		return wire.Event{Last: true}
	case m.Kind == KindFail:
		return wire.Event{Last: true, Err: &chunk.RunError{Message: "the run failed: " + m.Error}}
	case m.Kind == KindResync:
		return wire.Event{Last: true, Err: m.resync()}
	}
	return wire.Event{Line: m.Chunk}
}

// resync returns why a position cannot be served.
func (m Message) resync() error {
	why := spool.ErrCursorAhead
	if m.Reason == "trimmed" {
		why = spool.ErrTrimmed
	}
	return why.Because("the position cannot be served: " + m.Reason)
}
