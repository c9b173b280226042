package merlin

import (
	"cmp"
	"fmt"
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
	emit func(*chunk.Progress) error
	id   string

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
	mine.ID = cmp.Or(mine.ID, "events")
	s.mu.Lock()
	if _, known := s.calls[mine.Call]; mine.Call != "" && !known {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: %q", ErrUnknownCall, mine.Call)
	}
	id := mine.ID
	for n := 2; s.managers[mine.ID]; n++ {
		mine.ID = id + "-" + strconv.Itoa(n)
	}
	s.managers[mine.ID] = true
	s.mu.Unlock()
	return newEventManager(func(p *chunk.Progress) error { return s.emit(p) }, &mine, s.o.Version == V1)
}

// NewEventManager returns a manager that emits through emit: a tool's
// tool.Context.EmitProgress, or any function that appends to a log. Options may
// be nil. Errors, here and of all methods, are those of emit.
func NewEventManager(emit func(*chunk.Progress) error, o *EventOptions) (*EventManager, error) {
	if o == nil {
		o = new(EventOptions)
	}
	return newEventManager(emit, o, false)
}

// newEventManager sends the heading if there is a name, or always.
func newEventManager(emit func(*chunk.Progress) error, o *EventOptions, always bool) (*EventManager, error) {
	m := &EventManager{emit: emit, id: cmp.Or(o.ID, "events"), name: o.Name, icon: o.Icon}
	if o.Call != "" {
		m.id = o.Call + "/" + m.id
	}
	if m.name == "" && !always {
		return m, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m, m.sendHeading("running")
}

func (m *EventManager) sendHeading(state string) error {
	m.heading = true
	return m.emit(&chunk.Progress{ID: m.id, Label: m.name, State: state, Data: encode(detail{Type: TypeHeading, Icon: m.icon})})
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
	e := &ProgressEvent{m: m, step: Step{
		ID: m.id + "/" + strconv.Itoa(len(m.events)+1), Name: name, Status: InProgress, Icon: icon,
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

// Step returns the step as it is now, without its index, which the wire gives it.
func (e *ProgressEvent) Step() Step {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	s := e.step
	s.Tags, s.Values = append([]string{}, s.Tags...), append([]Value{}, s.Values...)
	return s
}

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
		Data: encode(detail{Icon: e.step.Icon, Tags: e.step.Tags, Values: e.step.Values})})
}
