package chunk

import "strings"

// Category says where a failure comes from. A code's category is in the table of
// [CodeInfo]. For a code that is not in it, it is the part before the first
// underscore.
type Category string

const (
	CategoryProvider Category = "provider" // the model's provider, or the connection to it
	CategoryTool     Category = "tool"     // a tool
	CategoryAgent    Category = "agent"    // the agent's own code: its model client, its hooks, its output
	CategoryLimit    Category = "limit"    // not a failure: the run reached one of its limits
	CategoryExecutor Category = "executor" // the run's owner: it was lost or superseded
	CategoryProducer Category = "producer" // an external producer
	CategoryStore    Category = "store"    // the store
	CategorySession  Category = "session"  // the session's present state does not allow the request
	CategoryCursor   Category = "cursor"   // a position in the log
	CategoryRequest  Category = "request"  // the request
	CategoryServer   Category = "server"   // the server
	CategoryUnknown  Category = "unknown"
)

// CodeInfo is what a code alone determines.
type CodeInfo struct {
	Category  Category
	Status    int  // the HTTP status of an answer that carries it
	Retryable bool // the same request may succeed later; an error can override this
}

// codes has all codes that cross the wire.
var codes = map[string]CodeInfo{
	"provider_rate_limited":    {CategoryProvider, 429, true},
	"provider_overloaded":      {CategoryProvider, 503, true},
	"provider_unavailable":     {CategoryProvider, 502, true},
	"provider_timeout":         {CategoryProvider, 504, true},
	"provider_truncated":       {CategoryProvider, 502, true},
	"provider_invalid_request": {CategoryProvider, 502, false},
	"provider_context_length":  {CategoryProvider, 502, false},
	"provider_authentication":  {CategoryProvider, 502, false},
	"provider_content_filter":  {CategoryProvider, 502, false},
	"provider_protocol":        {CategoryProvider, 502, false},
	"provider_answer_gone":     {CategoryProvider, 502, true},
	"provider_error":           {CategoryProvider, 502, true},

	"tool_fatal":     {CategoryTool, 500, false},
	"agent_failed":   {CategoryAgent, 500, false},
	"hook_failed":    {CategoryAgent, 500, false},
	"output_invalid": {CategoryAgent, 500, true},

	"max_steps":    {CategoryLimit, 200, false},
	"max_tokens":   {CategoryLimit, 200, false},
	"max_answer":   {CategoryLimit, 200, false},
	"step_timeout": {CategoryLimit, 200, true},
	"run_timeout":  {CategoryLimit, 200, false},

	"executor_lost":       {CategoryExecutor, 500, true},
	"executor_superseded": {CategoryExecutor, 403, false},
	"producer_lost":       {CategoryProducer, 500, true},
	"producer_fenced":     {CategoryProducer, 403, false},
	"producer_gap":        {CategoryProducer, 409, false},
	"producer_stopped":    {CategoryProducer, 409, false},
	"chunk_not_allowed":   {CategoryProducer, 422, false},

	"unavailable": {CategoryStore, 503, true},
	"not_stored":  {CategoryStore, 503, true},
	"closed":      {CategoryStore, 503, true},
	"unsupported": {CategoryStore, 501, false},
	"too_large":   {CategoryStore, 413, false},
	"nothing_due": {CategoryStore, 409, true},

	"damaged":        {CategoryStore, 500, false},
	"source_changed": {CategoryStore, 409, true},

	"not_found":           {CategorySession, 404, false},
	"session_exists":      {CategorySession, 409, false},
	"id_conflict":         {CategorySession, 409, false},
	"no_such_message":     {CategorySession, 404, false},
	"no_such_call":        {CategorySession, 404, false},
	"no_such_checkpoint":  {CategorySession, 404, false},
	"nothing_to_resume":   {CategorySession, 409, false},
	"not_interruptible":   {CategorySession, 409, false},
	"busy":                {CategorySession, 409, true},
	"quota_exceeded":      {CategorySession, 409, false},
	"already_answered":    {CategorySession, 409, false},
	"too_late":            {CategorySession, 409, false},
	"not_waiting":         {CategorySession, 409, true},
	"nothing_to_continue": {CategorySession, 409, false},
	"refused":             {CategorySession, 409, false},
	"stream_failed":       {CategorySession, 410, false},

	"cursor_malformed": {CategoryCursor, 400, false},
	"cursor_trimmed":   {CategoryCursor, 409, false},
	"cursor_retracted": {CategoryCursor, 409, false},
	"cursor_ahead":     {CategoryCursor, 409, false},

	"invalid":              {CategoryRequest, 400, false},
	"invalid_id":           {CategoryRequest, 400, false},
	"invalid_session_id":   {CategoryRequest, 400, false},
	"invalid_chunk":        {CategoryRequest, 400, false},
	"malformed_json":       {CategoryRequest, 400, false},
	"no_message":           {CategoryRequest, 400, false},
	"result_invalid":       {CategoryRequest, 422, false},
	"override_not_allowed": {CategoryRequest, 403, false},
	"not_allowed":          {CategoryRequest, 403, false},
	"unauthenticated":      {CategoryRequest, 401, false},
	"cross_origin":         {CategoryRequest, 403, false},
	"host_not_allowed":     {CategoryRequest, 403, false},
	"body_timeout":         {CategoryRequest, 408, true},
	"no_such_route":        {CategoryRequest, 404, false},
	"method_not_allowed":   {CategoryRequest, 405, false},

	"unreachable":      {CategoryServer, 503, true},
	"unknown_outcome":  {CategoryServer, 504, false},
	"draining":         {CategoryServer, 503, true},
	"too_many_readers": {CategoryServer, 503, true},
	"too_many_bodies":  {CategoryServer, 503, true},
	"cut":              {CategoryServer, 503, true},
	"internal":         {CategoryServer, 500, false},
}

// InfoOf returns what a code alone determines. An unknown code, of an application or of
// a later version, gets the category of its prefix and the status 500.
func InfoOf(code string) CodeInfo {
	if info, ok := codes[code]; ok {
		return info
	}
	info := CodeInfo{CategoryUnknown, 500, false}
	prefix, _, _ := strings.Cut(code, "_")
	switch c := Category(prefix); c {
	case CategoryProvider, CategoryTool, CategoryAgent, CategoryLimit, CategoryExecutor, CategoryProducer,
		CategoryStore, CategorySession, CategoryCursor, CategoryRequest, CategoryServer:
		info.Category = c
	}
	return info
}

// RunError is a run's error as a reader finds it in the log. [errors.Is] holds for an
// [*Error] of the same code.
type RunError struct {
	Message   string
	Code      string
	Retryable bool // trying again may help
	RunID     string
}

func (e *RunError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return "spool: the run failed: " + e.Code
}

// Category says where the failure comes from.
func (e *RunError) Category() Category { return InfoOf(e.Code).Category }

// Is reports whether target is an error with the same code.
func (e *RunError) Is(target error) bool {
	switch t := target.(type) {
	case *Error:
		return t.Code == e.Code
	case *RunError:
		return t.Code == e.Code
	}
	return false
}

// ErrorOf returns the error that a chunk reports, or nil. The chunks that report one are
// error chunks, which end nothing, and the run_finished of a failed run.
func ErrorOf(c Chunk) *RunError {
	switch c := c.(type) {
	case *ErrorChunk:
		return &RunError{c.Error, c.Code, c.Recoverable, c.RunID}
	case *RunFinished:
		if c.Outcome == OutcomeFailed {
			return &RunError{c.Error, c.Code, c.Recoverable, c.RunID}
		}
	}
	return nil
}
