package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/matrix"
)

// The binary's other commands, and a server with other flags, say what they said.
func TestCommandsSayUnchanged(t *testing.T) {
	matrix.WithoutRace(t)
	t.Parallel()
	for _, dir := range storedLogs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			s, all := serveSpool(t, unpack(t, filepath.Join(dir, "runs.db.gz"))), &answers{}
			for _, line := range clientCommands {
				all.add("spool "+line, s.command(line, nil))
			}
			chunks := []byte(s.command("tail tools --once", nil))
			chunks = chunks[:bytes.LastIndex(chunks, []byte("\n["))+1] // without the exit code
			for _, line := range filterCommands {
				all.add("spool "+line+" < tools", s.command(line, chunks))
			}
			golden(t, filepath.Join(dir, "commands.txt"), all)
		})
		for name, flags := range map[string][]string{
			"literal":  {"--merlin-literal", "all", "--ui", "7"},
			"suppress": {"--merlin-suppress", "researcher", "--merlin-literal", "suppression,errors", "--cors-origin", "https://elsewhere.example", "--allow-host", "elsewhere.example"},
		} {
			t.Run(filepath.Base(dir)+"/"+name, func(t *testing.T) {
				t.Parallel()
				s, all := serveSpool(t, unpack(t, filepath.Join(dir, "runs.db.gz")), flags...), &answers{}
				for _, session := range []string{"tools", "agents", "fail", "stopped-text", "waits-client", "anthropic documents", "openai-chat citation-blocks", "anthropic mcp-tool"} {
					i := s.info(session)
					list := append(merlinOf(session, i, true), get(chatPath(session)), get(chatPath(session)+"?after="+i.cursor(i.Latest/2)))
					for _, q := range append(list, get("/api/info", "Host: elsewhere.example"), get("/api/info", "Origin: https://elsewhere.example")) {
						all.record(q.name(session)+" of "+session, s.question(q))
					}
				}
				golden(t, filepath.Join(dir, "flags", name+".txt"), all)
			})
		}
	}
}

var clientCommands = []string{
	"sessions", "sessions --json", "sessions --status paused", "sessions --status failed --json", "sessions --status copying",
	"tail hello --once", "tail hello --once --after 40", "tail hello --once --after 41 --wire aisdk", "tail hello --once --wire aisdk", "tail think --once --wire aisdk --ui 7",
	"tail tools --once --wire merlin-v1", "tail tools --once --wire merlin-v2", "tail fail --once", "tail fail --once --wire aisdk", "tail fail --once --wire merlin-v2",
	"tail nobody --once", "tail nobody --once --wire aisdk", "tail hello --once --after x", "tail hello --once --after 9999", "tail hello --once --after 9999 --wire aisdk",
	"tail waits-approval --once --after 60", "tail agents.1 --once", "tail trimmed --once", "tail trimmed --once --wire aisdk", "tail hello --wire other",
}

var filterCommands = []string{
	"project --wire native", "project --wire native --framing event --after 100", "project --wire aisdk", "project --wire aisdk --ui 7 --after 90",
	"project --wire merlin-v1", "project --wire merlin-v2", "project --wire merlin-v1 --merlin-literal all", "project --wire merlin-v2 --merlin-literal all",
	"project --wire merlin-v2 --merlin-suppress *", "project --wire merlin-v2 --merlin-literal nothing", "project", "ingest --from anthropic", "ingest --from nobody",
}

// command runs the binary with these arguments, and says what it printed and how
// it ended.
func (s *spoolServer) command(line string, in []byte) string {
	s.t.Helper()
	args := strings.Fields(line)
	client := args[0] == "sessions" || args[0] == "tail"
	if client {
		args = append(args, "--url", s.url)
	}
	cmd := exec.Command("spool", args...)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	cmd.Stdin = bytes.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		s.t.Fatal(err)
	}
	text := out.String()
	if !client && strings.HasPrefix(text, "Usage:") {
		text = "[the usage]\n"
	}
	return strings.ReplaceAll(fmt.Sprintf("%s\n[code %d] %s", text, cmd.ProcessState.ExitCode(), errs.String()), s.url, "URL")
}
