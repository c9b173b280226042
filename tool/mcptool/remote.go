package mcptool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/tool"
)

// remote is one tool of a server.
type remote struct {
	server *Server
	name   string // the server's for it
	spec   tool.Spec
	schema *tool.Schema // nil: arguments are the server's to judge
}

var (
	_ tool.Tool    = (*remote)(nil)
	_ tool.Checker = (*remote)(nil)
)

// wrap makes tools of a server's list, under names that providers take.
func (s *Server) wrap(listed []*mcp.Tool) []tool.Tool {
	tools := make([]tool.Tool, 0, len(listed))
	taken := map[string]bool{}
	for _, t := range listed {
		if s.o.Include != nil && !s.o.Include(t) {
			continue
		}
		name := toolName(s.o.Prefix+t.Name, taken)
		if taken[name] {
			continue // the same tool twice
		}
		taken[name] = true
		r := &remote{server: s, name: t.Name, spec: tool.Spec{
			Name:        name,
			Description: describe(t),
			Input:       schemaOf(t),
			Timeout:     s.o.Timeout,
		}}
		hints := t.Annotations
		if hints != nil && (hints.ReadOnlyHint || hints.IdempotentHint) {
			r.spec.Recovery = tool.RecoverRetry
		}
		if s.o.Approval.asks(hints) {
			r.spec.NeedsApproval = func(json.RawMessage) bool { return true }
		}
		if schema, err := tool.ParseSchema(r.spec.Input); err == nil {
			r.schema = schema
		} else {
			s.log.Debug("the arguments of an MCP server's tool are not checked here", "tool", name, "err", err)
		}
		tools = append(tools, r)
	}
	return tools
}

func (a Approval) asks(hints *mcp.ToolAnnotations) bool {
	reads := hints != nil && hints.ReadOnlyHint
	switch a {
	case ApproveAll:
		return true
	case ApproveWrites:
		return !reads
	case ApproveDestructive:
		return !reads && hints != nil && hints.DestructiveHint != nil && *hints.DestructiveHint
	}
	return false
}

const maxName = 64

// toolName makes a name of letters, digits, - and _, at most 64 of them. Where
// that would make two tools one, or cuts the name, it ends in a hash of what it
// was.
func toolName(name string, taken map[string]bool) string {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	if clean != "" && len(clean) <= maxName && !taken[clean] {
		return clean
	}
	sum := sha256.Sum256([]byte(name))
	hash := "_" + hex.EncodeToString(sum[:4])
	return clean[:min(len(clean), maxName-len(hash))] + hash
}

func describe(t *mcp.Tool) string {
	if t.Description != "" {
		return t.Description
	}
	if t.Title == "" && t.Annotations != nil {
		return t.Annotations.Title
	}
	return t.Title
}

func schemaOf(t *mcp.Tool) json.RawMessage {
	if t.InputSchema == nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	raw, err := json.Marshal(t.InputSchema)
	if err != nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return raw
}

func (r *remote) Spec() tool.Spec { return r.spec }

// Check implements [tool.Checker].
func (r *remote) Check(input json.RawMessage) error {
	if r.schema == nil {
		return nil
	}
	return r.schema.Validate(input)
}

// effectKey is where a call's effect id stands in a request's _meta.
const effectKey = "spool.run/effectId"

// Call implements [tool.Tool].
func (r *remote) Call(ctx tool.Context, input json.RawMessage) (json.RawMessage, error) {
	cs, err := r.server.connected(ctx)
	if err != nil {
		return nil, err
	}
	res, err := r.call(ctx, cs, input)
	if errors.Is(err, mcp.ErrSessionMissing) { // it has restarted since, and has done nothing
		r.server.giveUp(cs)
		if cs, err = r.server.connected(ctx); err != nil {
			return nil, err
		}
		res, err = r.call(ctx, cs, input)
	}
	if err != nil {
		return nil, r.failed(ctx, cs, err)
	}
	return result(ctx, res)
}

func (r *remote) call(ctx tool.Context, cs *mcp.ClientSession, input json.RawMessage) (*mcp.CallToolResult, error) {
	token, over := r.server.calls.begin(ctx)
	defer over()
	params := &mcp.CallToolParams{Name: r.name, Arguments: input, Meta: mcp.Meta{effectKey: ctx.Call().EffectID}}
	params.SetProgressToken(token)
	r.server.askForLogsOf(ctx, params)
	return cs.CallTool(ctx, params)
}

// codeRejected is the SDK's own, of a request that its transport could not
// deliver; the connection lasts.
const codeRejected = -32005

// failed says in the model's words why a call has no result.
func (r *remote) failed(ctx context.Context, cs *mcp.ClientSession, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if said, ok := errors.AsType[*jsonrpc.Error](err); ok {
		if said.Code == codeRejected {
			return fmt.Errorf("the MCP server %s did not accept the call: %w", r.server.called(), err)
		}
		return errors.New(said.Message)
	}
	r.server.giveUp(cs)
	return fmt.Errorf("the MCP server %s was lost during the call; it is unknown whether the call was executed: %w", r.server.called(), err)
}

// calls are those under way, by progress token.
type calls struct {
	last  atomic.Int64
	under sync.Map // token: tool.Context
}

func (c *calls) begin(ctx tool.Context) (token string, over func()) {
	token = "call-" + strconv.FormatInt(c.last.Add(1), 10)
	c.under.Store(token, ctx)
	return token, func() { c.under.Delete(token) }
}

func (c *calls) progress(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	p := r.Params
	v, ok := c.under.Load(p.ProgressToken)
	if !ok {
		return // it is over
	}
	report := tool.Progress{Label: p.Message}
	if p.Total > 0 {
		percent := min(max(100*p.Progress/p.Total, 0), 100)
		report.Percent = &percent
	} else {
		report.Data = map[string]float64{"progress": p.Progress}
	}
	_ = v.(tool.Context).Progress(report) // the call may be over just now
}
