package openai

import "github.com/spool-run/spool/model/internal/provider"

// fast takes the event that comes thousands of times: a delta of an item that has
// begun. For any other event it does nothing and returns false.
func (in *response) fast(name, data []byte) bool {
	p := &in.plain
	*p = plainEvent{s: provider.Scan(data)}
	if !p.read() || !p.s.Done() || len(name) > 0 && string(name) != p.e.Type || len(p.e.Delta) <= len(`""`) {
		return false
	}
	it := in.items[int(p.output)]
	if it == nil || family(it.kind) != p.family {
		return false
	}
	p.e.Output = &p.output
	if in.fresh(&p.e, data) {
		in.take(&p.e)
	}
	return true
}

// plainEvent is what a plain delta holds. Its slices point into the event.
type plainEvent struct {
	s      provider.Scanner
	e      responseEvent
	family string // of its item

	seq                      int64
	output, content, summary index
}

func (p *plainEvent) read() bool {
	s, at := &p.s, false
	for key := s.First(); key != nil; key = s.Next() {
		switch string(key) {
		case "type":
			if p.e.Type != "" || !p.kind() {
				return false
			}
		case "sequence_number":
			if p.e.Seq != nil {
				return false
			}
			p.seq, p.e.Seq = int64(s.Int()), &p.seq
		case "output_index":
			if at {
				return false
			}
			p.output, at = index(s.Int()), true
		case "content_index":
			if p.e.Content != nil {
				return false
			}
			p.content, p.e.Content = index(s.Int()), &p.content
		case "summary_index":
			if p.e.Summary != nil {
				return false
			}
			p.summary, p.e.Summary = index(s.Int()), &p.summary
		case "delta":
			if p.e.Delta != nil || !s.IsStr() {
				return false
			}
			p.e.Delta = s.RawStr()
		case "item_id", "logprobs", "obfuscation", "response_id":
			s.Skip()
		default:
			return false
		}
	}
	return at && p.e.Type != "" && p.e.Delta != nil
}

func (p *plainEvent) kind() bool {
	kind, escaped := p.s.Str()
	switch {
	case escaped:
		return false
	case string(kind) == "response.output_text.delta":
		p.e.Type, p.family = "response.output_text.delta", family("message")
	case string(kind) == "response.function_call_arguments.delta":
		p.e.Type, p.family = "response.function_call_arguments.delta", family("function_call")
	case string(kind) == "response.reasoning_summary_text.delta":
		p.e.Type, p.family = "response.reasoning_summary_text.delta", family("reasoning")
	case string(kind) == "response.reasoning_text.delta":
		p.e.Type, p.family = "response.reasoning_text.delta", family("reasoning")
	default:
		return false
	}
	return true
}
