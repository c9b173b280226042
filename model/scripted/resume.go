package scripted

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
)

// position is all that a background answer depends on. Its cursor is the position
// itself, so that any process can play the answer again.
type position struct {
	Text        string   `json:"text"`
	Round       int      `json:"round"`
	Denied      []string `json:"denied,omitempty"`
	InputTokens int64    `json:"inputTokens"`
	Started     int64    `json:"started"` // milliseconds since 1970
}

const (
	cursorPrefix = "scripted-1:" // another number if the scenes get other calls
	cursorText   = 128           // bytes of the message that a cursor has room for
)

func newPosition(c Call, inputTokens int64, now time.Time) position {
	text := strings.ToValidUTF8(cut(c.Text, 0, cursorText), "\uFFFD")
	return position{Text: text, Round: c.Round, Denied: c.Denied, InputTokens: inputTokens, Started: now.UnixMilli()}
}

func (p position) call() Call { return Call{Text: p.Text, Round: p.Round, Denied: p.Denied} }

// cursor returns the position's cursor, or "" if it is too long for one.
func (p position) cursor() string {
	raw, err := json.Marshal(p)
	if err != nil || len(cursorPrefix)+len(raw) > chunk.MaxCursorBytes {
		return ""
	}
	return cursorPrefix + string(raw)
}

func parseCursor(cursor string) (p position, ok bool) {
	raw, ok := strings.CutPrefix(cursor, cursorPrefix)
	return p, ok && json.Unmarshal([]byte(raw), &p) == nil
}

// Resume plays a background answer again, from its beginning. What it has said since
// it was asked for comes at once, also what nobody heard; the rest comes at the
// model's pace. A cursor that is not from a model like this one gives
// [model.CodeGone].
func (m *Model) Resume(ctx context.Context, cursor string) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		at, ok := parseCursor(cursor)
		if !ok || !m.o.Background {
			yield(nil, &model.Error{Code: model.CodeGone, Message: "the scripted model has no such answer"})
			return
		}
		since := m.o.Now().Sub(time.UnixMilli(at.Started))
		m.play(ctx, at.call(), at.InputTokens, max(since, 0), yield)
	}
}

// CancelAnswer does nothing: nobody works on a scripted answer.
func (m *Model) CancelAnswer(context.Context, string) error { return nil }
