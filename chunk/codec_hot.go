package chunk

// The chunks that make up nearly all of a log are written and read without
// reflection, their fields in the order of their structs.

const nilChunk = "the chunk is nil"

func (e *encoder) textDelta(c *TextDelta) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeTextDelta, &c.Base)
	e.str(`,"delta":`, c.Delta)
	e.optStr(`,"partId":`, c.PartID)
}

func (e *encoder) thinking(c *Thinking) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeThinking, &c.Base)
	e.str(`,"content":`, c.Content)
	e.bool(`,"isComplete":`, c.IsComplete)
	e.optStr(`,"partId":`, c.PartID)
	e.optRaw(`,"providerMetadata":`, c.ProviderMetadata)
}

func (e *encoder) toolArgStreamStart(c *ToolArgStreamStart) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeToolArgStreamStart, &c.Base)
	e.str(`,"toolCallId":`, c.ToolCallID)
	e.str(`,"toolName":`, c.ToolName)
	e.optBool(`,"providerExecuted":`, c.ProviderExecuted)
}

func (e *encoder) toolArgStreamDelta(c *ToolArgStreamDelta) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeToolArgStreamDelta, &c.Base)
	e.str(`,"toolCallId":`, c.ToolCallID)
	e.str(`,"delta":`, c.Delta)
}

func (e *encoder) toolArgStreamEnd(c *ToolArgStreamEnd) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeToolArgStreamEnd, &c.Base)
	e.str(`,"toolCallId":`, c.ToolCallID)
	e.optStr(`,"toolName":`, c.ToolName)
	e.optRaw(`,"arguments":`, c.Arguments)
	e.optRaw(`,"providerMetadata":`, c.ProviderMetadata)
}

func (e *encoder) toolStart(c *ToolStart) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeToolStart, &c.Base)
	e.str(`,"toolCallId":`, c.ToolCallID)
	e.str(`,"toolName":`, c.ToolName)
	e.raw(`,"arguments":`, c.Arguments)
	e.optStr(`,"effectId":`, c.EffectID)
	e.optBool(`,"client":`, c.Client)
}

func (e *encoder) toolEnd(c *ToolEnd) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeToolEnd, &c.Base)
	e.str(`,"toolCallId":`, c.ToolCallID)
	e.str(`,"toolName":`, c.ToolName)
	e.raw(`,"result":`, c.Result)
	e.bool(`,"success":`, c.Success)
	e.optStr(`,"error":`, c.Error)
	e.optBool(`,"preliminary":`, c.Preliminary)
	e.optBool(`,"fatal":`, c.Fatal)
}

func (e *encoder) custom(c *Custom) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeCustom, &c.Base)
	e.str(`,"eventName":`, c.EventName)
	e.raw(`,"data":`, c.Data)
	e.optStr(`,"id":`, c.ID)
	e.optBool(`,"transient":`, c.Transient)
	e.optStr(`,"toolCallId":`, c.ToolCallID)
}

func (e *encoder) progress(c *Progress) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeProgress, &c.Base)
	e.str(`,"id":`, c.ID)
	e.optStr(`,"parent":`, c.Parent)
	e.optStr(`,"label":`, c.Label)
	e.optStr(`,"state":`, c.State)
	if c.Percent != nil {
		e.float(`,"percent":`, *c.Percent)
	}
	e.optRaw(`,"data":`, c.Data)
}

func (e *encoder) statePatch(c *StatePatch) {
	if c == nil {
		e.problem = nilChunk
		return
	}
	e.base(TypeStatePatch, &c.Base)
	e.patches(`,"patches":`, c.Patches)
	e.optStr(`,"toolCallId":`, c.ToolCallID)
}

func (d quick) textDelta() *TextDelta {
	c := new(TextDelta)
	d.base(&c.Base)
	c.Delta = d.str(`,"delta":`)
	c.PartID = d.optStr(`,"partId":`)
	if !d.end() {
		return nil
	}
	return c
}

func (d quick) thinking() *Thinking {
	c := new(Thinking)
	d.base(&c.Base)
	c.Content = d.str(`,"content":`)
	c.IsComplete = d.bool(`,"isComplete":`)
	c.PartID = d.optStr(`,"partId":`)
	if !d.end() {
		return nil
	}
	return c
}

func (d quick) toolArgStreamDelta() *ToolArgStreamDelta {
	c := new(ToolArgStreamDelta)
	d.base(&c.Base)
	c.ToolCallID = d.str(`,"toolCallId":`)
	c.Delta = d.str(`,"delta":`)
	if !d.end() {
		return nil
	}
	return c
}
