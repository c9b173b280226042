package aisdk

import (
	"encoding/json"
	"slices"

	"github.com/spool-run/spool/chunk"
)

// shown are the parts of a message as a client is shown them. With [Flatten]
// agents names the sub-agent whose words a part is, "" for all others.
type shown struct {
	list   []chunk.Part
	agents []string
	own    []chunk.Part // of a message that is converted: without sub-agents
}

type shownPart struct {
	chunk.Part
	agent string
}

func (s shown) agent(i int) string {
	if s.agents == nil {
		return ""
	}
	return s.agents[i]
}

// flattens reports whether what sub-agents say stands in the message itself.
func (o *Options) flattens() bool { return o.SubAgents == Flatten }

// counted are the parts among which clients look for calls without an outcome.
func (p *Projector) counted() []chunk.Part {
	if p.o.flattens() {
		return p.shown().list
	}
	return p.parts()
}

// flat returns what the agent said in the turn as parts of the root's message,
// with ids that begin with its session. Its steps are not the message's, and how
// its runs end and what they result in is told by the call that began it.
func (a *SubAgent) flat(waited map[string]*SubAgent) []shownPart {
	var list []shownPart
	for _, m := range a.Messages {
		if m.Role != chunk.RoleAssistant {
			continue
		}
		for _, part := range m.Parts {
			item := shownPart{Part: part}
			switch part.Type {
			case chunk.PartStep:
				continue
			case chunk.PartText, chunk.PartReasoning:
				item.agent = a.Session
			case chunk.PartTool:
				if part.Tool == nil {
					continue
				}
				item.Tool = a.flatCall(part.Tool, waited)
			case chunk.PartData:
				if part.ID == "" && (part.Name == "error" || part.Name == "output" || part.Name == "run-interrupted") {
					continue
				}
				if part.ID != "" {
					item.ID = chunk.ChildCallID(a.Session, part.ID)
				}
			case chunk.PartSource:
				if part.ID != "" {
					item.ID = chunk.ChildCallID(a.Session, part.ID)
				}
			}
			list = append(list, item)
		}
	}
	return list
}

// flatCall returns a call as one of the root's message.
func (a *SubAgent) flatCall(t *chunk.ToolPart, waited map[string]*SubAgent) *chunk.ToolPart {
	id := chunk.ChildCallID(a.Session, t.CallID)
	if of := waited[id]; of != nil {
		t = whileWaiting(t, of)
	}
	call := *t
	call.CallID = id
	if len(call.Input) == 0 && !call.State.Done() && call.Approval == nil && call.InputText != "" {
		call.State = chunk.ToolStreaming // as what is no JSON is shown
	}
	return &call
}

// ofAgent notes on a part's metadata which sub-agent it is of.
func ofAgent(session string, metadata json.RawMessage) json.RawMessage {
	if session == "" {
		return metadata
	}
	all := map[string]json.RawMessage{}
	_ = json.Unmarshal(metadata, &all)
	all["spool"], _ = json.Marshal(map[string]string{"agent": session})
	data, _ := json.Marshal(all)
	return data
}

// spokenSince reports whether the agent has said something behind a sequence, or
// still says what it began before.
func (a *SubAgent) spokenSince(seq uint64) bool {
	return slices.ContainsFunc(a.flat(nil), func(part shownPart) bool { return part.First > seq || part.Open })
}

// partKey tells a part from its neighbours.
type partKey struct {
	kind  chunk.PartType
	id    string
	first uint64 // of words
}

func keyOf(part *chunk.Part) partKey {
	key := partKey{kind: part.Type}
	switch part.Type {
	case chunk.PartText, chunk.PartReasoning:
		key.first = part.First
	case chunk.PartTool:
		key.id = part.Tool.CallID
	case chunk.PartData:
		key.id = part.Name
		if part.ID != "" {
			key.id, _ = dataKey(part)
		}
	}
	return key
}

// place remembers in which order the client has the parts.
func (v *view) place(p *Projector, parts []chunk.Part) {
	v.order = v.order[:0]
	for i := range parts {
		if p.o.visible(&parts[i]) {
			v.order = append(v.order, keyOf(&parts[i]))
		}
	}
}

// misplaced reports whether the client has parts elsewhere than the message, or
// has one in an earlier step that it could be brought to only by a second part:
// agents speak at the same time, and what one of them began early may be made
// visible, or whole, late.
func (v *view) misplaced(p *Projector, parts []chunk.Part) bool {
	n := 0
	for i := range parts {
		part := &parts[i]
		if !p.o.visible(part) {
			continue
		}
		if n < len(v.order) && v.order[n] != keyOf(part) {
			return true
		}
		n++
		if s := (*sentTool)(nil); part.Tool != nil {
			if s = v.tools[part.Tool.CallID]; s != nil && s.step != v.steps && s.lacksInput(part.Tool) {
				return true
			}
		}
	}
	return n < len(v.order)
}

// lacksInput reports whether the client would have to be sent the call's input.
func (s *sentTool) lacksInput(t *chunk.ToolPart) bool {
	if t.State == chunk.ToolStreaming {
		return false
	}
	return !s.available || s.tooDeep && !unfinished(t) || s.outcome == outcomeNone && !sameJSON(s.input, inputOf(t))
}
