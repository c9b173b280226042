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

// SubAgentsOf returns the agents below a fold's that belong to some of its messages, by
// the message's id and oldest first. What they hold is their own. It looks at each agent
// once, and copies only what belongs to these messages.
func SubAgentsOf(f *fold.Fold, messageIDs ...string) map[string][]*SubAgent {
	if len(f.Children) == 0 {
		return nil
	}
	ids := make(map[string]bool, len(messageIDs))
	for _, id := range messageIDs {
		ids[id] = true
	}
	found := agentsByTurn{f: f, wanted: make(map[*fold.Turn]bool, len(ids)), turns: map[*fold.Turn][]*SubAgent{}}
	for _, t := range f.Turns {
		if ids[t.MessageID] {
			found.wanted[t] = true
		}
	}
	found.walk(f)
	of := make(map[string][]*SubAgent, len(found.turns))
	for turn, list := range found.turns {
		slices.SortStableFunc(list, func(a, b *SubAgent) int { return cmp.Compare(a.Opened, b.Opened) })
		of[turn.MessageID] = list
	}
	return of
}

// agentsByTurn collects the agents of some turns of a fold.
type agentsByTurn struct {
	f      *fold.Fold
	wanted map[*fold.Turn]bool
	turns  map[*fold.Turn][]*SubAgent
}

func (b *agentsByTurn) walk(parent *fold.Fold) {
	for _, c := range parent.Children {
		b.collect(parent, c)
		b.walk(c)
	}
}

// collect adds a child to each turn in which it has a part.
func (b *agentsByTurn) collect(parent, c *fold.Fold) {
	// An agent's turn belongs to the turn of f's that had last begun by then.
	if began := parent.TurnAt(c.Began); began != nil {
		if turn := b.f.TurnAt(began.Runs[0].Start); b.wanted[turn] {
			a := b.add(turn, c, c.Began)
			a.CallID = c.CallID
		}
	}
	at := 0
	for _, t := range c.Turns {
		turn := b.f.TurnAt(t.Runs[0].Start)
		if !b.wanted[turn] {
			continue
		}
		var a *SubAgent
		if list := b.turns[turn]; len(list) > 0 && list[len(list)-1].Session == c.Session {
			a = list[len(list)-1]
		} else {
			a = b.add(turn, c, t.Runs[0].Start)
		}
		at = a.take(c, t, at)
	}
}

func (b *agentsByTurn) add(turn *fold.Turn, c *fold.Fold, opened uint64) *SubAgent {
	a := &SubAgent{Session: c.Session, Type: c.AgentType, Status: chunk.StatusActive, Opened: opened}
	if c.Ended > 0 {
		a.Status = chunk.StatusEnded
	}
	b.turns[turn] = append(b.turns[turn], a)
	return a
}

// take adds one of the agent's turns. The search for its message begins at an index;
// take returns where the next turn's begins.
func (a *SubAgent) take(c *fold.Fold, t *fold.Turn, begin int) (next int) {
	is := func(m *chunk.Message) bool { return m.ID == t.MessageID }
	at := slices.IndexFunc(c.Messages[begin:], is) + begin
	if at < begin {
		at = slices.IndexFunc(c.Messages, is)
	}
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
	return max(at, begin)
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
