package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// The looks of what a printer says, as terminals know them.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	yellow = "33"
)

// printer shows a session's log to a person, as it comes. What others wrote reaches the
// terminal without control characters.
type printer struct {
	w     io.Writer
	root  string // the session whose own words have no label
	width int    // of a line that is cut short
	color bool

	open    string              // who writes the line that is not ended yet; "" if there is none
	said    map[string]bool     // by agent: its present step has shown text
	thought map[string]string   // by agent: what its reasoning has shown
	names   map[string]string   // by child session: the type of its agent
	tools   map[string]string   // by agent and call: the tool's name
	own     map[string]struct{} // ids of messages that are not shown: the terminal has them
}

func newPrinter(w io.Writer, root string, width int, color bool) *printer {
	return &printer{w: w, root: root, width: max(width, 40), color: color,
		said: map[string]bool{}, thought: map[string]string{}, names: map[string]string{}, tools: map[string]string{}, own: map[string]struct{}{}}
}

// widthOf is a terminal's width.
func widthOf(f *os.File) int {
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		return w
	}
	return 80
}

// chunk shows a chunk.
func (p *printer) chunk(c chunk.Chunk) {
	agent := c.ChunkBase().AgentID
	switch c := c.(type) {
	case *chunk.UserMessage:
		if _, own := p.own[c.Message.ID]; !own {
			p.note(agent, bold, "> "+c.Message.Text())
		}
	case *chunk.StepStarted:
		p.said[agent], p.thought[agent] = false, ""
	case *chunk.TextDelta:
		p.said[agent] = true
		p.say(agent, plain, c.Delta)
	case *chunk.Thinking:
		added := c.Content
		if c.IsComplete {
			added = chunk.CompleteThinking(p.thought[agent], c.Content)
		}
		p.thought[agent] += added
		p.say(agent, dim, added)
		if c.IsComplete {
			p.endLine()
			p.thought[agent] = ""
		}
	case *chunk.AssistantMessage:
		if !p.said[agent] { // the deltas were trimmed, or there were none
			for i := range c.Parts {
				if c.Parts[i].Type == chunk.PartText {
					p.say(agent, plain, c.Parts[i].Text)
				}
			}
		}
		p.endLine()
		p.said[agent] = true
	case *chunk.StepDiscarded:
		p.note(agent, yellow, "… this step was lost, and begins again")
	case *chunk.ExecutorSuperseded:
		p.note("", dim, "… another process continues the run")
	default:
		p.call(agent, c)
	}
}

// call shows what is done with tools and child agents.
func (p *printer) call(agent string, c chunk.Chunk) {
	switch c := c.(type) {
	case *chunk.ToolStart:
		p.tools[agent+"/"+c.ToolCallID] = c.ToolName
		p.note(agent, dim, "* "+c.ToolName+" "+compact(c.Arguments))
	case *chunk.ToolEnd:
		if c.Success {
			p.note(agent, dim, "  "+c.ToolName+" = "+compact(c.Result))
			return
		}
		p.note(agent, red, "  "+c.ToolName+" failed: "+c.Error)
	case *chunk.ToolResultSubmitted:
		tool := p.tools[agent+"/"+c.ToolCallID]
		if c.Error != "" {
			p.note(agent, red, "  "+tool+" failed: "+c.Error)
			return
		}
		p.note(agent, dim, "  "+tool+" = "+compact(c.Result))
	case *chunk.ToolInputError:
		p.note(agent, red, "  "+c.ToolName+" failed: "+c.Error)
	case *chunk.ToolOutputError:
		p.note(agent, red, "  "+c.ToolName+" failed: "+c.Error)
	case *chunk.ToolApprovalRequest:
		p.note(agent, yellow, "? "+c.ToolName+" "+compact(c.Input)+" waits for an approval")
	case *chunk.ToolApprovalResponse:
		said := "denied"
		if c.Approved {
			said = "approved"
		}
		p.note(agent, yellow, "  "+said+reason(c.Reason))
	case *chunk.SubAgentStart:
		p.names[c.SubSessionID] = c.SubAgentType
	case *chunk.File:
		p.note(agent, dim, "  file "+c.Filename+" ("+c.MediaType+")")
	case *chunk.Citation:
		p.note(agent, dim, "  source "+c.Title+" "+c.URL)
	default:
		p.end(agent, c)
	}
}

// end shows how runs end.
func (p *printer) end(agent string, c chunk.Chunk) {
	switch c := c.(type) {
	case *chunk.ErrorChunk:
		if !c.Fatal { // a run that failed says so itself
			p.note(agent, red, "! "+c.Error)
		}
	case *chunk.RunSuspended:
		p.note(agent, yellow, "paused: "+strings.ReplaceAll(c.Kind, "_", " "))
	case *chunk.RunFinished:
		p.endLine()
		switch c.Outcome {
		case chunk.OutcomeCompleted:
		case chunk.OutcomeFailed:
			p.note(agent, red, "failed: "+c.Error+reason(c.Code))
		default:
			p.note(agent, yellow, string(c.Outcome)+reason(c.Code))
		}
	}
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// messages shows a snapshot's messages.
func (p *printer) messages(list []client.UIMessage) {
	for i := range list {
		for _, part := range list[i].Parts {
			switch {
			case list[i].Role == string(chunk.RoleUser) && part.Type == "text":
				p.note("", bold, "> "+part.Text)
			case part.Type == "text":
				p.say("", plain, part.Text)
				p.endLine()
			case part.Type == "reasoning":
				p.say("", dim, part.Text)
				p.endLine()
			case part.IsTool():
				p.tools[p.root+"/"+part.ToolCallID] = part.Tool()
				p.note("", dim, "* "+part.Tool()+" "+compact(part.Input))
				if part.ErrorText != "" {
					p.note("", red, "  "+part.Tool()+" failed: "+part.ErrorText)
				} else if part.Output != nil {
					p.note("", dim, "  "+part.Tool()+" = "+compact(part.Output))
				}
			}
		}
		p.endLine()
	}
}

// say writes text as it comes, without ending the line.
func (p *printer) say(agent, look, text string) {
	if text == "" {
		return
	}
	if who := agent + "/" + look; p.open != who {
		p.endLine()
		p.open = who
		p.styled(dim, p.label(agent))
	}
	p.styled(look, clean(text))
	if strings.HasSuffix(text, "\n") {
		p.open = ""
	}
}

// note writes a line of its own, cut to the terminal's width.
func (p *printer) note(agent, look, text string) {
	text = strings.TrimRight(clean(text), "\n ")
	if look != bold {
		text = cut(strings.ReplaceAll(text, "\n", " "), p.width-1-len(p.label(agent)))
	}
	p.line(agent, look, text)
}

// notice writes all of a text: on a terminal in lines that are broken between words.
func (p *printer) notice(look, text string) {
	text = strings.ReplaceAll(strings.TrimRight(clean(text), "\n "), "\n", " ")
	if !p.color {
		p.line("", look, text)
		return
	}
	for _, line := range wrapped(text, p.width-1) {
		p.line("", look, line)
	}
}

// line writes a line of its own, as it is.
func (p *printer) line(agent, look, text string) {
	p.endLine()
	p.styled(dim, p.label(agent))
	p.styled(look, text)
	_, _ = io.WriteString(p.w, "\n")
}

// wrapped breaks a text between words into lines of so many characters. A longer word has
// a line of its own.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), word
			continue
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

func (p *printer) endLine() {
	if p.open != "" {
		_, _ = io.WriteString(p.w, "\n")
		p.open = ""
	}
}

// label says which child agent speaks.
func (p *printer) label(agent string) string {
	if agent == "" || agent == p.root || !strings.HasPrefix(agent, p.root+".") {
		return ""
	}
	return "[" + clean(p.names[agent]) + " " + agent[len(p.root)+1:] + "] "
}

func (p *printer) styled(look, text string) {
	if p.color && look != plain && text != "" {
		text = "\x1b[" + look + "m" + text + "\x1b[0m"
	}
	_, _ = io.WriteString(p.w, text)
}

// clean returns text without the characters that a terminal obeys.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		return -1
	}, text)
}

// cut shortens a line to so many characters.
func cut(text string, width int) string {
	width = max(width, 20)
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

// compact returns JSON in one line.
func compact(v json.RawMessage) string {
	var text string
	if json.Unmarshal(v, &text) == nil {
		return text
	}
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return string(v)
	}
	return b.String()
}
