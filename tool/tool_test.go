package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/tool"
)

type trip struct {
	City string `json:"city" jsonschema:"where to go"`
	Days int    `json:"days,omitempty"`
}

func TestSpecIsInferred(t *testing.T) {
	spec := tool.New("plan_trip", "Plans.", func(tool.Context, trip) (string, error) { return "", nil }).Spec()
	const want = `{"type":"object","properties":{"city":{"type":"string","description":"where to go"},"days":{"type":"integer"}},"required":["city"],"additionalProperties":false}`
	if string(spec.Input) != want || spec.Name != "plan_trip" || spec.Description != "Plans." {
		t.Errorf("got %+v\n%s", spec, spec.Input)
	}
}

func TestAsk(t *testing.T) {
	ask := tool.Ask("ask_user", "Asks the user.")
	if spec := ask.Spec(); !spec.Client || spec.Name != "ask_user" || spec.Description != "Asks the user." {
		t.Errorf("%+v", spec)
	}
	if err := tool.Check(ask, json.RawMessage(`{"question":"Which?","options":["a","b"]}`)); err != nil {
		t.Error(err)
	}
	if err := tool.Check(ask, json.RawMessage(`{"options":[]}`)); err == nil {
		t.Error("a question without one was accepted")
	}
	if _, err := ask.Call(tool.NewContext(t.Context(), tool.Call{}, nil), json.RawMessage(`{"question":"Which?"}`)); !tool.IsFatal(err) {
		t.Errorf("a call of it here: %v", err)
	}
}

func TestCheck(t *testing.T) {
	typed := tool.New("plan_trip", "", func(tool.Context, trip) (string, error) { return "", nil })
	for _, tl := range []tool.Tool{typed, schemaOnly{typed.Spec()}} {
		for input, want := range map[string]string{
			`{"city":"Rome"}`:            "",
			`{"city":"Rome","days":2}`:   "",
			`{"days":2}`:                 "city",
			`{"city":7}`:                 "city",
			`{"city":"Rome","days":1.5}`: "integer",
			`{"city":"Rome","x":1}`:      "x",
			`{"city":`:                   "not valid JSON",
			`[]`:                         "type",
		} {
			err := tool.Check(tl, json.RawMessage(input))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%T: %s: got %v, want %q", tl, input, err, want)
			}
		}
	}
}

// schemaOnly is a tool that leaves checking to its schema.
type schemaOnly struct{ spec tool.Spec }

func (s schemaOnly) Spec() tool.Spec { return s.spec }
func (s schemaOnly) Call(tool.Context, json.RawMessage) (json.RawMessage, error) {
	return nil, nil
}

func TestCallOutcomes(t *testing.T) {
	cause := errors.New("no such city")
	tl := tool.New("t", "", func(_ tool.Context, in trip) (any, error) {
		switch in.City {
		case "plain":
			return nil, cause
		case "fatal":
			return nil, fmt.Errorf("wrapped: %w", tool.Fatal(cause))
		case "unmarshalable":
			return func() {}, nil
		}
		return map[string]int{"days": in.Days}, nil
	})
	ctx := tool.NewContext(t.Context(), tool.Call{}, nil)
	call := func(city string) (string, error) {
		out, err := tl.Call(ctx, json.RawMessage(fmt.Sprintf(`{"city":%q,"days":3}`, city)))
		return string(out), err
	}
	if out, err := call("Rome"); err != nil || out != `{"days":3}` {
		t.Errorf("got %s, %v", out, err)
	}
	if _, err := call("plain"); !errors.Is(err, cause) || tool.IsFatal(err) {
		t.Errorf("plain: %v", err)
	}
	if _, err := call("fatal"); !errors.Is(err, cause) || !tool.IsFatal(err) {
		t.Errorf("fatal: %v", err)
	}
	if _, err := call("unmarshalable"); err == nil {
		t.Error("a result that is no JSON passed")
	}
	if tool.Fatal(nil) != nil {
		t.Error("Fatal(nil) is an error")
	}
}

func TestClientResults(t *testing.T) {
	anything, number := tool.Client[trip]("a", ""), tool.With(tool.ClientOf[trip, int]("n", ""), tool.Options{Approval: true})
	if !number.Spec().Client || anything.Spec().Result != nil {
		t.Errorf("%+v, %+v", number.Spec(), anything.Spec())
	}
	for result, fits := range map[string]bool{`7`: true, `"7"`: false, `{}`: false, `null`: false, `{`: false} {
		if err := tool.CheckResult(number, json.RawMessage(result)); (err == nil) != fits {
			t.Errorf("%s of a number: %v", result, err)
		}
	}
	if err := tool.CheckResult(anything, json.RawMessage(`"7"`)); err != nil {
		t.Error(err)
	}
}

func TestNewPanicsOnMistakes(t *testing.T) {
	for name, make := range map[string]func(){
		"bad name":  func() { tool.New("get weather", "", func(tool.Context, trip) (int, error) { return 0, nil }) },
		"no schema": func() { tool.New("x", "", func(tool.Context, chan int) (int, error) { return 0, nil }) },
		"no result": func() { tool.ClientOf[trip, chan int]("x", "") },
		"no object": func() { tool.New("x", "", func(tool.Context, string) (int, error) { return 0, nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			make()
		})
	}
}

type recorder struct {
	chunks []chunk.Chunk
	state  json.RawMessage
}

func (r *recorder) Emit(_ context.Context, c chunk.Chunk) error {
	r.chunks = append(r.chunks, c)
	return nil
}
func (r *recorder) State() json.RawMessage { return r.state }
func (r *recorder) Update(_ context.Context, change func(json.RawMessage) (json.RawMessage, error)) error {
	next, err := change(r.state)
	if err == nil {
		r.state = next
	}
	return err
}

func TestContextEmits(t *testing.T) {
	var r recorder
	c := tool.NewContext(t.Context(), tool.Call{ID: "c1", Name: "t"}, &r)
	half := 50.0
	for _, err := range []error{
		c.Emit("found", map[string]int{"n": 1}, nil),
		c.Emit("found", 2, &tool.EmitOptions{ID: "x"}),
		c.Emit("ping", nil, &tool.EmitOptions{Transient: true}),
		c.Progress(tool.Progress{Label: "reading", Percent: &half}),
		c.Progress(tool.Progress{ID: "a", Parent: "b", State: "done", Data: []int{1}}),
		c.Preliminary("draft"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`"eventName":"found","data":{"n":1},"toolCallId":"c1"}`,
		`"eventName":"found","data":2,"id":"x"}`,
		`"eventName":"ping","data":null,"transient":true}`,
		`"id":"c1","label":"reading","state":"running","percent":50}`,
		`"id":"c1/a","parent":"c1/b","state":"done","data":[1]}`,
		`"toolCallId":"c1","toolName":"t","result":"draft","success":true,"preliminary":true}`,
	}
	for i, c := range r.chunks {
		raw, err := chunk.Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(raw), want[i]) {
			t.Errorf("%d: %s", i, raw)
		}
	}
	if err := c.Emit("bad", func() {}, nil); err == nil {
		t.Error("an event that is no JSON passed")
	}
}

func TestUpdateStateFails(t *testing.T) {
	r := recorder{state: json.RawMessage(`{"n":1}`)}
	c := tool.NewContext(t.Context(), tool.Call{}, &r)
	type counter struct {
		N int `json:"n"`
	}
	refused := errors.New("refused")
	if err := tool.UpdateState(c, func(s *counter) error { s.N = 9; return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if err := tool.UpdateState(c, func(*struct{ N string }) error { return nil }); err == nil {
		t.Error("a state of another shape passed")
	}
	if string(r.state) != `{"n":1}` {
		t.Errorf("state %s", r.state)
	}
	if s, err := tool.State[counter](c); err != nil || s.N != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
}
