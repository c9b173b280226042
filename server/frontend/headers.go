package frontend

// Headers of chat requests and responses.
const (
	HeaderSession      = "X-Session-Id"
	HeaderIncarnation  = "X-Stream-Incarnation"
	HeaderError        = "X-Spool-Error" // the code of an error that is answered as text
	HeaderWorkflowRun  = "X-Workflow-Run-Id"
	HeaderWorkflowTail = "X-Workflow-Stream-Tail-Index"
)
