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
	StatusPaused Status = "paused" // a run waits, and holds no goroutine or lease
	StatusEnded  Status = "ended"  // the last run ended; also a log that has no run yet
	StatusFailed Status = "failed" // the last run failed
)

// Quiet reports whether no run is open under this status.
func (s Status) Quiet() bool { return s != StatusActive }

// The modes of runs: why they began.
const (
	ModeStart    = "start"    // a message
	ModeExternal = "external" // a producer, which decides itself where its steps end

	// The session goes on.
	ModeContinue         = "continue"           // an interrupted run, in its turn and message
	ModeApproval         = "approval"           // a paused one, with the answers that it waited for
	ModeClientToolResult = "client_tool_result" // the same, if all of them are outcomes
	ModeWithMessage      = "with_message"       // another message opens a turn
	ModeRetry            = "retry"              // what failed is tried again, from the last checkpoint
	ModeFromCheckpoint   = "from_checkpoint"    // the history is what it was at a checkpoint

	// The run only ends a paused turn.
	ModeStop       = "stop"       // for a stop command
	ModeSuperseded = "superseded" // for another message
)

// Why another owner took an open run over: the reasons of executor_superseded.
const (
	// LeaseEnded: the lease expired or was released, or the owner's process ended.
	LeaseEnded = "the lease of the previous owner ended"
	// OwnerForced: the owner did not obey a stop in time, whatever its lease.
	OwnerForced = "the previous owner did not stop in time"
	// ManagerForced: another stream manager writes the run now.
	ManagerForced = "stream_manager"
)

// The modes of children in subagent_start. "" means a sub-agent, which belongs to its
// call and ends with it.
const (
	ChildBlocking   = "blocking"   // it outlives its call, and its callers wait
	ChildBackground = "background" // it outlives its call, and nobody waits
)
