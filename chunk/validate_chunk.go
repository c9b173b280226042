package chunk

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spool-run/spool/internal/jsonenc"
)

// This file has the checks of the kinds. Each checks the fields that the chunk has
// beside those of its base.

func (v validator) textDelta(c *TextDelta) validator {
	v.optName("partId", c.PartID)
	return v
}

func (v validator) thinking(c *Thinking) validator {
	v.optName("partId", c.PartID)
	v.optJSON("providerMetadata", c.ProviderMetadata)
	return v
}

func (v validator) toolArgStreamStart(c *ToolArgStreamStart) validator {
	v.name("toolCallId", c.ToolCallID)
	v.name("toolName", c.ToolName)
	return v
}

func (v validator) toolArgStreamDelta(c *ToolArgStreamDelta) validator {
	v.name("toolCallId", c.ToolCallID)
	return v
}

func (v validator) toolArgStreamEnd(c *ToolArgStreamEnd) validator {
	v.name("toolCallId", c.ToolCallID)
	v.optName("toolName", c.ToolName)
	v.optJSON("arguments", c.Arguments)
	v.optJSON("providerMetadata", c.ProviderMetadata)
	return v
}

func (v validator) toolStart(c *ToolStart) validator {
	v.name("toolCallId", c.ToolCallID)
	v.name("toolName", c.ToolName)
	v.json("arguments", c.Arguments)
	return v
}

func (v validator) toolEnd(c *ToolEnd) validator {
	v.name("toolCallId", c.ToolCallID)
	v.optName("toolName", c.ToolName)
	v.json("result", c.Result)
	return v
}

func (v validator) toolInputError(c *ToolInputError) validator {
	v.name("toolCallId", c.ToolCallID)
	v.name("toolName", c.ToolName)
	v.optJSON("input", c.Input)
	v.text("error", c.Error)
	return v
}

func (v validator) toolOutputError(c *ToolOutputError) validator {
	v.name("toolCallId", c.ToolCallID)
	v.optName("toolName", c.ToolName)
	v.text("error", c.Error)
	return v
}

func (v validator) subAgentStart(c *SubAgentStart) validator {
	v.subAgent(c.SubAgentType, c.SubSessionID, c.CallID)
	optOneOf(&v, "mode", c.Mode, ChildBlocking, ChildBackground)
	return v
}

func (v validator) subAgentEnd(c *SubAgentEnd) validator {
	v.subAgent(c.SubAgentType, c.SubSessionID, c.CallID)
	v.optJSON("result", c.Result)
	return v
}

func (v *validator) subAgent(agentType, session, call string) {
	v.name("subAgentType", agentType)
	v.id("subSessionId", session)
	v.name("callId", call)
}

func (v validator) custom(c *Custom) validator {
	v.name("eventName", c.EventName)
	v.optName("id", c.ID)
	v.optName("toolCallId", c.ToolCallID)
	v.json("data", c.Data)
	return v
}

func (v validator) progress(c *Progress) validator {
	v.name("id", c.ID)
	v.optName("parent", c.Parent)
	optOneOf(&v, "state", c.State, progressState...)
	v.percent(c.Percent)
	v.optJSON("data", c.Data)
	return v
}

func (v validator) statePatch(c *StatePatch) validator {
	if len(c.Patches) == 0 {
		v.fail("patches", "is missing")
	}
	v.patches(c.Patches)
	v.optName("toolCallId", c.ToolCallID)
	return v
}

func (v validator) citation(c *Citation) validator {
	v.name("sourceId", c.SourceID)
	v.optCount("documentIndex", c.DocumentIndex)
	return v
}

func (v validator) file(c *File) validator {
	v.text("url", c.URL)
	v.text("mediaType", c.MediaType)
	return v
}

func (v validator) usageReport(c *UsageReport) validator {
	v.usage(&c.Usage)
	return v
}

func (v validator) errorChunk(c *ErrorChunk) validator {
	v.text("error", c.Error)
	v.optName("code", c.Code)
	return v
}

func (v validator) output(c *Output) validator {
	v.json("output", c.Output)
	return v
}

func (v validator) toolApprovalRequest(c *ToolApprovalRequest) validator {
	v.id("approvalId", c.ApprovalID)
	v.name("toolCallId", c.ToolCallID)
	v.name("toolName", c.ToolName)
	v.json("input", c.Input)
	return v
}

func (v validator) runStarted(c *RunStarted) validator {
	v.id("runId", c.RunID)
	v.id("turnId", c.TurnID)
	v.id("messageId", c.MessageID)
	v.name("mode", c.Mode)
	v.ids("commands", c.Commands)
	v.optJSON("metadata", c.Metadata)
	return v
}

func (v validator) stepStarted(c *StepStarted) validator {
	v.id("stepId", c.StepID)
	return v
}

func (v validator) answerStarted(c *AnswerStarted) validator {
	v.id("stepId", c.StepID)
	v.text("cursor", c.Cursor)
	if len(c.Cursor) > MaxCursorBytes {
		v.fail("cursor", fmt.Sprintf("is longer than %d bytes", MaxCursorBytes))
	}
	return v
}

func (v validator) assistantMessage(c *AssistantMessage) validator {
	v.id("messageId", c.MessageID)
	v.optID("stepId", c.StepID) // external producers need not have steps
	v.parts("parts", c.Parts)
	optOneOf(&v, "finishReason", c.FinishReason, finishReasons...)
	v.usage(c.Usage)
	return v
}

func (v validator) stepCommitted(c *StepCommitted) validator {
	v.optID("stepId", c.StepID)
	v.optID("checkpointId", c.CheckpointID)
	v.data(c.Data)
	return v
}

func (v validator) stepDiscarded(c *StepDiscarded) validator {
	v.id("stepId", c.StepID)
	v.text("reason", c.Reason)
	return v
}

func (v validator) checkpointCreated(c *CheckpointCreated) validator {
	v.id("checkpointId", c.CheckpointID)
	v.count("stepCount", int64(c.StepCount))
	return v
}

func (v validator) runInterrupted(c *RunInterrupted) validator {
	if c.CheckpointID != nil {
		v.id("checkpointId", *c.CheckpointID)
	}
	return v
}

func (v validator) runPaused(c *RunPaused) validator {
	v.text("reason", c.Reason)
	v.optName("pendingToolName", c.PendingToolName)
	v.optName("pendingToolCallId", c.PendingToolCallID)
	return v
}

func (v validator) runSuspended(c *RunSuspended) validator {
	v.id("runId", c.RunID)
	oneOf(&v, "kind", c.Kind, suspendKinds...)
	for i, id := range c.ToolCallIDs {
		v.name(fmt.Sprintf("toolCallIds[%d]", i), id)
	}
	v.ids("children", c.Children)
	v.count("expiresAt", c.ExpiresAt)
	v.optID("stepId", c.StepID)
	v.optID("checkpointId", c.CheckpointID)
	v.data(c.Data)
	v.optJSON("metadata", c.Metadata)
	return v
}

func (v validator) runResumed(c *RunResumed) validator {
	if c.FromCheckpointID != nil {
		v.id("fromCheckpointId", *c.FromCheckpointID)
	}
	v.count("fromStepCount", int64(c.FromStepCount))
	oneOf(&v, "mode", c.Mode, resumeModes...)
	return v
}

func (v validator) runFinished(c *RunFinished) validator {
	v.id("runId", c.RunID)
	oneOf(&v, "outcome", c.Outcome, outcomes...)
	oneOf(&v, "finishReason", c.FinishReason, finishReasons...)
	v.usage(c.Usage)
	v.optJSON("metadata", c.Metadata)
	return v
}

func (v validator) streamResync(c *StreamResync) validator {
	v.optID("checkpointId", c.CheckpointID)
	v.count("stepCount", int64(c.StepCount))
	v.count("messageCount", int64(c.MessageCount))
	oneOf(&v, "reason", c.Reason, resyncReasons...)
	return v
}

func (v validator) userMessage(c *UserMessage) validator {
	v.id("commandId", c.CommandID)
	v.message("message", &c.Message)
	if c.Message.Role != RoleUser {
		v.fail("message.role", "is not user")
	}
	optOneOf(&v, "whenBusy", c.WhenBusy, whenBusy...)
	return v
}

func (v validator) stopRequested(c *StopRequested) validator {
	v.id("commandId", c.CommandID)
	v.optID("target", c.Target)
	return v
}

func (v validator) interruptRequested(c *InterruptRequested) validator {
	v.id("commandId", c.CommandID)
	v.optID("target", c.Target)
	return v
}

func (v validator) resumeRequested(c *ResumeRequested) validator {
	v.id("commandId", c.CommandID)
	oneOf(&v, "mode", c.Mode, resumeRequests...)
	v.optID("target", c.Target)
	v.optID("checkpointId", c.CheckpointID)
	return v
}

func (v validator) toolApprovalResponse(c *ToolApprovalResponse) validator {
	v.id("commandId", c.CommandID)
	v.id("approvalId", c.ApprovalID)
	return v
}

func (v validator) toolResultSubmitted(c *ToolResultSubmitted) validator {
	v.id("commandId", c.CommandID)
	v.name("toolCallId", c.ToolCallID)
	v.optJSON("result", c.Result)
	if len(c.Result) > maxResultBytes {
		v.fail("result", fmt.Sprintf("is larger than %d bytes", maxResultBytes))
	}
	if len(c.Error) > MaxResultErrorBytes {
		v.fail("error", fmt.Sprintf("is longer than %d bytes", MaxResultErrorBytes))
	}
	return v
}

func (v validator) historyRewound(c *HistoryRewound) validator {
	v.id("commandId", c.CommandID)
	v.optID("afterMessageId", c.AfterMessageID)
	oneOf(&v, "trigger", c.Trigger, triggers...)
	optOneOf(&v, "whenBusy", c.WhenBusy, whenBusy...)
	return v
}

func (v validator) historyReplaced(c *HistoryReplaced) validator {
	v.id("commandId", c.CommandID)
	if c.Messages != nil {
		for i := range *c.Messages {
			v.message(fmt.Sprintf("messages[%d]", i), &(*c.Messages)[i])
		}
	}
	v.optJSON("state", c.State)
	v.count("index", int64(c.Index))
	v.optID("checkpointId", c.CheckpointID)
	return v
}

// reservedTypes have another meaning to readers of the native wire.
var reservedTypes = []string{TypeStreamEnd, "chunk", "end", "fail", "resync"}

func (v *validator) unknown(u *Unknown) {
	switch t, _, _, err := typeOf(u.Raw); {
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
