package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/replay"
	"github.com/spool-run/spool/server"
)

// servedAgent is the agent that the flags describe, and its resources to close.
type servedAgent struct {
	agents  []*agent.Agent // the same one, under each name that a session of the store may have for it
	info    server.Info
	servers mcpServers
}

func (c *serveCmd) newAgent(ctx context.Context, log *slog.Logger) (*servedAgent, error) {
	prompt, err := instructions(c.Prompt)
	if err != nil {
		return nil, err
	}
	m, info, err := chooseModel(ctx, c.Model, c.DemoRate, c.ReplayRate, log)
	if err != nil {
		return nil, err
	}
	a := c.agentOf(m, info)
	if prompt != "" {
		a.Instructions = prompt
	}
	s := &servedAgent{info: info}
	if s.servers, err = connectMCP(ctx, c.MCP, log); err != nil {
		closeModel(m)
		return nil, err
	}
	a.MoreTools = s.servers.tools
	s.agents = underBothNames(a)
	return s, nil
}

// The names of the agent that is served.
const (
	demoName  = "demo"
	agentName = "assistant"
)

// agentOf returns the demo agent for the scripted model, which needs its tools, and with
// --demo-tools. Any other model gets neither its tools nor its prompt.
func (c *serveCmd) agentOf(m model.Model, info server.Info) *agent.Agent {
	limits := demoLimits{wait: c.WaitLimit, answer: orNone(c.MaxAnswer)}
	a := &agent.Agent{Name: agentName, Model: m, WaitLimit: limits.wait, MaxAnswer: limits.answer}
	if info.Demo || c.DemoTools {
		a = demoAgent(m, c.DemoRate, limits)
	}
	if _, ok := m.(*replay.Model); ok {
		a.MaxRetries = -1 // a recording fails in the same way again
	}
	if !info.Demo {
		a.FinishMetadata = agent.TokenMetadata(info.Model)
	}
	return a
}

// underBothNames returns an agent, and the same one for sessions that were begun with
// the demo and go on with a provider, or the other way round.
func underBothNames(a *agent.Agent) []*agent.Agent {
	other := *a
	other.Name = demoName
	if a.Name == demoName {
		other.Name = agentName
	}
	return []*agent.Agent{a, &other}
}

// maxInstructions bounds the file that --instructions names.
const maxInstructions = 1 << 20

// instructions returns the text that a flag gives, or that of the file that it names.
func instructions(flag string) (string, error) {
	path, ok := strings.CutPrefix(flag, "@")
	if !ok {
		return flag, nil
	}
	wrong := func(why string) error { return &usageError{fmt.Sprintf("--instructions %s: %s", flag, why)} }
	f, err := os.Open(path)
	if err != nil {
		return "", wrong(err.Error())
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxInstructions+1))
	switch {
	case err != nil:
		return "", wrong(err.Error())
	case len(text) > maxInstructions:
		return "", wrong("the file has more than 1 MiB")
	case !utf8.Valid(text):
		return "", wrong("the file is not text in UTF-8")
	case strings.TrimSpace(string(text)) == "":
		return "", wrong("the file is empty")
	}
	return strings.TrimSpace(string(text)), nil
}

func (s *servedAgent) close() {
	s.servers.close()
	closeModel(s.agents[0].Model)
}

func closeModel(m model.Model) {
	if closer, ok := m.(io.Closer); ok {
		_ = closer.Close()
	}
}
