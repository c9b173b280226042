package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kong"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/tool/mcptool"
)

// perLine is a flag that can be repeated and whose environment variable has one value per
// line. Of a plain slice the help would show the separator.
type perLine []string

// Decode adds what one flag, or the environment variable, holds.
func (p *perLine) Decode(ctx *kong.DecodeContext) error {
	var value string
	if err := ctx.Scan.PopValueInto("value", &value); err != nil {
		return err
	}
	*p = append(*p, kong.SplitEscaped(value, '\n')...)
	return nil
}

// mcpServers are the MCP servers that give the agent tools.
type mcpServers []*mcptool.Server

// connectMCP connects to the servers that the flags name. It fails if a server cannot
// be reached. Later a server may disconnect and reconnect.
func connectMCP(ctx context.Context, flags []string, log *slog.Logger) (mcpServers, error) {
	var servers mcpServers
	names := map[string]bool{}
	for _, flag := range flags {
		if flag = strings.TrimSpace(flag); flag == "" {
			continue
		}
		dial, o, err := mcpServer(flag)
		if err != nil {
			servers.close()
			return nil, err
		}
		o.Logger = log
		s, err := mcptool.Connect(ctx, dial, o)
		if err != nil {
			servers.close()
			return nil, fmt.Errorf("--mcp %s: %w", flag, err)
		}
		servers = append(servers, s)
		tools := s.Tools()
		for _, t := range tools {
			if name := t.Spec().Name; names[name] {
				log.Warn("two MCP servers have a tool with this name; the first one is used", "tool", name, "hint", "give one of them a name: --mcp NAME="+flag)
			} else {
				names[name] = true
			}
		}
		log.Info("tools of an MCP server", "server", flag, "tools", len(tools))
	}
	return servers, nil
}

var mcpName = regexp.MustCompile(`^([A-Za-z0-9_-]{1,32})=(.*)$`)

// mcpServer reads [NAME=]URL or [NAME=]stdio:COMMAND.
func mcpServer(flag string) (mcptool.Dial, *mcptool.Options, error) {
	o, where := &mcptool.Options{}, flag
	if m := mcpName.FindStringSubmatch(flag); m != nil {
		o.Name, o.Prefix, where = m[1], m[1]+"_", m[2]
	}
	if command, ok := strings.CutPrefix(where, "stdio:"); ok && strings.TrimSpace(command) != "" {
		return shell(command), o, nil
	}
	if u, err := url.Parse(where); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return mcptool.HTTP(where, nil), o, nil
	}
	return nil, nil, &usageError{"--mcp " + flag + ": want a URL or stdio:COMMAND, with NAME= before it or not"}
}

// shell runs a command line as a server. It gets this process's environment without the
// variables that are for this process alone: keys of model providers, and flags.
func shell(command string) mcptool.Dial {
	return func() mcp.Transport {
		cmd := exec.Command("/bin/sh", "-c", "exec "+command)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "OPENAI_") || strings.HasPrefix(v, "ANTHROPIC_") || strings.HasPrefix(v, "SPOOL_")
		})
		return &mcp.CommandTransport{Command: cmd}
	}
}

func (m mcpServers) tools() []tool.Tool {
	var tools []tool.Tool
	for _, s := range m {
		tools = append(tools, s.Tools()...)
	}
	return tools
}

// close ends all connections in parallel, because a server may take long.
func (m mcpServers) close() {
	var wg sync.WaitGroup
	for _, s := range m {
		wg.Go(func() { _ = s.Close() })
	}
	wg.Wait()
}
