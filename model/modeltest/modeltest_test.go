package modeltest_test

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"testing"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/modeltest"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Error(...any)          { r.failed = true }
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func stream(parts []model.Part, err error) iter.Seq2[model.Part, error] {
	return func(yield func(model.Part, error) bool) {
		for _, p := range parts {
			if !yield(p, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// Three ingesters of a protocol in which a full stop ends the answer.

func good(src io.Reader) iter.Seq2[model.Part, error] {
	data, _ := io.ReadAll(src)
	text, _, whole := bytes.Cut(data, []byte("."))
	var parts []model.Part
	if len(text) > 0 {
		parts = append(parts, model.TextDelta{Delta: string(text)})
	}
	if !whole {
		return stream(parts, &model.Error{Code: model.CodeTruncated})
	}
	return stream(append(parts, model.Finish{Reason: "stop"}), nil)
}

func splitsWords(src io.Reader) iter.Seq2[model.Part, error] {
	var parts []model.Part
	for buf := make([]byte, 64); ; {
		n, err := src.Read(buf)
		if n > 0 {
			parts = append(parts, model.TextDelta{Delta: string(buf[:n])})
		}
		if err != nil {
			return stream(append(parts, model.Finish{Reason: "stop"}), nil)
		}
	}
}

func takesEndForFinish(src io.Reader) iter.Seq2[model.Part, error] {
	data, _ := io.ReadAll(src)
	text, _, _ := bytes.Cut(data, []byte("."))
	if len(text) == 0 {
		return stream([]model.Part{model.Finish{Reason: "stop"}}, nil)
	}
	return stream([]model.Part{model.TextDelta{Delta: string(text)}, model.Finish{Reason: "stop"}}, nil)
}

func TestSuiteFindsFaults(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ingest       modeltest.Ingest
		splits, cuts bool
	}{
		{"good", good, false, false},
		{"splits words", splitsWords, true, true},
		{"takes the end for a finish", takesEndForFinish, false, true},
	} {
		splits, cuts := recorder{TB: t}, recorder{TB: t}
		modeltest.Splits(&splits, []byte("One two."), tt.ingest)
		modeltest.Cuts(&cuts, []byte("One two."), tt.ingest)
		if splits.failed != tt.splits || cuts.failed != tt.cuts {
			t.Errorf("%s: splits fail: %v, cuts fail: %v", tt.name, splits.failed, cuts.failed)
		}
	}
}

func TestFoldFindsFaults(t *testing.T) {
	start := model.ToolCallStart{ID: "a", Name: "f"}
	finish := model.Finish{Reason: "stop"}
	for name, tt := range map[string]struct {
		parts []model.Part
		err   error
	}{
		"no end":                {parts: []model.Part{model.TextDelta{Delta: "a"}}},
		"no reason":             {parts: []model.Part{model.Finish{}}},
		"two ends":              {parts: []model.Part{finish}, err: errors.New("boom")},
		"part after the finish": {parts: []model.Part{finish, model.TextDelta{Delta: "a"}}},
		"empty text":            {parts: []model.Part{model.TextDelta{}, finish}},
		"call left open":        {parts: []model.Part{start, finish}},
		"call twice":            {parts: []model.Part{start, start, model.ToolCallEnd{ID: "a", Name: "f"}, finish}},
		"call without start":    {parts: []model.Part{model.ToolCallEnd{ID: "a", Name: "f"}, finish}},
		"other arguments":       {parts: []model.Part{start, model.ToolCallDelta{ID: "a", Delta: "{"}, model.ToolCallEnd{ID: "a", Name: "f", Arguments: "{}"}, finish}},
		"other reasoning":       {parts: []model.Part{model.ReasoningDelta{Delta: "a"}, model.ReasoningEnd{Text: "b"}, finish}},
		"reasoning left open":   {parts: []model.Part{model.ReasoningDelta{Delta: "a"}, finish}},
	} {
		if _, err := modeltest.Fold(tt.parts, tt.err); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	a, err := modeltest.Fold([]model.Part{model.TextDelta{Delta: "a"}, start}, &model.Error{Code: model.CodeTruncated, Retryable: true})
	if err != nil || a.Error == nil || a.Error.Code != model.CodeTruncated || !a.Error.Retryable || len(a.Blocks) != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := modeltest.Collect(func(yield func(model.Part, error) bool) {
		_ = yield(nil, errors.New("boom")) && yield(finish, nil)
	}); err == nil {
		t.Error("a part after the error passes")
	}
}
