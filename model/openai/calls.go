package openai

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/internal/provider"
)

// call is a tool call under assembly.
type call struct {
	id, name string
	args     strings.Builder
	sent     int // bytes of args that have gone out
	started  bool
	join     provider.Joiner
	keep     keepsake
}

// complete reports whether the arguments so far are a whole object.
func (c *call) complete() bool {
	text := strings.TrimSpace(c.args.String())
	return strings.HasPrefix(text, "{") && json.Valid([]byte(text))
}

// another reports whether a delta begins another call although it has c's id: c is
// complete, and the delta is a whole call, but not c repeated.
func (c *call) another(d *toolDelta) bool {
	args := strings.TrimSpace(d.Function.arguments())
	return d.Function.Name != "" && c.complete() && strings.HasPrefix(args, "{") && json.Valid([]byte(args)) &&
		strings.TrimSpace(c.args.String()) != "{}" && (args != strings.TrimSpace(c.args.String()) || d.Index != nil)
}

// calls finds the call that each delta belongs to. Providers leave out ids,
// indexes and names, repeat them, and change them under way.
type calls struct {
	list  []*call
	ids   map[string]*call
	slots map[index]*call
	last  *call
}

// find returns the call of a delta, a new one where it begins one:
// by id; else by index; else the call last touched.
func (cs *calls) find(d *toolDelta) *call {
	var slot *call
	if d.Index != nil {
		slot = cs.slots[*d.Index]
	}
	c := cs.ids[string(d.ID)]
	if c != nil && d.ID != "" && c != slot && c.another(d) {
		c = nil // an id that the provider uses twice; this call gets one of its own
		d.ID = ""
	} else if c == nil {
		c = cs.guess(d, slot)
	}
	if c == nil {
		c = new(call)
		cs.list = append(cs.list, c)
	}
	if cs.ids == nil {
		cs.ids, cs.slots = map[string]*call{}, map[index]*call{}
	}
	if d.ID != "" {
		cs.ids[string(d.ID)] = c
		if !c.started && c.id == "" {
			c.id = string(d.ID)
		}
	}
	if d.Index != nil {
		cs.slots[*d.Index] = c
	}
	cs.last = c
	return c
}

// guess decides on a delta whose id is missing or new: nil begins another call.
func (cs *calls) guess(d *toolDelta, slot *call) *call {
	c := slot
	if c == nil && (d.Index == nil || d.ID == "" && d.Function.Name == "") {
		c = cs.last // the index is missing, or differs from the head's
	}
	switch {
	case c == nil:
		return nil
	case d.ID != "" && c.id != "":
		if c.endedByID(d) {
			return nil
		}
	case d.Function.Name != "" && c.name != "":
		if c.endedByName(d) {
			return nil
		}
	}
	return c
}

// stray reports whether a piece of arguments goes on with no call: no call has its index,
// and the arguments of the call last touched are whole.
func (cs *calls) stray(d *toolDelta) bool {
	if d.Index == nil || cs.slots[*d.Index] != nil || cs.last == nil || d.ID != "" || d.Function.Name != "" {
		return false
	}
	args, whole := strings.TrimSpace(d.Function.arguments()), strings.TrimSpace(cs.last.args.String())
	return args != "" && !strings.HasPrefix(args, "{") && whole != "{}" && cs.last.complete()
}

// endedByID decides on a delta with another id than c's. It begins another call,
// unless the provider makes up an id for each piece and c is not finished.
func (c *call) endedByID(d *toolDelta) bool {
	name := d.Function.Name
	return name != "" && (name != c.name || c.args.Len() == 0) || c.complete()
}

// endedByName decides on a delta with a name, although c has one: the provider
// repeats it, or it is another call without an id.
func (c *call) endedByName(d *toolDelta) bool {
	if d.Function.Name != c.name && (c.complete() || c.args.Len() == 0 && (c.id == "" || d.Index == nil)) {
		return true
	}
	return c.complete() && strings.HasPrefix(strings.TrimSpace(d.Function.arguments()), "{")
}

// add takes a delta and returns the parts that it makes. A call starts when its name
// and its id are known. One without an id starts when its arguments are complete.
func (cs *calls) add(d *toolDelta) (parts []model.Part) {
	d.Function = *d.unwrapped()
	if d.ID == "" && d.Index == nil && d.Function.Name == "" && provider.IsNull(d.Function.Arguments) {
		return nil
	}
	if cs.stray(d) {
		return nil
	}
	c := cs.find(d)
	if c.name == "" {
		c.name = d.Function.Name
	}
	c.keep.add(&d.keepsake)
	args := d.Function.arguments()
	if strings.HasPrefix(strings.TrimSpace(args), "{") && c.complete() {
		switch so := c.args.String(); {
		case strings.TrimSpace(so) == "{}" && c.sent == 0:
			c.args.Reset() // that was a placeholder; now the arguments come
		case strings.TrimSpace(so) == strings.TrimSpace(args):
			args = "" // the whole arguments, repeated
		}
	}
	c.args.WriteString(c.join.Add(args))
	if !c.started {
		if c.name == "" || c.id == "" && !c.complete() {
			return nil
		}
		parts = cs.startUpTo(c)
	}
	if strings.TrimSpace(c.args.String()) == "{}" {
		return parts // held back, see above
	}
	return c.flush(parts)
}

// flush appends what has not gone out.
func (c *call) flush(parts []model.Part) []model.Part {
	if rest := c.args.String()[c.sent:]; rest != "" {
		c.sent = c.args.Len()
		parts = append(parts, model.ToolCallDelta{ID: c.id, Delta: rest})
	}
	return parts
}

// startUpTo starts the calls that have a name, in their order; c is the last one.
func (cs *calls) startUpTo(c *call) (parts []model.Part) {
	for _, o := range cs.list {
		if !o.started && o.name != "" {
			parts = append(parts, cs.start(o))
			if o != c {
				parts = o.flush(parts)
			}
		}
		if o == c {
			break
		}
	}
	return parts
}

func (cs *calls) start(c *call) model.Part {
	c.started = true
	for n := slices.Index(cs.list, c); c.id == ""; n++ {
		// An id made here must be none that the provider uses.
		if id := "call_" + strconv.Itoa(n); cs.ids[id] == nil {
			c.id, cs.ids[id] = id, c
		}
	}
	return model.ToolCallStart{ID: c.id, Name: c.name}
}

// join takes what the calls have held back: the beginnings of characters that were
// cut.
func (cs *calls) join() {
	for _, c := range cs.list {
		c.args.WriteString(c.join.End())
	}
}

// metadata is what must be sent back with the call to the endpoint that it came from.
// An id that endpoints would not take is kept there, too.
func (c *call) metadata(from string) json.RawMessage {
	kept := keptCall{From: from, keepsake: c.keep}
	if provider.CallID(c.id) != c.id {
		kept.ID = c.id
	}
	if reflect.DeepEqual(kept, keptCall{From: from}) {
		return nil
	}
	data, err := provider.Marshal(map[string]keptCall{"openai": kept})
	if err != nil {
		return nil
	}
	return data
}

// keptCall is what the log keeps of a call for its provider.
type keptCall struct {
	From string `json:"from,omitempty"`
	ID   string `json:"id,omitempty"`
	keepsake
}

// end completes all calls, in the order in which they began.
func (cs *calls) end(from string) (parts []model.Part) {
	for _, c := range cs.list {
		if !c.started {
			parts = append(parts, cs.start(c))
		}
		parts = c.flush(parts)
		parts = append(parts, model.ToolCallEnd{ID: c.id, Name: c.name, Arguments: c.args.String(), Metadata: c.metadata(from)})
	}
	return parts
}

// open reports whether a call's arguments have begun and are not whole.
func (cs *calls) open() bool {
	for _, c := range cs.list {
		if c.args.Len() > 0 && !json.Valid([]byte(c.args.String())) {
			return true
		}
	}
	return false
}
