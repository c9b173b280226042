package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help says how to use it.
func (completionCmd) Help() string {
	return `Load it in the shell's own start file:

  bash: source <(spool completion bash)
  zsh:  source <(spool completion zsh)
  fish: spool completion fish | source`
}

// Run prints a script that completes the commands and flags of this program.
func (c *completionCmd) Run(app *kong.Application, std streams) error {
	out := bufio.NewWriter(std.out)
	var list []completed
	for _, n := range app.Children {
		if !n.Hidden {
			list = append(list, complete(n))
		}
	}
	switch c.Shell {
	case "bash":
		bash(out, list)
	case "zsh":
		zsh(out, list)
	case "fish":
		fish(out, list)
	}
	return out.Flush()
}

// completed is a command and what may follow it.
type completed struct {
	name, help string
	flags      []completedFlag
	args       []string // the values of its argument, if they are few
	session    bool     // its argument is a session
}

type completedFlag struct {
	name, help string
	takes      bool     // a value follows
	values     []string // all there are; nil: any
}

func complete(n *kong.Node) completed {
	c := completed{name: n.Name, help: brief(n.Help), flags: []completedFlag{{name: "help", help: "Show what the command takes."}}}
	for _, f := range n.Flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		one := completedFlag{name: f.Name, help: brief(f.Help), takes: !f.IsBool(), values: enum(f.Value)}
		c.flags = append(c.flags, one)
		if f.Tag.Negatable != "" {
			c.flags = append(c.flags, completedFlag{name: "no-" + f.Name, help: one.help})
		}
	}
	for _, a := range n.Positional {
		c.args, c.session = enum(a), a.Name == "session"
	}
	return c
}

func enum(v *kong.Value) (values []string) {
	if v.Enum == "" {
		return nil
	}
	for _, value := range v.EnumSlice() {
		if value != "" {
			values = append(values, value)
		}
	}
	return values
}

// brief returns the first sentence of a help text.
func brief(help string) string {
	help, _, _ = strings.Cut(help, ". ")
	help, _, _ = strings.Cut(help, "; ")
	return strings.TrimSuffix(help, ".")
}

// What stands in single quotes in a script. In zsh, colons and brackets in what its
// completion functions take are escaped, too.
var (
	zshQuoted  = strings.NewReplacer("'", `'\''`, `\`, `\\`, ":", `\:`, "[", `\[`, "]", `\]`)
	fishQuoted = strings.NewReplacer("'", `\'`, `\`, `\\`)
)

func (c completed) names() string {
	var b strings.Builder
	for i, f := range c.flags {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("--" + f.name)
	}
	return b.String()
}

// sessionIDs is a shell's command that prints the ids of sessions.
const sessionIDs = `spool sessions --json 2>/dev/null | sed -n 's/^{"session":"\([^"]*\)".*/\1/p'`

func bash(w io.Writer, list []completed) {
	var commands []string
	for _, c := range list {
		commands = append(commands, c.name)
	}
	fmt.Fprintf(w, `_spool() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd= i
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in %s) cmd=${COMP_WORDS[i]}; break ;; esac
	done
	case "$cmd $prev" in
`, strings.Join(commands, "|"))
	for _, c := range list {
		for _, f := range c.flags {
			switch {
			case f.values != nil:
				fmt.Fprintf(w, "\t\"%s --%s\") COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", c.name, f.name, strings.Join(f.values, " "))
			case f.takes:
				fmt.Fprintf(w, "\t\"%s --%s\") return ;;\n", c.name, f.name)
			}
		}
	}
	fmt.Fprint(w, "\tesac\n\tcase \"$cmd:$cur\" in\n")
	for _, c := range list {
		fmt.Fprintf(w, "\t%s:-*) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", c.name, c.names())
		switch {
		case c.args != nil:
			fmt.Fprintf(w, "\t%s:*) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", c.name, strings.Join(c.args, " "))
		case c.session:
			fmt.Fprintf(w, "\t%s:*) COMPREPLY=($(compgen -W \"$(%s)\" -- \"$cur\")) ;;\n", c.name, sessionIDs)
		}
	}
	fmt.Fprintf(w, `	:-*) COMPREPLY=($(compgen -W '--help --version' -- "$cur")) ;;
	:*) COMPREPLY=($(compgen -W '%s' -- "$cur")) ;;
	esac
}
complete -o default -F _spool spool
`, strings.Join(commands, " "))
}

func zsh(w io.Writer, list []completed) {
	fmt.Fprint(w, "#compdef spool\n_spool() {\n\tlocal -a commands=(\n")
	for _, c := range list {
		fmt.Fprintf(w, "\t\t'%s:%s'\n", c.name, zshQuoted.Replace(c.help))
	}
	fmt.Fprint(w, "\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe command commands || _arguments '--help[Show the commands]' '--version[Print the version]'\n\t\treturn\n\tfi\n\tshift words; (( CURRENT-- ))\n\tcase $words[1] in\n")
	for _, c := range list {
		fmt.Fprintf(w, "\t%s) _arguments", c.name)
		for _, f := range c.flags {
			f.help = zshQuoted.Replace(f.help)
			switch {
			case f.values != nil:
				fmt.Fprintf(w, " \\\n\t\t'--%s=[%s]:%s:(%s)'", f.name, f.help, f.name, strings.Join(f.values, " "))
			case f.takes:
				fmt.Fprintf(w, " \\\n\t\t'--%s=[%s]:%s:_files'", f.name, f.help, f.name)
			default:
				fmt.Fprintf(w, " \\\n\t\t'--%s[%s]'", f.name, f.help)
			}
		}
		switch {
		case c.args != nil:
			fmt.Fprintf(w, " \\\n\t\t'1: :(%s)'", strings.Join(c.args, " "))
		case c.session:
			fmt.Fprint(w, " \\\n\t\t'1:session:_spool_sessions'")
		}
		fmt.Fprint(w, " ;;\n")
	}
	fmt.Fprintf(w, "\tesac\n}\n_spool_sessions() {\n\tlocal -a ids=(${(f)\"$(%s)\"})\n\tcompadd -a ids\n}\ncompdef _spool spool\n", sessionIDs)
}

func fish(w io.Writer, list []completed) {
	fmt.Fprint(w, "complete -c spool -f\ncomplete -c spool -n __fish_use_subcommand -l help -d 'Show the commands'\ncomplete -c spool -n __fish_use_subcommand -l version -d 'Print the version'\n")
	for _, c := range list {
		fmt.Fprintf(w, "complete -c spool -n __fish_use_subcommand -a %s -d '%s'\n", c.name, fishQuoted.Replace(c.help))
		seen := "complete -c spool -n '__fish_seen_subcommand_from " + c.name + "'"
		for _, f := range c.flags {
			fmt.Fprintf(w, "%s -l %s", seen, f.name)
			switch {
			case f.values != nil:
				fmt.Fprintf(w, " -x -a '%s'", strings.Join(f.values, " "))
			case f.takes:
				fmt.Fprint(w, " -r -F")
			}
			fmt.Fprintf(w, " -d '%s'\n", fishQuoted.Replace(f.help))
		}
		switch {
		case c.args != nil:
			fmt.Fprintf(w, "%s -a '%s'\n", seen, strings.Join(c.args, " "))
		case c.session:
			fmt.Fprintf(w, "%s -a \"(%s)\"\n", seen, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(sessionIDs))
		}
	}
}
