package merlin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/spool-run/spool/chunk"
)

// EventManager shows what a tool or an agent is doing: a heading with steps
// under it. Every call of its methods, and of its events', is one progress chunk
// in the log, and reaches all readers at once.
//
// It may be used from several goroutines.
type EventManager struct {
	emit  func(*chunk.Progress) error
	id    string
	spot  spot
	owner *Streamer // nil in a log
	call  string

	mu      sync.Mutex
	name    string
	icon    string
	events  []*ProgressEvent
	heading bool // there is one in the log
}

// EventOptions are the options of an [EventManager].
type EventOptions struct {
	// ID distinguishes the managers of one emitter; "" is "events". Steps have the
	// ids "events/1", "events/2", …, so that a call that is made again shows the
	// same steps again.
	ID string
	// Call is the id of the call in whose block the steps are shown; "" gives them a
	// block of their own. A tool's emitter knows its call and does not need it.
	Call string
	// Index places the steps at a content index (V2), which may be a block's; nil gives
	// them one of their own, or that of their call. Blocks are numbered regardless of it.
	Index *int
	// Version is the version of the frames that show the steps, whatever the version of
	// the answer is; 0 is that version. V2 frames need an index: without one a [Streamer]
	// takes the next.
	Version Version
	// Name and Icon are the heading. Without a name there is none until
	// [EventManager.UpdateName].
	Name, Icon string
}

// NewEventManager returns a manager whose steps this streamer shows. Managers of one
// streamer never share ids: a repeated [EventOptions.ID] gets a number. In V1 the heading
// is sent at once, also without a name. A Call that no stream has made is
// [ErrUnknownCall]. Options may be nil.
func (s *Streamer) NewEventManager(o *EventOptions) (*EventManager, error) {
	mine := EventOptions{}
	if o != nil {
		mine = *o
	}
	if err := s.admit(&mine); err != nil {
		return nil, err
	}
	m, err := newManager(func(p *chunk.Progress) error { return s.emit(p) }, &mine)
	if err != nil {
		return nil, err
	}
	m.owner, m.call = s, mine.Call
	return m, m.begin(m.Version() == V1)
}

// admit checks the options of a manager, and completes them.
func (s *Streamer) admit(o *EventOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.calls[o.Call]; o.Call != "" && !known {
		return fmt.Errorf("%w: %q", ErrUnknownCall, o.Call)
	}
	o.ID = cmp.Or(o.ID, "events")
	id := o.ID
	for n := 2; s.managers[o.ID]; n++ {
		o.ID = id + "-" + strconv.Itoa(n)
	}
	s.managers[o.ID] = true
	if o.Version == V2 && s.o.Version == V1 && o.Index == nil {
		at := s.indexOf("", o.Call)
		o.Index = &at
	}
	return nil
}

// NewEventManager returns a manager that emits through emit: a tool's
// tool.Context.EmitProgress, or any function that appends to a log. Options may
// be nil. Errors, here and of all methods, are those of emit, and [ErrOptions].
func NewEventManager(emit func(*chunk.Progress) error, o *EventOptions) (*EventManager, error) {
	if o == nil {
		o = new(EventOptions)
	}
	m, err := newManager(emit, o)
	if err != nil {
		return nil, err
	}
	return m, m.begin(false)
}

// ErrOptions refuses the options of an event manager.
var ErrOptions = errors.New("merlin: a content index is 0 or more, and a version 1 or 2")

func newManager(emit func(*chunk.Progress) error, o *EventOptions) (*EventManager, error) {
	if o.Index != nil && *o.Index < 0 || o.Version < 0 || o.Version > V2 {
		return nil, ErrOptions
	}
	m := &EventManager{emit: emit, id: cmp.Or(o.ID, "events"), spot: spot{o.Index, o.Version}, name: o.Name, icon: o.Icon}
	if o.Call != "" {
		m.id = o.Call + "/" + m.id
	}
	return m, nil
}

// begin sends the heading if there is a name, or always.
func (m *EventManager) begin(always bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.name == "" && !always {
		return nil
	}
	return m.sendHeading("running")
}

// Index returns the content index of the steps, and whether it is known: in a log, only
// [EventOptions.Index] is.
func (m *EventManager) Index() (index int, known bool) {
	switch {
	case m.spot.index != nil:
		return *m.spot.index, true
	case m.owner == nil:
		return 0, false
	}
	m.owner.mu.Lock()
	defer m.owner.mu.Unlock()
	return m.owner.indexOf(m.id, m.call), true
}

// Version returns the version of the frames that show the steps; 0 in a log, whose readers
// choose, unless [EventOptions.Version] is set.
func (m *EventManager) Version() Version {
	if m.spot.version == 0 && m.owner != nil {
		return cmp.Or(m.owner.o.Version, V2)
	}
	return m.spot.version
}

// Heading returns the name and the icon of the heading.
func (m *EventManager) Heading() (name, icon string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name, m.icon
}

// Events returns the steps in the order in which they began.
func (m *EventManager) Events() []*ProgressEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

// detail returns what a chunk of the manager keeps.
func (m *EventManager) detail(d detail) []byte {
	d.ContentIndex, d.Version = m.spot.index, m.spot.version
	return encode(d)
}

func (m *EventManager) sendHeading(state string) error {
	m.heading = true
	return m.emit(&chunk.Progress{ID: m.id, Label: m.name, State: state, Data: m.detail(detail{Type: TypeHeading, Icon: m.icon})})
}

// CreateEvent adds a step and shows it. An empty icon is DEFAULT.
func (m *EventManager) CreateEvent(name, icon string) (*ProgressEvent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.create(name, icon)
}

func (m *EventManager) create(name, icon string) (*ProgressEvent, error) {
	if icon == "" {
		icon = IconDefault
	}
	index := len(m.events)
	e := &ProgressEvent{m: m, step: Step{Index: &index,
		ID: m.id + "/" + strconv.Itoa(index+1), Name: name, Status: InProgress, Icon: icon,
		Tags: []string{}, Values: []Value{},
	}}
	m.events = append(m.events, e)
	return e, e.send()
}

// GetOrCreateLatestEvent takes up the step of this name again, or adds one.
func (m *EventManager) GetOrCreateLatestEvent(name, icon string) (*ProgressEvent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if e.step.Name == name {
			e.step.Status = InProgress
			return e, e.send()
		}
	}
	return m.create(name, icon)
}

// UpdateName changes the heading.
func (m *EventManager) UpdateName(name, icon string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.name, m.icon = name, icon
	return m.sendHeading("running")
}

// End ends the heading, for wires that show it as a step of its own. It does not
// end the steps.
func (m *EventManager) End() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.heading {
		return nil
	}
	return m.sendHeading("done")
}

// ProgressEvent is one step of an [EventManager].
type ProgressEvent struct {
	m    *EventManager
	step Step // under m.mu
}

// Step returns the step as it is now. Its index counts the steps of its manager. Of a
// [Streamer] it has the id that clients have; in a log, the id of its chunks, of which each
// wire makes its own.
func (e *ProgressEvent) Step() Step {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	s := e.step
	s.Tags, s.Values = append([]string{}, s.Tags...), append([]Value{}, s.Values...)
	if e.m.owner != nil {
		s.ID = e.m.owner.p.values.stepID(s.ID)
	}
	return s
}

// ToolIndex returns the content index of the step: see [EventManager.Index].
func (e *ProgressEvent) ToolIndex() (index int, known bool) { return e.m.Index() }

// Version returns the version of the frames that show the step: see
// [EventManager.Version].
func (e *ProgressEvent) Version() Version { return e.m.Version() }

// AddTags adds tags, and shows them as text values too.
func (e *ProgressEvent) AddTags(tags ...string) error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	for _, tag := range tags {
		e.step.Tags = append(e.step.Tags, tag)
		e.step.Values = append(e.step.Values, Text(tag))
	}
	return e.send()
}

// Send adds values and shows them.
func (e *ProgressEvent) Send(values ...Value) error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	e.step.Values = append(e.step.Values, values...)
	return e.send()
}

// End says that the step is done.
func (e *ProgressEvent) End() error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	e.step.Status = Done
	return e.send()
}

func (e *ProgressEvent) send() error {
	state := "running"
	if e.step.Status == Done {
		state = "done"
	}
	// The parent keeps the steps together, also where there is no heading.
	return e.m.emit(&chunk.Progress{ID: e.step.ID, Parent: e.m.id, Label: e.step.Name, State: state,
		Data: e.m.detail(detail{Icon: e.step.Icon, Tags: e.step.Tags, Values: e.step.Values})})
}
