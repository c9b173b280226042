package chunk

import (
	"encoding/json"

	"github.com/spool-run/spool/internal/jsonenc"
)

// FillUnknown adds the base fields that the encoding of a chunk of unknown type lacks.
func FillUnknown(data []byte, b *Base) ([]byte, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(data, &has); err != nil {
		return nil, err
	}
	whole, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(whole, &fields); err != nil {
		return nil, err
	}
	end := len(data) - 1
	for end >= 0 && data[end] != '}' {
		end--
	}
	out := append([]byte(nil), data[:end]...)
	for _, name := range [...]string{"agentId", "agentType", "timestamp", "step", "runId"} {
		if _, there := has[name]; there || fields[name] == nil {
			continue
		}
		out = append(append(append(append(out, `,"`...), name...), `":`...), fields[name]...)
	}
	return append(out, '}'), nil
}

// TraceOmitted returns a record that stands for trace which is not there: of one record,
// or of all up to a sequence.
func TraceOmitted(session string, at int64, through uint64) Record {
	data := jsonenc.Must(struct {
		Type Type `json:"type"`
		Base
		Through uint64 `json:"throughSequence,omitempty"`
	}{TypeTraceOmitted, Base{AgentID: session, Timestamp: at}, through})
	return Record{Type: TypeTraceOmitted, Agent: session, Time: at, Data: data}
}
