package chunk

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spool-run/spool/internal/jsonenc"
)

// Limits on the fields of chunks. A record as a whole has [MaxRecordBytes].
const (
	// MaxNameBytes bounds tool, event and agent type names.
	MaxNameBytes = 256
	// MaxCursorBytes bounds a model's cursor of an answer.
	MaxCursorBytes = 1 << 10
	// MaxResultErrorBytes bounds the error text of a submitted tool result.
	MaxResultErrorBytes = 8 << 10
	// maxResultBytes bounds the value of a submitted tool result.
	maxResultBytes = 1 << 20
	// MaxDepth bounds how deep JSON values are nested, and also the custom state.
	MaxDepth = jsonenc.MaxDepth
)

const tooDeep = "is nested deeper than 256 levels"

// Validate says whether a chunk may be stored: required fields are there, ids are
// ids, enumerations have one of their values, patches are RFC 6902 and raw fields
// are JSON. Base fields that a writer fills in may be empty. It fails with
// [ErrInvalidChunk], whose message names the field and the problem.
func Validate(c Chunk) error {
	if c == nil {
		return ErrInvalidChunk.Because("the chunk is nil")
	}
	v := validator{}.chunk(c)
	if v.problem == "" {
		return nil
	}
	return ErrInvalidChunk.Because(fmt.Sprintf("%s: %s", c.ChunkType(), v.problem))
}

// validator collects the first problem.
type validator struct{ problem string }

// chunk checks the fields of the base, and then those of the chunk's kind.
func (v validator) chunk(c Chunk) validator {
	if isNil(c) {
		v.fail("chunk", "is nil")
		return v
	}
	v.base(c.ChunkBase())
	if k := kindOf(c); k != nil {
		return k.validate(v, c)
	}
	if u, ok := c.(*Unknown); ok {
		v.unknown(u)
		return v
	}
	v.fail("type", fmt.Sprintf("%T is not a chunk of this package", c))
	return v
}

func (v *validator) fail(field, problem string) {
	if v.problem == "" {
		v.problem = field + ": " + problem
	}
}

// id checks a field that holds one of our own ids.
func (v *validator) id(field, id string) {
	if problem := idProblem(id); problem != "" {
		v.fail(field, problem)
	}
}

func (v *validator) optID(field, id string) {
	if id != "" {
		v.id(field, id)
	}
}

func (v *validator) ids(field string, ids []string) {
	for i, id := range ids {
		v.id(fmt.Sprintf("%s[%d]", field, i), id)
	}
}

// name checks names, and ids that others make, such as a provider's call ids. They may
// hold slashes.
func (v *validator) name(field, s string) {
	switch {
	case s == "":
		v.fail(field, "is missing")
	case len(s) > MaxNameBytes:
		v.fail(field, fmt.Sprintf("is longer than %d bytes", MaxNameBytes))
	case !utf8.ValidString(s):
		v.fail(field, "is not valid UTF-8")
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		v.fail(field, "contains a control character")
	}
}

func (v *validator) optName(field, s string) {
	if s != "" {
		v.name(field, s)
	}
}

func (v *validator) text(field, s string) {
	if s == "" {
		v.fail(field, "is missing")
	}
}

// json checks a raw field. nil is null.
func (v *validator) json(field string, raw json.RawMessage) {
	switch {
	case raw == nil || jsonenc.Valid(raw):
	case json.Valid(raw):
		v.fail(field, tooDeep)
	default:
		v.fail(field, "is not valid JSON")
	}
}

// optJSON checks a raw field that is left out when it is empty.
func (v *validator) optJSON(field string, raw json.RawMessage) {
	if len(raw) > 0 {
		v.json(field, raw)
	}
}

func (v *validator) count(field string, n int64) {
	if n < 0 {
		v.fail(field, "is negative")
	}
}

func (v *validator) optCount(field string, n *int) {
	if n != nil {
		v.count(field, int64(*n))
	}
}

func oneOf[T ~string](v *validator, field string, s T, values ...T) {
	switch {
	case slices.Contains(values, s):
	case s == "":
		v.fail(field, "is missing")
	default:
		v.fail(field, fmt.Sprintf("%q is not one of %s", s, list(values)))
	}
}

func optOneOf[T ~string](v *validator, field string, s T, values ...T) {
	if s != "" {
		oneOf(v, field, s, values...)
	}
}

func list[T ~string](values []T) string {
	var b strings.Builder
	for i, s := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(s))
	}
	return b.String()
}

// The values of the enumerations that have no type of their own.
var (
	finishReasons  = []string{"stop", "length", "content-filter", "tool-calls", "error", "other"}
	outcomes       = []Outcome{OutcomeCompleted, OutcomeStopped, OutcomeSteered, OutcomeLimit, OutcomeFailed}
	whenBusy       = []WhenBusy{BusyReject, BusyQueue, BusyInterrupt, BusySteer}
	suspendKinds   = []string{SuspendedInterrupted, SuspendedApproval, SuspendedClientTool, SuspendedChildren}
	resyncReasons  = []string{"crash_recovery", "model_retry", "rollback", "branch"}
	resumeModes    = []string{ModeContinue, ModeWithMessage, "with_confirmation", ModeRetry, "branch", ModeFromCheckpoint, ModeClientToolResult, ModeApproval}
	resumeRequests = []string{ModeContinue, ModeWithMessage, ModeRetry, ModeFromCheckpoint}
	progressState  = []string{"pending", "running", "done", "failed"}
	triggers       = []string{"edit", "regenerate"}
	patchOps       = []string{"add", "remove", "replace", "move", "copy", "test"}
	roles          = []Role{RoleSystem, RoleUser, RoleAssistant}
	partTypes      = []PartType{PartStep, PartText, PartReasoning, PartTool, PartData, PartSource, PartFile}
	toolStates     = []ToolState{ToolStreaming, ToolPending, ToolExecuting, ToolCompleted, ToolFailed, ToolDenied}
)

func (v *validator) base(b *Base) {
	v.optID("agentId", b.AgentID)
	v.optName("agentType", b.AgentType)
	v.optID("runId", b.RunID)
	v.count("timestamp", b.Timestamp)
	v.count("step", int64(b.Step))
}

func (v *validator) usage(u *Usage) {
	if u == nil {
		return
	}
	v.count("usage.inputTokens", u.InputTokens)
	v.count("usage.outputTokens", u.OutputTokens)
	v.count("usage.reasoningTokens", u.ReasoningTokens)
	v.count("usage.cachedInputTokens", u.CachedInputTokens)
}

func (v *validator) percent(p *float64) {
	if p != nil && (math.IsNaN(*p) || *p < 0 || *p > 100) {
		v.fail("percent", "is not between 0 and 100")
	}
}

// patches checks operations of RFC 6902.
func (v *validator) patches(list []PatchOperation) {
	for i := range list {
		p, at := &list[i], fmt.Sprintf("patches[%d].", i)
		oneOf(v, at+"op", p.Op, patchOps...)
		v.pointer(at+"path", p.Path)
		switch p.Op {
		case "add", "replace", "test":
			if len(p.Value) == 0 {
				v.fail(at+"value", "is missing")
			}
			v.json(at+"value", p.Value)
		case "move", "copy":
			v.pointer(at+"from", p.From)
			if p.Op == "move" && strings.HasPrefix(p.Path, p.From+"/") {
				v.fail(at+"path", "lies inside what is moved")
			}
		}
	}
}

// pointer checks a JSON Pointer (RFC 6901).
func (v *validator) pointer(field, s string) {
	if s != "" && s[0] != '/' {
		v.fail(field, fmt.Sprintf("%q is not a JSON Pointer: it must be empty or start with a slash", s))
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			v.fail(field, fmt.Sprintf("%q is not a JSON Pointer: ~ must be followed by 0 or 1", s))
		}
	}
	if !utf8.ValidString(s) {
		v.fail(field, "is not valid UTF-8")
	}
}

func (v *validator) message(field string, m *Message) {
	v.id(field+".id", m.ID)
	oneOf(v, field+".role", m.Role, roles...)
	v.optJSON(field+".metadata", m.Metadata)
	v.parts(field+".parts", m.Parts)
}

func (v *validator) parts(field string, parts []Part) {
	for i := range parts {
		p, at := &parts[i], fmt.Sprintf("%s[%d].", field, i)
		oneOf(v, at+"type", p.Type, partTypes...)
		v.optJSON(at+"data", p.Data)
		v.optJSON(at+"providerMetadata", p.ProviderMetadata)
		switch p.Type {
		case PartTool:
			v.toolPart(at+"tool", p.Tool)
		case PartData:
			v.name(at+"name", p.Name)
		case PartFile:
			if len(p.Large) == 0 {
				v.text(at+"url", p.URL)
			}
			v.text(at+"mediaType", p.MediaType)
		case PartSource:
			v.optCount(at+"documentIndex", p.DocumentIndex)
		}
	}
}

func (v *validator) toolPart(field string, t *ToolPart) {
	if t == nil {
		v.fail(field, "is missing")
		return
	}
	v.name(field+".callId", t.CallID)
	v.name(field+".name", t.Name)
	optOneOf(v, field+".state", t.State, toolStates...)
	v.optJSON(field+".input", t.Input)
	v.optJSON(field+".output", t.Output)
	if t.Approval != nil {
		v.id(field+".approval.id", t.Approval.ID)
	}
}

// data checks the data parts of a commit.
func (v *validator) data(parts []Part) {
	for i := range parts {
		if parts[i].Type != PartData {
			v.fail(fmt.Sprintf("data[%d].type", i), "is not data")
		}
	}
	v.parts("data", parts)
}

func isNil(c Chunk) bool {
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
