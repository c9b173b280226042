package frontend

// Headers of chat requests and responses.
const (
	HeaderSession      = "X-Session-Id"
	HeaderIncarnation  = "X-Stream-Incarnation"
	HeaderWorkflowRun  = "X-Workflow-Run-Id"
	HeaderWorkflowTail = "X-Workflow-Stream-Tail-Index"
)
