package aisdk

import (
	"encoding/json"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/internal/jsonenc"
)

// ConvertOptions say how messages are converted. The zero value converts
// everything, as the default profile streams it.
type ConvertOptions struct {
	// Options are the profile's, whose stream the messages are to equal.
	Options
	// GenerateID names the messages; nil keeps their ids. It is given a
	// message's index in the whole history.
	GenerateID func(index int, m *chunk.Message) string
	// OmitReasoning leaves reasoning out.
	OmitReasoning bool
	// OmitToolResults leaves the outcomes of calls out: all have their input,
	// none an output.
	OmitToolResults bool
	// Children returns the sub-agents of a message and the session of the agent
	// whose message it is; see [SubAgentsOf]. Nil: there are none.
	Children func(m *chunk.Message) (root string, list []*SubAgent)
	// Resolve returns the value that a stored value stands for: what a blob
	// reference refers to, anything else as it is. Nil leaves values as they are
	// stored.
	Resolve func(json.RawMessage) (json.RawMessage, error)
	// Live is set for a message whose step is not over, because its run is open or waits
	// for answers: it gets no closing step.
	Live bool

	nested bool // a sub-agent's message inside a data part: nothing streams its blocks
}

func (o *ConvertOptions) shape() *shape { return &shape{Options: o.Options, resolve: o.Resolve} }

// ConvertToUIMessages converts a history. Nil options are the zero value.
func ConvertToUIMessages(messages []chunk.Message, o *ConvertOptions) []UIMessage {
	return convertFrom(messages, 0, o)
}

func convertFrom(messages []chunk.Message, offset int, o *ConvertOptions) []UIMessage {
	if o == nil {
		o = &ConvertOptions{}
	}
	out := make([]UIMessage, len(messages))
	for i := range messages {
		out[i] = convert(&messages[i], offset+i, o)
	}
	return out
}

// ConvertToUIMessage converts one message.
func ConvertToUIMessage(m *chunk.Message, o *ConvertOptions) UIMessage {
	if o == nil {
		o = &ConvertOptions{}
	}
	return convert(m, 0, o)
}

func convert(m *chunk.Message, index int, o *ConvertOptions) UIMessage {
	as := o.shape()
	ui := UIMessage{ID: m.ID, Role: string(m.Role), Metadata: withoutPrototypes(m.Metadata), Parts: []UIPart{}}
	if o.GenerateID != nil {
		ui.ID = o.GenerateID(index, m)
	}
	sources, blocks := 0, 0
	parts := o.parts(m, as)
	for i := range parts.list {
		p := as.whole(&parts.list[i])
		if p.Type == chunk.PartSource {
			sources++
		}
		if !as.visible(p) {
			continue
		}
		if p.Type == chunk.PartText || p.Type == chunk.PartReasoning {
			blocks++
		}
		if o.OmitReasoning && p.Type == chunk.PartReasoning {
			continue
		}
		part := convertPart(p, as, sources)
		if part.Type == "reasoning" && !o.nested {
			part.ID = as.blockID(blocks - 1) // clients keep the id of its block
		}
		part.ProviderMetadata = ofAgent(parts.agent(i), part.ProviderMetadata)
		if m.Role == chunk.RoleAssistant {
			if p.Type == chunk.PartFile {
				part.Filename = "" // the stream has no field for it
			}
		} else {
			part.State = ""
		}
		if o.OmitToolResults && p.Tool != nil {
			withoutResult(&part)
		}
		part.prune()
		ui.Parts = append(ui.Parts, part)
	}
	if m.Role == chunk.RoleAssistant && !o.Live && !o.NoStepEvents && !o.OmitToolResults {
		own := parts.own
		if as.flattens() {
			own = parts.list
		}
		if endsWithTools(own) {
			ui.Parts = append(ui.Parts, UIPart{Type: "step-start"})
		}
	}
	return ui
}

// parts returns the message's parts with those of its sub-agents.
func (o *ConvertOptions) parts(m *chunk.Message, as *shape) shown {
	if m.Role != chunk.RoleAssistant {
		return shown{list: m.Parts}
	}
	var root string
	var list []*SubAgent
	if o.Children != nil {
		root, list = o.Children(m)
	}
	own := as.filterParts(&chunk.Base{AgentID: root}, m.Parts)
	list = as.filterAgents(list)
	s := shownParts(root, own, list, as, func(i int) json.RawMessage { return list[i].data(as) })
	s.own = own
	return s
}

func convertPart(p *chunk.Part, o *shape, source int) UIPart {
	switch p.Type {
	case chunk.PartText, chunk.PartReasoning:
		part := UIPart{Type: prefix(p.Type), Text: p.Text, State: "done"}
		if p.Open {
			part.State = "streaming"
		} else if p.Type == chunk.PartReasoning {
			part.ProviderMetadata = providerMetadata(p.ProviderMetadata)
		}
		return part
	case chunk.PartTool:
		return convertTool(p.Tool, o)
	case chunk.PartData:
		data := o.value(p.Data)
		if len(data) == 0 {
			data = json.RawMessage("null")
		}
		return UIPart{Type: "data-" + p.Name, ID: p.ID, Data: data}
	case chunk.PartSource:
		part := UIPart{Type: "source-url", SourceID: sourceID(p, source), Title: p.Title, ProviderMetadata: citedText(p)}
		if url, document := sourceKind(p); document {
			part.Type, part.MediaType, part.Title, part.Filename = "source-document", orElse(p.MediaType, octets), sourceTitle(p), p.Filename
		} else {
			part.URL = url
		}
		return part
	case chunk.PartFile:
		return UIPart{Type: "file", URL: p.URL, MediaType: orElse(p.MediaType, octets), Filename: p.Filename}
	}
	return UIPart{Type: "step-start"}
}

func convertTool(t *chunk.ToolPart, o *shape) UIPart {
	part := UIPart{Type: "dynamic-tool", ToolName: t.Name, ToolCallID: t.CallID, ProviderExecuted: t.ProviderExecuted}
	if o.StaticTools {
		part.Type, part.ToolName = "tool-"+t.Name, ""
	}
	if t.Approval != nil {
		part.Approval = &UIApproval{ID: t.Approval.ID, Approved: t.Approval.Approved, Reason: t.Approval.Reason}
	}
	outcome := outcomeOf(t)
	if outcome == outcomeNone && t.Approval == nil && unfinished(t) {
		if text := fitting(t.InputText); len(text) < len(t.InputText) {
			part.State, part.ErrorText, part.Input = StateOutputError, tooDeep, jsonenc.AppendString(nil, text)
			part.invalid(o)
			return part
		}
		part.State = StateInputStreaming
		if text := []byte(t.InputText); jsonenc.Valid(text) && !hasPrototypes(text) { // else clients cannot parse it
			part.Input = json.RawMessage(t.InputText)
		}
		return part
	}
	part.Input = o.value(inputOf(t))
	switch outcome {
	case outcomeOutput, outcomePreliminary:
		part.State, part.Preliminary = StateOutputAvailable, outcome == outcomePreliminary
		if part.Output = o.value(t.Output); len(part.Output) == 0 {
			part.Output = json.RawMessage("null")
		}
	case outcomeError:
		part.State, part.ErrorText = StateOutputError, t.Error
		if t.InputInvalid {
			part.invalid(o)
		}
	case outcomeDenied:
		part.State = StateOutputDenied
	default:
		switch {
		case t.Approval == nil:
			part.State = StateInputAvailable
		case t.Approval.Approved == nil:
			part.State = StateApprovalRequested
		default:
			part.State = StateApprovalResponded
		}
	}
	return part
}

// prune leaves out of the part's values what the stream leaves out.
func (p *UIPart) prune() {
	for _, v := range []*json.RawMessage{&p.Data, &p.Input, &p.RawInput, &p.Output, &p.ProviderMetadata} {
		*v = withoutPrototypes(*v)
	}
}

// invalid puts a call's input where clients of the profile have what is not valid.
func (p *UIPart) invalid(o *shape) {
	if o.StaticTools && !o.UI7 {
		p.RawInput, p.Input = p.Input, nil
	}
}

func withoutResult(p *UIPart) {
	switch p.State {
	case StateOutputAvailable, StateOutputError, StateOutputDenied:
		p.State, p.Output, p.ErrorText, p.Preliminary = StateInputAvailable, nil, "", false
		if p.Input == nil {
			p.Input, p.RawInput = p.RawInput, nil
		}
	}
}
