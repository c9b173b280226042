package chunk

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/spool-run/spool/internal/jsonenc"
)

// Append appends the chunk's JSON to dst: "type" first, then the base fields, then
// the chunk's own, in the order of the struct. It writes the same bytes as
// encoding/json. If a raw JSON field is not JSON, it fails with [ErrInvalidChunk] and
// returns dst as it was.
//
// The chunks that make up nearly all of a log are encoded without reflection and,
// if dst has room, without allocating.
func Append(dst []byte, c Chunk) ([]byte, error) {
	// This is a switch and no column of the table, because to look a kind up would
	// take half as long as to encode a delta.
	e := encoder{b: dst}
	switch c := c.(type) {
	case *TextDelta:
		e.textDelta(c)
	case *Thinking:
		e.thinking(c)
	case *ToolArgStreamStart:
		e.toolArgStreamStart(c)
	case *ToolArgStreamDelta:
		e.toolArgStreamDelta(c)
	case *ToolArgStreamEnd:
		e.toolArgStreamEnd(c)
	case *ToolStart:
		e.toolStart(c)
	case *ToolEnd:
		e.toolEnd(c)
	case *Custom:
		e.custom(c)
	case *Progress:
		e.progress(c)
	case *StatePatch:
		e.statePatch(c)
	default:
		return appendAny(dst, c)
	}
	if e.problem != "" {
		return dst, ErrInvalidChunk.Because(string(c.ChunkType()) + ": " + e.problem)
	}
	return append(e.b, '}'), nil
}

// appendAny is Append for all other chunks. It uses encoding/json.
func appendAny(dst []byte, c Chunk) ([]byte, error) {
	if c == nil {
		return dst, ErrInvalidChunk.Because("the chunk is nil")
	}
	if u, ok := c.(*Unknown); ok {
		return appendUnknown(dst, u)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return dst, ErrInvalidChunk.Because(fmt.Sprintf("%T cannot be encoded", c)).With("", err)
	}
	if len(body) < 2 || body[0] != '{' {
		return dst, ErrInvalidChunk.Because(fmt.Sprintf("%T does not encode as an object", c))
	}
	dst = append(dst, `{"type":`...)
	dst = jsonenc.AppendString(dst, string(c.ChunkType()))
	if len(body) > 2 {
		dst = append(dst, ',')
	}
	return append(dst, body[1:]...), nil
}

// appendUnknown copies an unknown chunk as it came, but on one line, because streams
// write a record as a line.
func appendUnknown(dst []byte, u *Unknown) ([]byte, error) {
	if u == nil || !jsonenc.Valid(u.Raw) {
		return dst, ErrInvalidChunk.Because("an unknown chunk is not valid JSON, or " + tooDeep)
	}
	for _, b := range u.Raw {
		if b == '\n' || b == '\r' {
			return jsonenc.AppendCompact(dst, u.Raw, false), nil
		}
	}
	return append(dst, u.Raw...), nil
}

// encoder appends JSON members. Keys come with their comma, quotes and colon.
type encoder struct {
	b       []byte
	problem string // the first one; b is invalid then
}

// base opens the object of a chunk, and writes its type and its base.
func (e *encoder) base(t Type, b *Base) {
	e.b = append(e.b, `{"type":"`...)
	e.b = append(e.b, t...)
	e.b = append(e.b, '"')
	e.str(`,"agentId":`, b.AgentID)
	e.str(`,"agentType":`, b.AgentType)
	e.b = append(e.b, `,"timestamp":`...)
	e.b = strconv.AppendInt(e.b, b.Timestamp, 10)
	e.b = append(e.b, `,"step":`...)
	e.b = strconv.AppendInt(e.b, int64(b.Step), 10)
	e.optStr(`,"runId":`, b.RunID)
}

func (e *encoder) str(key, s string) {
	e.b = jsonenc.AppendString(append(e.b, key...), s)
}

func (e *encoder) optStr(key, s string) {
	if s != "" {
		e.str(key, s)
	}
}

func (e *encoder) bool(key string, v bool) {
	e.b = strconv.AppendBool(append(e.b, key...), v)
}

func (e *encoder) optBool(key string, v bool) {
	if v {
		e.bool(key, v)
	}
}

func (e *encoder) raw(key string, raw json.RawMessage) {
	e.b = append(e.b, key...)
	switch {
	case raw == nil:
		e.b = append(e.b, "null"...)
	case !jsonenc.Valid(raw):
		if e.problem == "" {
			e.problem = key[2:len(key)-2] + " is not valid JSON"
			if json.Valid(raw) {
				e.problem = key[2:len(key)-2] + " " + tooDeep
			}
		}
	default:
		e.b = jsonenc.AppendCompact(e.b, raw, true)
	}
}

func (e *encoder) optRaw(key string, raw json.RawMessage) {
	if len(raw) > 0 {
		e.raw(key, raw)
	}
}

// float writes a number in its shortest form, as ECMAScript does.
func (e *encoder) float(key string, f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		if e.problem == "" {
			e.problem = key[2:len(key)-2] + " is not a number"
		}
		return
	}
	e.b = append(e.b, key...)
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	e.b = strconv.AppendFloat(e.b, f, format, -1, 64)
	if n := len(e.b); format == 'e' && e.b[n-4] == 'e' && e.b[n-3] == '-' && e.b[n-2] == '0' {
		e.b[n-2] = e.b[n-1] // e-09 to e-9
		e.b = e.b[:n-1]
	}
}

func (e *encoder) patches(key string, list []PatchOperation) {
	e.b = append(e.b, key...)
	if list == nil {
		e.b = append(e.b, "null"...)
		return
	}
	e.b = append(e.b, '[')
	for i := range list {
		p := &list[i]
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.str(`{"op":`, p.Op)
		e.str(`,"path":`, p.Path)
		e.optStr(`,"from":`, p.From)
		e.optRaw(`,"value":`, p.Value)
		e.b = append(e.b, '}')
	}
	e.b = append(e.b, ']')
}
