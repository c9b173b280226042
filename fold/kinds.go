package fold

import "github.com/spool-run/spool/chunk"

// kinds says what the records of each type do to the session, and to the assistant
// message of its turn. What is not here changes neither.
var kinds = map[chunk.Type]kind{
	chunk.TypeTextDelta:          {message: onMessage((*MessageFold).textDelta)},
	chunk.TypeThinking:           {message: onMessage((*MessageFold).thinking)},
	chunk.TypeToolArgStreamStart: {message: onMessage((*MessageFold).toolArgStreamStart)},
	chunk.TypeToolArgStreamDelta: {message: onMessage((*MessageFold).toolArgStreamDelta)},
	chunk.TypeToolArgStreamEnd:   {message: onMessage((*MessageFold).toolArgStreamEnd)},

	chunk.TypeToolStart:           {message: onMessage((*MessageFold).toolStart)},
	chunk.TypeToolEnd:             {onSession((*Fold).toolEnd), onMessage((*MessageFold).toolEnd)},
	chunk.TypeToolInputError:      {message: onMessage((*MessageFold).toolInputError)},
	chunk.TypeToolOutputError:     {message: onMessage((*MessageFold).toolOutputError)},
	chunk.TypeToolApprovalRequest: {message: onMessage((*MessageFold).toolApprovalRequest)},
	chunk.TypeSubAgentStart:       {session: onSession((*Fold).subAgentStart)},
	chunk.TypeSubAgentEnd:         {session: onSession((*Fold).subAgentEnd)},
	chunk.TypeCustom:              {onSession((*Fold).custom), onMessage((*MessageFold).custom)},
	chunk.TypeProgress:            {message: onMessage((*MessageFold).progress)},
	chunk.TypeStatePatch:          {session: onSession((*Fold).statePatch)},
	chunk.TypeCitation:            {message: onMessage((*MessageFold).citation)},
	chunk.TypeFile:                {message: onMessage((*MessageFold).file)},
	chunk.TypeError:               {onSession((*Fold).errorChunk), onMessage((*MessageFold).errorChunk)},
	chunk.TypeOutput:              {message: onMessage((*MessageFold).output)},

	chunk.TypeRunStarted:         {onSession((*Fold).runStarted), onMessage((*MessageFold).runStarted)},
	chunk.TypeStepStarted:        {onSession((*Fold).stepStarted), onMessage((*MessageFold).stepStarted)},
	chunk.TypeAnswerStarted:      {session: onSession((*Fold).answerStarted)},
	chunk.TypeAssistantMessage:   {onSession((*Fold).assistantMessage), onMessage((*MessageFold).assistantMessage)},
	chunk.TypeStepCommitted:      {onSession((*Fold).stepCommitted), onMessage((*MessageFold).stepCommitted)},
	chunk.TypeStepDiscarded:      {onSession((*Fold).stepDiscarded), onMessage((*MessageFold).stepDiscarded)},
	chunk.TypeCheckpointCreated:  {session: onSession((*Fold).checkpointCreated)},
	chunk.TypeRunSuspended:       {onSession((*Fold).runSuspended), onMessage((*MessageFold).runSuspended)},
	chunk.TypeRunFinished:        {onSession((*Fold).runFinished), onMessage((*MessageFold).runFinished)},
	chunk.TypeStreamResync:       {session: onSession((*Fold).streamResync)},
	chunk.TypeExecutorHandedOver: {session: onSession((*Fold).executorHandedOver)},
	chunk.TypeExecutorSuperseded: {onSession((*Fold).executorSuperseded), onMessage((*MessageFold).executorSuperseded)},

	// Commands. What an answer does to the message depends on its verdict, so the
	// session's method sees to that.
	chunk.TypeUserMessage:          {session: onSession((*Fold).userMessage)},
	chunk.TypeStopRequested:        {session: onSession((*Fold).stopRequested)},
	chunk.TypeInterruptRequested:   {session: onSession((*Fold).interruptRequested)},
	chunk.TypeResumeRequested:      {session: onSession((*Fold).resumeRequested)},
	chunk.TypeToolApprovalResponse: {onSession((*Fold).toolApprovalResponse), onMessage((*MessageFold).toolApprovalResponse)},
	chunk.TypeToolResultSubmitted:  {onSession((*Fold).toolResultSubmitted), onMessage((*MessageFold).toolResultSubmitted)},
	chunk.TypeHistoryRewound:       {session: onSession((*Fold).historyRewound)},
	chunk.TypeHistoryReplaced:      {session: onSession((*Fold).historyReplaced)},
}

// kind is a line of the table. A part that is nil does nothing.
type kind struct {
	session func(*Fold, chunk.Record, chunk.Chunk)
	message func(*MessageFold, chunk.Record, chunk.Chunk)
}

func (k kind) toSession(f *Fold, r chunk.Record, c chunk.Chunk) {
	if k.session != nil {
		k.session(f, r, c)
	}
}

func (k kind) toMessage(m *MessageFold, r chunk.Record, c chunk.Chunk) {
	if m != nil && k.message != nil {
		k.message(m, r, c)
	}
}

// onSession takes a method for chunks of one struct. Those that have the type and
// another struct are of a later version, and are passed over.
func onSession[C chunk.Chunk](method func(*Fold, chunk.Record, C)) func(*Fold, chunk.Record, chunk.Chunk) {
	return func(f *Fold, r chunk.Record, c chunk.Chunk) {
		if c, ok := c.(C); ok {
			method(f, r, c)
		}
	}
}

// onMessage is onSession for the message, to which a record is its sequence.
func onMessage[C chunk.Chunk](method func(*MessageFold, uint64, C)) func(*MessageFold, chunk.Record, chunk.Chunk) {
	return func(m *MessageFold, r chunk.Record, c chunk.Chunk) {
		if c, ok := c.(C); ok {
			method(m, r.Seq, c)
		}
	}
}
