package aisdk

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/wire"
)

// Wire returns the wire. The options are the profile of requests that do not ask
// for another one: by ?ui=6|7 or the header X-Spool-UI, and by
// ?agents=nest|summary|flatten.
func Wire(o Options) wire.Wire {
	mark := o.mark()
	return wire.Wire{
		Name:     "aisdk",
		Send:     []string{"/api/chat", "/api/chat/{session}"},
		Attach:   []string{"/api/chat/{session}", "/api/chat/{session}/stream", "/api/chat/{session}/{chat}/stream"},
		Body:     ParseBody,
		Position: position,
		Refusal:  refusal,
		Profile: func(r wire.Request) (wire.Profile, error) {
			asked, err := o.asked(r)
			if err != nil {
				return wire.Profile{}, err
			}
			return asked.profile(mark), nil
		},
		Read: func() func(string, []byte) wire.Event { return readEvent },
	}
}

// readEvent parses an event for programs that print it.
func readEvent(_ string, data []byte) wire.Event {
	return wire.Event{Line: data, Last: string(data) == done}
}

// Profile returns the profile that the options fix.
func (o Options) Profile() wire.Profile { return o.profile(o.mark()) }

func (o Options) profile(mark string) wire.Profile {
	p := o.shared(mark)
	p.Continuing = func() wire.Profile {
		c := o.shared(mark)
		begins := c.Projector
		c.Key += "/continuing"
		c.Projector = func(s wire.Subject) spool.Projector { return begins(s).(*Projector).continuing() }
		c.NoRun = func(_, finishReason string) []byte { return noMore(finishReason) }
		return c
	}
	return p
}

func (o Options) shared(mark string) wire.Profile {
	ui := 6
	if o.UI7 {
		ui = 7
	}
	if o.SubAgents == "" {
		o.SubAgents = Nest
	}
	return wire.Profile{
		Key:       fmt.Sprintf("aisdk/%d/%t %t %t/%s%s", ui, o.StaticTools, o.NoStepEvents, o.LiteralErrors, o.SubAgents, mark),
		Projector: func(s wire.Subject) spool.Projector { return NewProjector(s, &o) },
		NoRun:     noRun,
		Header:    http.Header{streamHeader: {streamVersion}},
	}
}

var marks atomic.Uint64

// mark returns what tells options with functions, which cannot be compared, from
// all others.
func (o *Options) mark() string {
	if o.ChunkFilter == nil && o.BlockID == nil {
		return ""
	}
	return "/" + strconv.FormatUint(marks.Add(1), 10)
}

// HeaderUI is the header with which a client asks for the profile of its version.
const HeaderUI = "X-Spool-UI"

// asked returns the options that a request asks for.
func (o Options) asked(r wire.Request) (Options, error) {
	ui := r.Query.Get("ui")
	if ui == "" {
		ui = r.Header.Get(HeaderUI)
	}
	if ui == "6" || ui == "7" {
		o.UI7 = ui == "7"
	}
	if agents := r.Query.Get("agents"); agents != "" {
		var err error
		if o.SubAgents, err = ParseSubAgents(agents); err != nil {
			return o, err
		}
	}
	return o, nil
}

// refusal returns the text of a refused POST. The client makes it the message of an
// error, which pages show to their user.
func refusal(e *chunk.Error) string {
	if e.Code == spool.ErrBusy.Code {
		return "The previous message is still being answered. Wait until the answer is complete, or stop it, and send this message again."
	}
	text := e.Message
	if text == "" {
		text = "the request was refused: " + e.Code
	}
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[n:] + "."
}

// position is that of all wires, or ?startIndex=, the frames that the client has
// counted.
func position(r wire.Request) (wire.Position, error) {
	pos, err := wire.ReadPosition(r)
	if err != nil || !r.Query.Has("startIndex") {
		return pos, err
	}
	n, err := strconv.Atoi(r.Query.Get("startIndex"))
	if err != nil {
		return wire.Position{}, spool.ErrCursorMalformed.Because("startIndex must be a whole number")
	}
	return wire.Position{Kind: wire.Counted, Frames: n}, nil
}

// noRun is a start that names the message, a finish, and the end.
func noRun(messageID, finishReason string) []byte {
	b := []byte(`data: {"type":"start"`)
	if messageID != "" {
		id, _ := json.Marshal(messageID) // strings always encode
		b = append(append(b, `,"messageId":`...), id...)
	}
	b = append(b, "}\n\n"...)
	return append(b, noMore(finishReason)...)
}

// noMore is a finish and the end.
func noMore(finishReason string) []byte {
	return []byte(`data: {"type":"finish","finishReason":"` + finishReason + `"}` + "\n\n" + doneFrame)
}
