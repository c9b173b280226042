package aisdk

import "strings"

// PartialSuffix ends the id of a message that is not whole.
const PartialSuffix = "-partial"

// MergeOptions say how assistant messages are merged. The zero value is what
// clients expect.
type MergeOptions struct {
	// KeepDuplicateTools keeps every part of a call. By default a call has one:
	// at the place of its first part, with the content of its most advanced one.
	KeepDuplicateTools bool
	// FirstTool keeps the content of a call's first part, however little
	// advanced.
	FirstTool bool
	// KeepEmptyText keeps text parts without text.
	KeepEmptyText bool
}

// MergeAssistantMessages joins each run of adjacent assistant messages into
// one, with all their parts, the id and the metadata of the first. An id keeps
// [PartialSuffix] if any of them had it. The messages given are not changed.
func MergeAssistantMessages(messages []UIMessage, o *MergeOptions) []UIMessage {
	if o == nil {
		o = &MergeOptions{}
	}
	merged := make([]UIMessage, 0, len(messages))
	var m merger
	for _, message := range messages {
		last := len(merged) - 1
		if message.Role != "assistant" {
			merged = append(merged, message)
			continue
		}
		if last < 0 || merged[last].Role != "assistant" {
			head := message
			head.Parts = []UIPart{}
			merged = append(merged, head)
			m = merger{o: o, calls: map[string]int{}}
			last++
		}
		m.add(&merged[last], message)
	}
	return merged
}

type merger struct {
	o     *MergeOptions
	calls map[string]int // index of a call's part
}

func (m *merger) add(into *UIMessage, from UIMessage) {
	if strings.HasSuffix(from.ID, PartialSuffix) && !strings.HasSuffix(into.ID, PartialSuffix) {
		into.ID += PartialSuffix
	}
	for _, p := range from.Parts {
		if p.Type == "text" && p.Text == "" && !m.o.KeepEmptyText {
			continue
		}
		if p.IsTool() && !m.o.KeepDuplicateTools {
			if i, seen := m.calls[p.ToolCallID]; seen {
				if !m.o.FirstTool && rank(&p) >= rank(&into.Parts[i]) {
					into.Parts[i] = p
				}
				continue
			}
			m.calls[p.ToolCallID] = len(into.Parts)
		}
		into.Parts = append(into.Parts, p)
	}
}

// rank orders the states of a call by how far it has come.
func rank(p *UIPart) int {
	switch p.State {
	case StateOutputAvailable, StateOutputError, StateOutputDenied:
		if p.Preliminary {
			return 5
		}
		return 6
	case StateApprovalResponded:
		return 4
	case StateApprovalRequested:
		return 3
	case StateInputAvailable:
		return 2
	case StateInputStreaming:
		return 1
	}
	return 0
}
