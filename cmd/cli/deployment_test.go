package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/deployment.md has every flag of the server, with its name in the environment, its
// default and its meaning.
func TestFlagsInDocs(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/deployment.md", "-update -->\n", "<!-- end of flags -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("the page has no table of flags")
	}
	want := "\n" + flagTable(t) + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != want {
		t.Errorf("the table of flags is not up to date: go test ./cmd/cli -run FlagsInDocs -update\n%s", want)
	}
}

func flagTable(t *testing.T) string {
	parser, err := spoolBinary.parserOf(new(cli))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| flag | environment | default | does |\n| --- | --- | --- | --- |\n")
	for _, command := range parser.Model.Children {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			if f.Hidden {
				continue
			}
			name := f.Name
			if f.Tag.Negatable != "" {
				name = "[no-]" + name
			}
			value := f.Default
			if value == "" && f.IsBool() {
				value = "false"
			}
			if value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", name, strings.Join(f.Envs, "`, `"), value, strings.NewReplacer("|", `\|`, "\n", " ", "*", `\*`).Replace(f.Help))
		}
	}
	return b.String()
}

// The commands with which docs/deployment.md makes and restores a backup are those that
// testdata/script/backup.txtar runs with a server.
func TestBackupInDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/deployment.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/script/backup.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{".backup ", "VACUUM INTO ", "rm -f spool.db-wal spool.db-shm", "INSERT INTO unsynced (token, boot) VALUES ('restored', 'restored')"} {
		if !strings.Contains(string(page), command) || !strings.Contains(strings.ReplaceAll(string(script), "''", "'"), command) {
			t.Errorf("%q is not in both the page and the script", command)
		}
	}
}

// docs/deployment.md has the files of the folder deploy that it says it has, as they are.
func TestFilesInDocs(t *testing.T) {
	t.Parallel()
	const page, mark = "../../docs/deployment.md", "<!-- file: "
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, rest := range strings.Split(string(text), mark) {
		if i == 0 {
			continue
		}
		n++
		name, rest, _ := strings.Cut(rest, " -->\n\n```")
		_, rest, _ = strings.Cut(rest, "\n")
		have, _, ok := strings.Cut(rest, "```\n")
		want, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !ok || have != string(want) {
			t.Errorf("%s is another one than in the page", name)
		}
	}
	if n == 0 {
		t.Error("the page has no files")
	}
}
