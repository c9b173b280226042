package chunk

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spool-run/spool/internal/jsonenc"
)

func (v *validator) chunk(c Chunk) {
	if isNilChunk(c) {
		v.fail("chunk", "is nil")
		return
	}
	v.base(c.ChunkBase())
	switch c := c.(type) {
	case *TextDelta:
		v.optName("partId", c.PartID)
	case *Thinking:
		v.optName("partId", c.PartID)
		v.optJSON("providerMetadata", c.ProviderMetadata)
	case *ToolArgStreamStart:
		v.name("toolCallId", c.ToolCallID)
		v.name("toolName", c.ToolName)
	case *ToolArgStreamDelta:
		v.name("toolCallId", c.ToolCallID)
	case *ToolArgStreamEnd:
		v.name("toolCallId", c.ToolCallID)
		v.optName("toolName", c.ToolName)
		v.optJSON("arguments", c.Arguments)
		v.optJSON("providerMetadata", c.ProviderMetadata)
	case *ToolStart:
		v.name("toolCallId", c.ToolCallID)
		v.name("toolName", c.ToolName)
		v.json("arguments", c.Arguments)
	case *ToolEnd:
		v.name("toolCallId", c.ToolCallID)
		v.optName("toolName", c.ToolName)
		v.json("result", c.Result)
	case *ToolInputError:
		v.name("toolCallId", c.ToolCallID)
		v.name("toolName", c.ToolName)
		v.optJSON("input", c.Input)
		v.text("error", c.Error)
	case *ToolOutputError:
		v.name("toolCallId", c.ToolCallID)
		v.optName("toolName", c.ToolName)
		v.text("error", c.Error)
	case *SubAgentStart:
		v.subAgent(c.SubAgentType, c.SubSessionID, c.CallID)
		optOneOf(v, "mode", c.Mode, ChildBlocking, ChildBackground)
	case *SubAgentEnd:
		v.subAgent(c.SubAgentType, c.SubSessionID, c.CallID)
		v.optJSON("result", c.Result)
	case *Custom:
		v.name("eventName", c.EventName)
		v.optName("id", c.ID)
		v.optName("toolCallId", c.ToolCallID)
		v.json("data", c.Data)
	case *Progress:
		v.name("id", c.ID)
		v.optName("parent", c.Parent)
		optOneOf(v, "state", c.State, progressState...)
		v.percent(c.Percent)
		v.optJSON("data", c.Data)
	case *StatePatch:
		if len(c.Patches) == 0 {
			v.fail("patches", "is missing")
		}
		v.patches(c.Patches)
		v.optName("toolCallId", c.ToolCallID)
	case *Citation:
		v.name("sourceId", c.SourceID)
	case *File:
		v.text("url", c.URL)
		v.text("mediaType", c.MediaType)
	case *UsageReport:
		v.usage(&c.Usage)
	case *ErrorChunk:
		v.text("error", c.Error)
		v.optName("code", c.Code)
	case *Output:
		v.json("output", c.Output)
	case *ToolApprovalRequest:
		v.id("approvalId", c.ApprovalID)
		v.name("toolCallId", c.ToolCallID)
		v.name("toolName", c.ToolName)
		v.json("input", c.Input)
	case *Unknown:
		v.unknown(c)
	default:
		v.lifecycle(c)
	}
}

func (v *validator) subAgent(agentType, session, call string) {
	v.name("subAgentType", agentType)
	v.id("subSessionId", session)
	v.name("callId", call)
}

func (v *validator) lifecycle(c Chunk) {
	switch c := c.(type) {
	case *RunStarted:
		v.id("runId", c.RunID)
		v.id("turnId", c.TurnID)
		v.id("messageId", c.MessageID)
		v.name("mode", c.Mode)
		v.ids("commands", c.Commands)
		v.optJSON("metadata", c.Metadata)
	case *StepStarted:
		v.id("stepId", c.StepID)
	case *AnswerStarted:
		v.id("stepId", c.StepID)
		v.text("cursor", c.Cursor)
		if len(c.Cursor) > MaxCursorBytes {
			v.fail("cursor", fmt.Sprintf("is longer than %d bytes", MaxCursorBytes))
		}
	case *AssistantMessage:
		v.id("messageId", c.MessageID)
		v.optID("stepId", c.StepID) // external producers need not have steps
		v.parts("parts", c.Parts)
		optOneOf(v, "finishReason", c.FinishReason, finishReasons...)
		v.usage(c.Usage)
	case *StepCommitted:
		v.optID("stepId", c.StepID)
		v.optID("checkpointId", c.CheckpointID)
		v.data(c.Data)
	case *StepDiscarded:
		v.id("stepId", c.StepID)
		v.text("reason", c.Reason)
	case *CheckpointCreated:
		v.id("checkpointId", c.CheckpointID)
		v.count("stepCount", int64(c.StepCount))
	case *RunInterrupted:
		if c.CheckpointID != nil {
			v.id("checkpointId", *c.CheckpointID)
		}
	case *RunPaused:
		v.text("reason", c.Reason)
		v.optName("pendingToolName", c.PendingToolName)
		v.optName("pendingToolCallId", c.PendingToolCallID)
	case *RunSuspended:
		v.id("runId", c.RunID)
		oneOf(v, "kind", c.Kind, suspendKinds...)
		for i, id := range c.ToolCallIDs {
			v.name(fmt.Sprintf("toolCallIds[%d]", i), id)
		}
		v.ids("children", c.Children)
		v.count("expiresAt", c.ExpiresAt)
		v.optID("stepId", c.StepID)
		v.optID("checkpointId", c.CheckpointID)
		v.data(c.Data)
		v.optJSON("metadata", c.Metadata)
	case *RunResumed:
		if c.FromCheckpointID != nil {
			v.id("fromCheckpointId", *c.FromCheckpointID)
		}
		v.count("fromStepCount", int64(c.FromStepCount))
		oneOf(v, "mode", c.Mode, resumeModes...)
	case *RunFinished:
		v.id("runId", c.RunID)
		oneOf(v, "outcome", c.Outcome, outcomes...)
		oneOf(v, "finishReason", c.FinishReason, finishReasons...)
		v.usage(c.Usage)
		v.optJSON("metadata", c.Metadata)
	case *StreamResync:
		v.optID("checkpointId", c.CheckpointID)
		v.count("stepCount", int64(c.StepCount))
		v.count("messageCount", int64(c.MessageCount))
		oneOf(v, "reason", c.Reason, resyncReasons...)
	case *ExecutorSuperseded:
	default:
		v.command(c)
	}
}

func (v *validator) command(c Chunk) {
	switch c := c.(type) {
	case *UserMessage:
		v.id("commandId", c.CommandID)
		v.message("message", &c.Message)
		if c.Message.Role != RoleUser {
			v.fail("message.role", "is not user")
		}
		optOneOf(v, "whenBusy", c.WhenBusy, whenBusy...)
	case *StopRequested:
		v.id("commandId", c.CommandID)
		v.optID("target", c.Target)
	case *InterruptRequested:
		v.id("commandId", c.CommandID)
		v.optID("target", c.Target)
	case *ResumeRequested:
		v.id("commandId", c.CommandID)
		oneOf(v, "mode", c.Mode, resumeRequests...)
		v.optID("target", c.Target)
		v.optID("checkpointId", c.CheckpointID)
	case *ToolApprovalResponse:
		v.id("commandId", c.CommandID)
		v.id("approvalId", c.ApprovalID)
	case *ToolResultSubmitted:
		v.id("commandId", c.CommandID)
		v.name("toolCallId", c.ToolCallID)
		v.optJSON("result", c.Result)
		if len(c.Result) > MaxResultBytes {
			v.fail("result", fmt.Sprintf("is larger than %d bytes", MaxResultBytes))
		}
		if len(c.Error) > MaxResultErrorBytes {
			v.fail("error", fmt.Sprintf("is longer than %d bytes", MaxResultErrorBytes))
		}
	case *HistoryRewound:
		v.id("commandId", c.CommandID)
		v.optID("afterMessageId", c.AfterMessageID)
		oneOf(v, "trigger", c.Trigger, triggers...)
		optOneOf(v, "whenBusy", c.WhenBusy, whenBusy...)
	case *HistoryReplaced:
		v.id("commandId", c.CommandID)
		if c.Messages != nil {
			for i := range *c.Messages {
				v.message(fmt.Sprintf("messages[%d]", i), &(*c.Messages)[i])
			}
		}
		v.optJSON("state", c.State)
		v.count("index", int64(c.Index))
		v.optID("checkpointId", c.CheckpointID)
	default:
		v.fail("type", fmt.Sprintf("%T is not a chunk of this package", c))
	}
}

// reservedTypes mean something else to readers of the native wire.
var reservedTypes = []string{streamEndType, "chunk", "end", "fail", "resync"}

func (v *validator) unknown(u *Unknown) {
	switch t, _, err := typeOf(u.Raw); {
	case !json.Valid(u.Raw):
		v.fail("chunk", "is not valid JSON")
	case !jsonenc.Shallow(u.Raw):
		v.fail("chunk", tooDeep)
	case err != nil || t != u.Type:
		v.fail("type", "is not the type in the JSON")
	case slices.Contains(reservedTypes, string(u.Type)):
		v.fail("type", fmt.Sprintf("%s is a control message, not a chunk", u.Type))
	}
}
