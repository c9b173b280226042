package chunk

// Limits that hold for every chunk and record.
const (
	// MaxRecordBytes bounds the Data of one record.
	MaxRecordBytes = 256 << 10
	// MaxInlineBytes bounds a JSON value inside a record; larger ones are stored
	// beside it, as blobs.
	MaxInlineBytes = 64 << 10
	// MaxIDBytes bounds session, run, message, command and call ids.
	MaxIDBytes = 256
)

// Status is what a session's log says about its run.
type Status string

const (
	StatusActive Status = "active" // a run is open
	StatusPaused Status = "paused" // a run waits, holding nothing
	StatusEnded  Status = "ended"  // the last run ended; also a log that has no run yet
	StatusFailed Status = "failed" // the last run failed

	// StatusCopying is a branch's while it is written. Until it has another one
	// the session is there for its owner only.
	StatusCopying Status = "copying"
)

// Quiet reports whether no run is open under this status.
func (s Status) Quiet() bool { return s != StatusActive }

// The modes of runs: why they began.
const (
	ModeStart    = "start"    // a message
	ModeExternal = "external" // a producer: nobody here decides where its steps end

	// A session goes on.
	ModeContinue         = "continue"           // an interrupted run, in its turn and message
	ModeApproval         = "approval"           // a paused one, with the answers that it waited for
	ModeClientToolResult = "client_tool_result" // the same, if all of them are outcomes
	ModeWithMessage      = "with_message"       // another message opens a turn
	ModeRetry            = "retry"              // what failed is tried again, from the last checkpoint
	ModeFromCheckpoint   = "from_checkpoint"    // the history is what it was there

	// The run only ends a paused turn.
	ModeStop       = "stop"       // for a stop command
	ModeSuperseded = "superseded" // for another message
)

// The modes of children in subagent_start; "" is a sub-agent, which belongs to
// its call and ends with it.
const (
	ChildBlocking   = "blocking"   // it outlives its call, and whoever talks to it waits
	ChildBackground = "background" // and nobody waits
)
