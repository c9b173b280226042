package frontend

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/server/chat"
	"github.com/spool-run/spool/wire"
	"github.com/spool-run/spool/wire/aisdk"
)

// ParseBody reads a chat POST of an AI SDK client, or of a plain caller: see
// [aisdk.ParseBody].
func ParseBody(data []byte) (*wire.Body, error) { return aisdk.ParseBody(data) }

// ParseDecision reads the body of a decision: {approved, reason}.
func ParseDecision(approvalID string, data []byte) (wire.Answer, error) {
	var body struct {
		Approved *bool  `json:"approved"`
		Reason   string `json:"reason"`
	}
	if err := wire.DecodeBody(data, &body); err != nil {
		return wire.Answer{}, err
	}
	if body.Approved == nil {
		return wire.Answer{}, wire.ErrMalformed.Because("approved must be true or false")
	}
	return wire.Answer{ApprovalID: approvalID, Approved: *body.Approved, Reason: body.Reason}, nil
}

// ParseResult reads the body of a call's result: {output} or {error}; result is another
// name for output.
func ParseResult(callID string, data []byte) (wire.Answer, error) {
	var body struct {
		Output json.RawMessage `json:"output"`
		Result json.RawMessage `json:"result"`
		Error  string          `json:"error"`
	}
	if err := wire.DecodeBody(data, &body); err != nil {
		return wire.Answer{}, err
	}
	a := wire.Answer{CallID: callID, Output: body.Output, Error: body.Error}
	if a.Output == nil {
		a.Output = body.Result
	}
	switch {
	case a.Output == nil && a.Error == "":
		return wire.Answer{}, wire.ErrMalformed.Because("the body has neither output nor error")
	case a.Output != nil && a.Error != "":
		return wire.Answer{}, wire.ErrMalformed.Because("the body has both output and error")
	}
	return a, nil
}

// ResumeMode reads the mode of a resume's body.
func ResumeMode(data []byte) (string, error) {
	var body struct {
		Mode string `json:"mode"`
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return "", nil
	}
	err := wire.DecodeBody(data, &body)
	return body.Mode, err
}

// ParseBranch reads the body of a branch: {checkpointId, sessionId, commandId,
// message}, of which only checkpointId is required.
func ParseBranch(data []byte) (chat.BranchOptions, error) {
	var body struct {
		CheckpointID string          `json:"checkpointId"`
		SessionID    string          `json:"sessionId"`
		CommandID    string          `json:"commandId"`
		Message      json.RawMessage `json:"message"`
	}
	if err := wire.DecodeBody(data, &body); err != nil {
		return chat.BranchOptions{}, err
	}
	o := chat.BranchOptions{CheckpointID: body.CheckpointID, Session: body.SessionID, CommandID: body.CommandID}
	if o.CheckpointID == "" {
		return chat.BranchOptions{}, wire.ErrMalformed.Because("a branch needs a checkpointId")
	}
	if o.CommandID != "" {
		if err := chunk.CheckID(o.CommandID); err != nil {
			return chat.BranchOptions{}, err
		}
	}
	if !isNull(body.Message) {
		m, err := parseMessage(body.Message)
		if err != nil {
			return chat.BranchOptions{}, err
		}
		if m.Role != chunk.RoleUser {
			return chat.BranchOptions{}, wire.ErrMalformed.Because("the message's role must be user")
		}
		o.Message = m
	}
	return o, nil
}

// ParseOrder reads the order of a listing: "" and asc mean oldest first, desc means
// newest first.
func ParseOrder(order string) (newest bool, err error) {
	switch strings.ToLower(order) {
	case "", "asc":
		return false, nil
	case "desc":
		return true, nil
	}
	return false, chunk.ErrInvalid.Because("order must be asc or desc")
}

// ParseResume reads a resume's body, which may be empty: {mode, runId,
// checkpointId, message, commandId}. Errors: [wire.ErrMalformed].
func ParseResume(data []byte) (chat.ResumeOptions, error) {
	var raw struct {
		Mode         string          `json:"mode"`
		RunID        string          `json:"runId"`
		CheckpointID string          `json:"checkpointId"`
		Message      json.RawMessage `json:"message"`
		CommandID    string          `json:"commandId"`
	}
	if len(bytes.TrimSpace(data)) > 0 {
		if err := wire.DecodeBody(data, &raw); err != nil {
			return chat.ResumeOptions{}, err
		}
	}
	o := chat.ResumeOptions{Mode: raw.Mode, RunID: raw.RunID, CheckpointID: raw.CheckpointID, CommandID: raw.CommandID}
	if !isNull(raw.Message) {
		m, err := parseMessage(raw.Message)
		if err != nil {
			return chat.ResumeOptions{}, err
		}
		o.Message = m
	}
	return o, o.Check()
}

// ParseStop reads a stop's body, which may be empty.
func ParseStop(data []byte) (chat.StopOptions, error) {
	var o chat.StopOptions
	if len(bytes.TrimSpace(data)) == 0 {
		return o, nil
	}
	err := wire.DecodeBody(data, &o)
	return o, err
}

// parseMessage reads a user's message: a UI message, {role, content}, or a bare
// string.
func parseMessage(data json.RawMessage) (*chunk.Message, error) {
	m, _, err := aisdk.ParseMessage(data, chunk.RoleUser)
	return &m, err
}

func isNull(data json.RawMessage) bool {
	return len(data) == 0 || string(data) == "null"
}

// ParseSubAgents reads how sub-agents are to be shown: see [aisdk.ParseSubAgents]. ""
// means the server's default.
func ParseSubAgents(how string) (aisdk.SubAgents, error) {
	if how == "" {
		return "", nil
	}
	return aisdk.ParseSubAgents(how)
}
