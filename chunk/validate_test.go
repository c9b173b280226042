package chunk

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// sampleChunks holds a valid chunk of every type, with every field set.
func sampleChunks() []Chunk {
	b := Base{AgentID: "s", AgentType: "assistant", Timestamp: 1763730000000, Step: 1, RunID: "run-1"}
	raw := json.RawMessage(`{"a":[1,"x"]}`)
	usage := Usage{InputTokens: 1, OutputTokens: 2, ReasoningTokens: 3, CachedInputTokens: 4}
	parts := []Part{
		{Type: PartStep, ID: "step-1"},
		{Type: PartReasoning, First: 1, Text: "hm", ProviderMetadata: raw},
		{Type: PartText, First: 2, Text: "hi"},
		{Type: PartTool, First: 3, Tool: &ToolPart{CallID: "c", Name: "t", State: ToolCompleted, InputText: "{}", Input: raw, Output: raw, Error: "e", InputInvalid: true, Preliminary: true, ProviderExecuted: true, EffectID: "e1", Approval: &Approval{ID: "ap", Approved: new(true), Reason: "ok"}}},
		{Type: PartSource, ID: "src", URL: "https://example.com", Title: "T", MediaType: "text/html", Filename: "f"},
		{Type: PartFile, URL: "data:,x", MediaType: "text/plain", Filename: "f"},
	}
	data := []Part{{Type: PartData, First: 4, Name: "progress", ID: "p", Data: raw}}
	user := Message{ID: "m1", Role: RoleUser, Parts: []Part{{Type: PartText, Text: "hello"}}, TurnID: "cmd-1", Time: 1, Metadata: raw}
	return []Chunk{
		&TextDelta{b, "hi", "t1"},
		&Thinking{b, "hm", true, "r1", raw},
		&ToolArgStreamStart{b, "c", "t", true},
		&ToolArgStreamDelta{b, "c", "{}"},
		&ToolArgStreamEnd{b, "c", "t", raw, raw},
		&ToolStart{b, "c", "t", raw, "e1", true},
		&ToolEnd{b, "c", "t", raw, true, "e", true, true},
		&ToolInputError{b, "c", "t", raw, "bad"},
		&ToolOutputError{b, "c", "t", "bad"},
		&SubAgentStart{b, "helper", "s.1", "c", "background"},
		&SubAgentEnd{b, "helper", "s.1", "c", raw, "e"},
		&Custom{b, "note", raw, "n1", true, "c"},
		&Progress{b, "p", "q", "label", "running", new(50.0), raw},
		&StatePatch{b, []PatchOperation{{"add", "/a/-", "", json.RawMessage(`1`)}, {"move", "/b", "/a~1b", nil}, {"remove", "", "", nil}}, "c"},
		&Citation{b, "src", "https://example.com", "T", "text/html", "f", "quoted", new(1)},
		&File{b, "data:,x", "text/plain", "f", raw},
		&UsageReport{b, usage},
		&ErrorChunk{b, "boom", "code", true, true},
		&Output{b, raw},
		&RunStarted{b, "cmd-1", "m2", "start", []string{"cmd-1"}, raw},
		&StepStarted{b, "step-1"},
		&AnswerStarted{b, "step-1", "resp_1:0"},
		&AssistantMessage{b, "m2", "step-1", parts, "stop", &usage, true, true, true},
		&StepCommitted{b, "step-1", "cp-1", data, true, true},
		&StepDiscarded{b, "step-1", "crash_recovery"},
		&CheckpointCreated{b, "cp-1", 1},
		&RunInterrupted{b, new("cp-1"), "user"},
		&RunPaused{b, "approval", "t", "c"},
		&RunSuspended{b, "awaiting_approval", []string{"c"}, []string{"s.1"}, "step-1", "cp-1", 5, data, raw},
		&RunResumed{b, new("cp-1"), 1, "continue"},
		&RunFinished{b, OutcomeFailed, "error", "boom", "code", true, &usage, raw},
		&StreamResync{b, "cp-1", 1, 2, 3, "rollback", "t", "cmd-0"},
		&ExecutorHandedOver{b, 1},
		&ExecutorSuperseded{b, "claimed"},
		&ToolApprovalRequest{b, "ap", "c", "t", raw},
		&UserMessage{b, "cmd-1", user, BusyQueue},
		&StopRequested{b, "cmd-2", "run-1", "enough"},
		&ToolApprovalResponse{b, "cmd-3", "ap", true, "ok"},
		&ToolResultSubmitted{b, "cmd-4", "c", raw, "e"},
		&HistoryRewound{b, "cmd-5", "m0", "edit", BusyInterrupt},
		&HistoryReplaced{b, "cmd-6", &[]Message{user}, raw, true, 1, true, "cp-1"},
		&InterruptRequested{b, "cmd-7", "run-1", "wait"},
		&ResumeRequested{b, "cmd-8", "from_checkpoint", "run-1", "cp-1", true, true},
	}
}

func TestValidSamples(t *testing.T) {
	t.Parallel()
	seen := map[Type]bool{}
	for _, c := range sampleChunks() {
		seen[c.ChunkType()] = true
		if err := Validate(c); err != nil {
			t.Errorf("ValidateChunk(%T) = %v", c, err)
		}
		data, err := Append(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse(data); err != nil || !reflect.DeepEqual(back, c) {
			t.Errorf("ParseChunk(%s) = %#v, %v", data, back, err)
		}
		s := reflect.ValueOf(c).Elem()
		for i := range s.NumField() {
			if s.Field(i).IsZero() {
				t.Errorf("sample of %T leaves %s zero", c, s.Type().Field(i).Name)
			}
		}
	}
	for _, typ := range Types() {
		if !seen[typ] {
			t.Errorf("no sample of %s", typ)
		}
	}
}

func TestValidateChunkRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxIDBytes+1)
	bad := json.RawMessage(`{`)
	patch := func(p PatchOperation) Chunk { return &StatePatch{Patches: []PatchOperation{p}} }
	one := json.RawMessage(`1`)
	run := Base{RunID: "r"}
	tests := []struct {
		c    Chunk
		says string
	}{
		{nil, "nil"},
		{(*TextDelta)(nil), "nil"},
		{&TextDelta{Base: Base{AgentID: "a/b"}}, "agentId: contains a slash"},
		{&TextDelta{Base: Base{RunID: long}}, "runId: is longer than 256 bytes"},
		{&TextDelta{Base: Base{Step: -1}}, "step: is negative"},
		{&TextDelta{Base: Base{Timestamp: -1}}, "timestamp: is negative"},
		{&TextDelta{Base: Base{AgentType: "a\n"}}, "agentType: contains a control character"},
		{&ToolStart{ToolName: "t"}, "toolCallId: is missing"},
		{&ToolStart{ToolCallID: "c"}, "toolName: is missing"},
		{&ToolStart{ToolCallID: "c", ToolName: "t\xff"}, "toolName: is not valid UTF-8"},
		{&ToolStart{ToolCallID: "c", ToolName: "t", Arguments: bad}, "arguments: is not valid JSON"},
		{&ToolEnd{ToolCallID: "c", Result: json.RawMessage{}}, "result: is not valid JSON"},
		{&ToolInputError{ToolCallID: "c", ToolName: "t"}, "error: is missing"},
		{&SubAgentStart{SubAgentType: "t", SubSessionID: "a/b", CallID: "c"}, "subSessionId: contains a slash"},
		{&Custom{}, "eventName: is missing"},
		{&Progress{ID: "p", State: "odd"}, `state: "odd" is not one of pending, running, done, failed`},
		{&Progress{ID: "p", Percent: new(101.0)}, "percent: is not between 0 and 100"},
		{&StatePatch{}, "patches: is missing"},
		{patch(PatchOperation{Op: "put", Path: "/a"}), `patches[0].op: "put" is not one of`},
		{patch(PatchOperation{Op: "add", Path: "/a"}), "patches[0].value: is missing"},
		{patch(PatchOperation{Op: "add", Path: "a", Value: one}), "patches[0].path: \"a\" is not a JSON Pointer"},
		{patch(PatchOperation{Op: "remove", Path: "/a~2"}), "~ must be followed by 0 or 1"},
		{patch(PatchOperation{Op: "remove", Path: "/a~"}), "~ must be followed by 0 or 1"},
		{patch(PatchOperation{Op: "copy", Path: "/a", From: "b"}), "patches[0].from"},
		{patch(PatchOperation{Op: "move", Path: "/a/b", From: "/a"}), "lies inside what is moved"},
		{&ErrorChunk{}, "error: is missing"},
		{&File{URL: "u"}, "mediaType: is missing"},
		{&UsageReport{Usage: Usage{InputTokens: -1}}, "usage.inputTokens: is negative"},
		{&RunStarted{TurnID: "t", MessageID: "m", Mode: "start"}, "runId: is missing"},
		{&RunStarted{Base: run, MessageID: "m", Mode: "start"}, "turnId: is missing"},
		{&RunStarted{Base: run, TurnID: "t", MessageID: "m", Mode: "start", Commands: []string{"c", ""}}, "commands[1]: is missing"},
		{&RunFinished{Base: run, Outcome: "done", FinishReason: "stop"}, `outcome: "done" is not one of`},
		{&RunFinished{Base: run, Outcome: OutcomeCompleted, FinishReason: "tool_calls"}, "finishReason:"},
		{&RunSuspended{Base: run, Kind: "sleeping"}, "kind:"},
		{&RunSuspended{Base: run, Kind: "interrupted", Data: []Part{{Type: PartText}}}, "data[0].type: is not data"},
		{&RunResumed{Mode: "x"}, "mode:"},
		{&StreamResync{Reason: "x"}, "reason:"},
		{&StreamResync{}, "reason: is missing"},
		{&AssistantMessage{MessageID: "m", StepID: "s", Parts: []Part{{Type: "video"}}}, `parts[0].type: "video"`},
		{&AssistantMessage{MessageID: "m", StepID: "s", Parts: []Part{{Type: PartTool}}}, "parts[0].tool: is missing"},
		{&AssistantMessage{MessageID: "m", StepID: "s", Parts: []Part{{Type: PartTool, Tool: &ToolPart{CallID: "c", Name: "t", State: "odd"}}}}, "parts[0].tool.state"},
		{&UserMessage{CommandID: "c", Message: Message{ID: "m", Role: RoleAssistant}}, "message.role: is not user"},
		{&UserMessage{CommandID: "c", Message: Message{ID: "m", Role: RoleUser}, WhenBusy: "wait"}, "whenBusy:"},
		{&UserMessage{Message: Message{ID: "m", Role: RoleUser}}, "commandId: is missing"},
		{&ToolResultSubmitted{CommandID: "c", ToolCallID: "t", Error: strings.Repeat("x", MaxResultErrorBytes+1)}, "error: is longer"},
		{&ToolResultSubmitted{CommandID: "c", ToolCallID: "t", Result: json.RawMessage(`"` + strings.Repeat("x", maxResultBytes) + `"`)}, "result: is larger"},
		{&HistoryRewound{CommandID: "c", Trigger: "undo"}, "trigger:"},
		{&HistoryReplaced{CommandID: "c", Messages: &[]Message{{ID: "m", Role: "tool"}}}, "messages[0].role"},
		{&Unknown{Type: "x", Raw: bad}, "not valid JSON"},
		{&Unknown{Type: "x", Raw: json.RawMessage(`{"type":"y"}`)}, "type: is not the type in the JSON"},
		{&Unknown{Type: "stream_end", Raw: json.RawMessage(`{"type":"stream_end"}`)}, "control message"},
	}
	for _, tt := range tests {
		err := Validate(tt.c)
		if !errors.Is(err, ErrInvalidChunk) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("ValidateChunk(%#v) = %v, want one that says %q", tt.c, err, tt.says)
		}
	}
	for _, c := range []Chunk{
		&TextDelta{}, &ToolEnd{ToolCallID: "call/with+slash=="}, &ToolStart{ToolCallID: "c", ToolName: "t"},
		patch(PatchOperation{Op: "replace", Value: one}), patch(PatchOperation{Op: "move", Path: "/ab", From: "/a"}),
		&Unknown{Type: "later", Raw: json.RawMessage(`{"type":"later"}`)},
	} {
		if err := Validate(c); err != nil {
			t.Errorf("ValidateChunk(%#v) = %v", c, err)
		}
	}
}

func TestParseChunkRefuses(t *testing.T) {
	t.Parallel()
	for in, says := range map[string]string{
		`{"type":"text_delta"`:                         "not valid JSON",
		`[]`:                                           "not a JSON object",
		`{"delta":"x"}`:                                "type: is missing",
		`{"type":7}`:                                   "string type",
		`{"type":"text_dleta","delta":"x"}`:            `type: "text_dleta" is not known`,
		`{"type":"text_delta"}`:                        "text_delta: delta: is missing",
		`{"type":"text_delta","delta":null}`:           "text_delta: delta: is missing",
		`{"type":"text_delta","delta":5}`:              "text_delta: delta: is a number, not a string",
		`{"type":"text_delta","delta":"x","step":"1"}`: "text_delta: step: is a string, not a number",
		`{"type":"tool_end","toolCallId":"c","success":"yes"}`:         "tool_end: success: is a string, not a boolean",
		`{"type":"tool_end","success":true}`:                           "tool_end: toolCallId: is missing",
		`{"type":"tool_start","toolCallId":[],"toolName":"t"}`:         "tool_start: toolCallId: is an array, not a string",
		`{"type":"state_patch","patches":{}}`:                          "state_patch: patches: is an object, not an array",
		`{"type":"user_message","commandId":"c","message":"hello"}`:    "user_message: message: is a string, not an object",
		`{"type":"state_patch","patches":[{"op":"add","path":"/a"}]}`:  "patches[0].value: is missing",
		`{"type":"answer_started","stepId":"s"}`:                       "cursor: is missing",
		`{"type":"step_started","stepId":"s","agentId":"a/b"}`:         "agentId: contains a slash",
		`{"type":"stream_resync","reason":"rollback","stepCount":1}`:   "checkpointId: is missing",
		`{"type":"stream_end","streamId":"s","timestamp":1}`:           `type: "stream_end" is not known`,
		`{"type":"text_delta","delta":"x","timestamp":1e999}`:          "timestamp: is a number 1e999, not a number of its range",
		`{"type":"custom","eventName":"","data":1}`:                    "custom: eventName: is missing",
		`{"type":"tool_arg_stream_delta","toolCallId":"c","delta":[]}`: "delta: is an array, not a string",
	} {
		c, err := Parse([]byte(in))
		if c != nil || !errors.Is(err, ErrInvalidChunk) || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseChunk(%s) = %v, %v; want one that says %q", in, c, err, says)
		}
	}
	for _, in := range []string{
		`{"type":"text_delta","content":"x"}`, `{"type":"tool_end","toolCallId":"c","result":1}`, `{"type":"thinking","content":"x"}`,
		`{"type":"custom","eventName":"e"}`, `{"type":"run_interrupted","checkpointId":null}`, `{"type":"text_delta","delta":"","_sequence":4}`,
	} {
		if _, err := Parse([]byte(in)); err != nil {
			t.Errorf("ParseChunk(%s) = %v", in, err)
		}
	}
}

func TestSafeParse(t *testing.T) {
	t.Parallel()
	ok := SafeParse([]byte(`{"type":"text_delta","delta":"x"}`))
	if text, is := As[*TextDelta](ok.Data); !ok.Success || ok.Error != nil || !is || text.Delta != "x" {
		t.Errorf("SafeParseChunk = %+v", ok)
	}
	if _, is := As[*ToolEnd](ok.Data); is {
		t.Error("As[*ToolEnd] of a text_delta")
	}
	if !Is(ok.Data, TypeToolEnd, TypeTextDelta) || Is(ok.Data, TypeToolEnd) || Is(nil, TypeTextDelta) {
		t.Error("Is is wrong about a text_delta")
	}
	if r := SafeParse([]byte(`{}`)); r.Success || r.Data != nil || r.Error == nil || r.Error.Code != "invalid_chunk" {
		t.Errorf("SafeParseChunk({}) = %+v", r)
	}

	end := StreamEnd{StreamID: "s", Timestamp: 5, FinalOutput: json.RawMessage(`{"a":1}`)}
	data, err := json.Marshal(end)
	if err != nil || string(data) != `{"type":"stream_end","streamId":"s","timestamp":5,"finalOutput":{"a":1}}` {
		t.Fatalf("json.Marshal(StreamEnd) = %s, %v", data, err)
	}
	m := SafeParseMessage(data)
	if !m.Success || !m.Data.IsEnd() || !reflect.DeepEqual(*m.Data.End, end) {
		t.Errorf("SafeParseMessage(%s) = %+v", data, m)
	}
	if m := SafeParseMessage([]byte(`{"type":"text_delta","delta":"x"}`)); !m.Success || m.Data.IsEnd() || m.Data.Chunk == nil {
		t.Errorf("SafeParseMessage of a chunk = %+v", m)
	}
	for in, says := range map[string]string{
		`{"type":"stream_end"}`:                                  "stream_end: streamId: is missing",
		`{"type":"stream_end","streamId":"s"}`:                   "stream_end: timestamp: is missing",
		`{"type":"stream_end","streamId":"a/b","timestamp":1}`:   "streamId: contains a slash",
		`{"type":"stream_end","streamId":5,"timestamp":1}`:       "streamId: is a number, not a string",
		`{"type":"stream_end","streamId":"s","timestamp":1`:      "not valid JSON",
		`{"type":"other"}`:                                       "not known",
		`{"type":"stream_end","streamId":"s","timestamp":"now"}`: "timestamp: is a string",
	} {
		if m := SafeParseMessage([]byte(in)); m.Success || m.Error == nil || !strings.Contains(m.Error.Error(), says) {
			t.Errorf("SafeParseMessage(%s) = %+v, want an error that says %q", in, m, says)
		}
	}
}
