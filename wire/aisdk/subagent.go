package aisdk

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// SubAgents says how the agents that a turn's calls begin are shown in its
// message. Whatever it is, data-subagent-start and data-subagent-end tell of
// them in passing, their results are their calls', and what they ask of people
// and clients are tool calls of the message, with ids of [chunk.ChildCallID].
type SubAgents string

const (
	// Nest shows each in a data-subagent part of its own ([SubAgentData]), and
	// what it says meanwhile in transient data-subagent-live frames.
	Nest SubAgents = "nest"
	// Summary shows nothing of what they say.
	Summary SubAgents = "summary"
	// Flatten shows what they say and call as parts of the message itself.
	Flatten SubAgents = "flatten"
)

// ParseSubAgents reads a policy; "" is Nest. It fails with [chunk.ErrInvalid].
func ParseSubAgents(s string) (SubAgents, error) {
	switch p := SubAgents(s); p {
	case "":
		return Nest, nil
	case Nest, Summary, Flatten:
		return p, nil
	}
	return "", chunk.ErrInvalid.Because("agents must be nest, summary or flatten")
}

// SubAgent is a child agent, of any generation, as far as it belongs to one
// message of its root's.
type SubAgent struct {
	Session string
	Type    string
	CallID  string // the call of its parent's that began it; "" if that was in an earlier turn
	Opened  uint64 // sequence of the record that made it part of the turn
	Status  chunk.Status
	Reason  string // the last run's outcome, or what it waits for
	// Messages are what it was told and what it said in the turn.
	Messages []*chunk.Message
	// Waits are the pauses in which it waited for answers.
	Waits []SubAgentWait
}

// SubAgentWait is a pause of a child's run: where it is in the log, and the calls
// of its own that waited.
type SubAgentWait struct {
	Seq   uint64
	Calls []string
}

// SubAgentData is the data of a data-subagent part, whose id is the session.
type SubAgentData struct {
	SessionID string       `json:"sessionId"`
	Parent    string       `json:"parentSessionId"`
	Type      string       `json:"type,omitempty"`
	CallID    string       `json:"callId,omitempty"` // the parent's call that began it
	Status    chunk.Status `json:"status"`
	Reason    string       `json:"reason,omitempty"`
	// Pending are the ids, among the calls of the root's message, of those that
	// wait for an answer.
	Pending  []string    `json:"pending,omitempty"`
	Messages []UIMessage `json:"messages"`
}

// SubAgentsOf returns the agents below a fold's that belong to one of its
// messages, oldest first. What they hold is their own.
func SubAgentsOf(f *fold.Fold, messageID string) []*SubAgent {
	i := slices.IndexFunc(f.Turns, func(t *fold.Turn) bool { return t.MessageID == messageID })
	if i < 0 || len(f.Children) == 0 {
		return nil
	}
	turn := f.Turns[i]
	var list []*SubAgent
	var walk func(parent *fold.Fold)
	walk = func(parent *fold.Fold) {
		for _, c := range parent.Children {
			if a := subAgentOf(f, parent, c, turn); a != nil {
				list = append(list, a)
			}
			walk(c)
		}
	}
	walk(f)
	slices.SortStableFunc(list, func(a, b *SubAgent) int { return cmp.Compare(a.Opened, b.Opened) })
	return list
}

// subAgentOf returns the part that a child has in a turn of f's, or nil.
func subAgentOf(f, parent, c *fold.Fold, turn *fold.Turn) *SubAgent {
	a := &SubAgent{Session: c.Session, Type: c.AgentType, Status: chunk.StatusActive}
	if c.Ended > 0 {
		a.Status = chunk.StatusEnded
	}
	// An agent's turn belongs to the turn of f's that had last begun by then.
	began := parent.TurnAt(c.Began)
	if began != nil && f.TurnAt(began.Runs[0].Start) == turn {
		a.CallID, a.Opened = c.CallID, c.Began
	}
	for _, t := range c.Turns {
		if f.TurnAt(t.Runs[0].Start) != turn {
			continue
		}
		if a.Opened == 0 {
			a.Opened = t.Runs[0].Start
		}
		a.take(c, t)
	}
	if a.Opened == 0 {
		return nil
	}
	return a
}

// take adds one of the agent's turns.
func (a *SubAgent) take(c *fold.Fold, t *fold.Turn) {
	at := slices.IndexFunc(c.Messages, func(m *chunk.Message) bool { return m.ID == t.MessageID })
	from := at
	for from > 0 && c.Messages[from-1].Role == chunk.RoleUser {
		from--
	}
	for i := from; i >= 0 && i <= at; i++ {
		m := c.Messages[i].Clone()
		a.Messages = append(a.Messages, &m)
	}
	for _, run := range t.Runs {
		if strings.HasPrefix(run.Suspended, "awaiting_") {
			a.Waits = append(a.Waits, SubAgentWait{Seq: run.End, Calls: run.Pending})
		}
		switch {
		case run.End == 0:
			a.Status, a.Reason = chunk.StatusActive, ""
		case run.Suspended != "":
			a.Status, a.Reason = chunk.StatusPaused, run.Suspended
		case run.Outcome == chunk.OutcomeFailed:
			a.Status, a.Reason = chunk.StatusFailed, string(run.Outcome)
		default:
			a.Status, a.Reason = chunk.StatusEnded, string(run.Outcome)
		}
	}
}

// parentOf returns the session of a child's parent.
func parentOf(session string) string {
	return session[:max(0, strings.LastIndexByte(session, '.'))]
}

// call finds a call of the agent's, the latest of that id.
func (a *SubAgent) call(id string) *chunk.ToolPart {
	for _, m := range slices.Backward(a.Messages) {
		for i := range m.Parts {
			if t := m.Parts[i].Tool; t != nil && t.CallID == id {
				return t
			}
		}
	}
	return nil
}

// data is what a data-subagent part holds of the agent now.
func (a *SubAgent) data(o *shape) json.RawMessage {
	d := SubAgentData{SessionID: a.Session, Parent: parentOf(a.Session), Type: a.Type, CallID: a.CallID,
		Status: a.Status, Reason: a.Reason, Messages: []UIMessage{}}
	if a.Status == chunk.StatusPaused {
		seen := map[string]bool{}
		for _, w := range a.Waits {
			for _, id := range w.Calls {
				if t := a.call(id); t != nil && t.Waits() && !seen[id] {
					d.Pending = append(d.Pending, chunk.ChildCallID(a.Session, id))
					seen[id] = true
				}
			}
		}
	}
	as := &ConvertOptions{Options: o.Options, Resolve: o.resolve, Live: true, nested: true}
	for i, m := range a.Messages {
		d.Messages = append(d.Messages, convert(m, i, as))
	}
	data, err := json.Marshal(d)
	if err != nil {
		return json.RawMessage("null")
	}
	return data
}

// shownParts returns the parts of a turn's message with those of its sub-agents
// among them: each where the record stands that made it visible, which is where
// a client that never left got it. Root is the agent whose message it is; data
// gives what the data part of the i-th sub-agent holds.
func shownParts(root string, own []chunk.Part, agents []*SubAgent, o *shape, data func(i int) json.RawMessage) shown {
	if len(agents) == 0 {
		return shown{list: own}
	}
	waited := map[string]*SubAgent{} // by the call that waits for it
	for _, a := range agents {
		if call := chunk.ChildCallID(parentOf(a.Session), a.CallID); len(a.Waits) > 0 && waited[call] == nil {
			waited[call] = a
		}
	}
	var items []shownPart
	for i, a := range agents {
		if o.flattens() {
			items = append(items, a.flat(waited)...)
			continue
		}
		if o.nests() {
			items = append(items, shownPart{Part: chunk.Part{Type: chunk.PartData, Name: subAgentPart, ID: a.Session, Data: data(i), First: a.Opened}})
		}
		for _, part := range a.waitingCalls() {
			items = append(items, shownPart{Part: part})
		}
	}
	slices.SortStableFunc(items, func(x, y shownPart) int { return cmp.Compare(x.First, y.First) })
	n := len(own) + len(items)
	s := shown{list: make([]chunk.Part, n), agents: make([]string, n)}
	i, j := len(own)-1, len(items)-1
	for n--; n >= 0; n-- {
		if j >= 0 && (i < 0 || own[i].First <= items[j].First) {
			s.list[n], s.agents[n] = items[j].Part, items[j].agent
			j--
			continue
		}
		part := own[i]
		if t := part.Tool; t != nil && waited[chunk.ChildCallID(root, t.CallID)] != nil {
			part.Tool = whileWaiting(t, waited[chunk.ChildCallID(root, t.CallID)])
		}
		s.list[n] = part
		i--
	}
	return s
}

// nests reports whether sub-agents have data parts of their own.
func (o *Options) nests() bool { return o.SubAgents == Nest || o.SubAgents == "" }

// subAgentPart is the name of the data part of a sub-agent.
const subAgentPart = "subagent"

// waitingCalls returns the calls that have waited for somebody's answer as parts
// of the root's message.
func (a *SubAgent) waitingCalls() []chunk.Part {
	var parts []chunk.Part
	seen := map[string]bool{}
	for _, w := range a.Waits {
		for _, id := range w.Calls {
			t := a.call(id)
			if t == nil || seen[id] {
				continue
			}
			seen[id] = true
			call := *t
			call.CallID = chunk.ChildCallID(a.Session, id)
			parts = append(parts, chunk.Part{Type: chunk.PartTool, First: w.Seq, Tool: &call})
		}
	}
	return parts
}

// whileWaiting gives a call whose agent has waited for an answer an output until
// it has its own: clients send what they were asked for by themselves only when
// no other call of the step is open, or preliminary.
func whileWaiting(t *chunk.ToolPart, a *SubAgent) *chunk.ToolPart {
	if t.State.Done() || t.Preliminary {
		return t
	}
	call := *t
	call.State = chunk.ToolCompleted
	call.Output, _ = json.Marshal(struct {
		SubSessionID string `json:"subSessionId"`
	}{a.Session})
	return &call
}
