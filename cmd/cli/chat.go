package cli

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/server/chat"
)

type chatCmd struct {
	Session string `arg:"" optional:"" help:"The session's id. Without it, a new session is started."`
	remote
}

// Help says what can be typed.
func (chatCmd) Help() string {
	return `Type a message and Enter. Ctrl-C stops an answer, or leaves if there is none; Ctrl-D
leaves. A run goes on without this program. /help lists the commands.

Without a terminal each line of standard input is a message, sent when the answer before
it is complete, or the answer to the question that stands there:

  echo hello | spool chat`
}

// signals are the signals that end the program. Ctrl-C is not among them: it stops a run.
func (c *chatCmd) signals() []os.Signal { return []os.Signal{syscall.SIGTERM} }

// Run is a conversation: it shows the session's log as it grows, and sends what is typed.
// What happens in it is in the log, so that a lost connection, a restarted server and a
// second terminal change nothing.
func (c *chatCmd) Run(ctx context.Context, std streams) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.Session != "" {
		if err := chat.CheckReadable(c.Session); err != nil {
			return err
		}
	}
	in, err := openConsole(ctx, std)
	if err != nil {
		return err
	}
	defer in.end()
	width := 80
	f, color := terminal(std.out)
	if color {
		width = widthOf(f)
	}
	ch := &conversation{in: in, out: bufio.NewWriter(in.output(std.out)), remote: &c.remote,
		entries: make(chan arrival), done: make(chan outcome), notices: make(chan error, 1), sent: map[string]bool{}}
	defer ch.out.Flush()
	remote, err := c.client(client.Retry{Max: -1, Cap: 5 * time.Second, Notify: ch.notice})
	if err != nil {
		return err
	}
	ch.s = remote.Session(c.Session)
	first := ch.s
	if in.editor == nil { // nobody sees that it waits for a server, and starts one
		once, err := c.client(client.Retry{Max: 3})
		if err != nil {
			return err
		}
		first = once.Session(ch.s.ID())
	}
	ch.p = newPrinter(ch.out, ch.s.ID(), width, color)
	err = ch.begin(ctx, first)
	if err == nil {
		err = ch.run(ctx)
	}
	switch {
	case errors.Is(err, errLeave):
		return ch.farewell()
	case err != nil:
		return c.explained(err)
	}
	return nil
}

// conversation is a chat in progress.
type conversation struct {
	s      *client.Session
	in     *console
	out    *bufio.Writer
	p      *printer
	remote *remote

	entries chan arrival // the log
	done    chan outcome // requests that have come to an end
	notices chan error   // why a request or the log's connection is tried again

	sent      map[string]bool // commands whose run has not begun, by their keys
	runs      string          // the open run; "" if there is none
	questions []pendingCall   // calls that wait for an answer, the oldest first
	busy      int             // requests under way
	asked     bool            // a line is being read
	about     *pendingCall    // what it answers; nil: it is a message
	hidden    bool            // its prompt is not on the screen
	stopping  bool
	leaving   bool // nothing more will be typed
	lost      string
	greeted   bool
}

type arrival struct {
	entry client.Entry
	err   error
}

// outcome is the end of a request: what to do with it is then.
type outcome struct{ then func() error }

// pendingCall is a call that waits for a human, or for this client.
type pendingCall struct {
	approval, call, tool, input string
}

// notice is told why something is tried again. It may be called from any goroutine.
func (ch *conversation) notice(err error, _ time.Duration) {
	select {
	case ch.notices <- err:
	default:
	}
}

// begin shows what the session has, as first reads it, and follows what comes.
func (ch *conversation) begin(ctx context.Context, first *client.Session) error {
	o := client.LogOptions{Follow: true, Wait: true, Resync: true}
	snap, err := ch.connect(ctx, first)
	switch {
	case err == nil:
		ch.restore(snap)
		o.Snapshot = snap
	case !errors.Is(err, spool.ErrNotFound):
		return err
	}
	ch.greet()
	log := ch.s.Log(ctx, o)
	go func() {
		for {
			e, err := log.Next()
			select {
			case ch.entries <- arrival{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return nil
}

// connect asks for the session's snapshot. While the server cannot be reached it says so,
// and Ctrl-C leaves.
func (ch *conversation) connect(ctx context.Context, s *client.Session) (snap *client.Snapshot, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		snap, err = s.Snapshot(ctx, client.SnapshotOptions{Agents: "flatten"})
	}()
	for {
		select {
		case <-answered:
			ch.lost = ""
			return snap, err
		case why := <-ch.notices:
			ch.greet()
			ch.retried(why)
			_ = ch.out.Flush()
		case <-ch.in.interrupts:
			cancel()
			<-answered
			ch.greet()
			return nil, errLeave
		}
	}
}

// greet says once where the person is, and what the keys do.
func (ch *conversation) greet() {
	if !ch.greeted {
		ch.greeted = true
		ch.p.notice(dim, "session "+ch.s.ID()+"; Ctrl-C stops an answer, Ctrl-D or /quit leaves, /help says more")
	}
}

// restore shows a snapshot and takes its state.
func (ch *conversation) restore(snap *client.Snapshot) {
	ch.runs, ch.questions = "", nil
	clear(ch.sent)
	ch.p.messages(snap.Messages)
	for _, w := range snap.Waiting {
		ch.sent[waitingKey+w.ID] = true
		ch.p.messages([]client.UIMessage{w.UIMessage})
		ch.p.own[w.ID] = struct{}{}
	}
	if snap.Status == chunk.StatusActive { // its turn follows
		for i := len(snap.Messages) - 1; i >= 0 && snap.Messages[i].Role == string(chunk.RoleUser); i-- {
			ch.p.own[snap.Messages[i].ID] = struct{}{}
		}
		return
	}
	for _, c := range snap.Pending() {
		ch.ask(pendingCall{approval: c.ApprovalID, call: c.CallID, tool: c.Tool, input: compact(c.Input)})
	}
}

func (ch *conversation) ask(q pendingCall) {
	for _, known := range ch.questions {
		if known.call == q.call {
			return
		}
	}
	ch.questions = append(ch.questions, q)
}

// idle reports whether it is the person's turn. What was sent waits for a run, but while a
// question is open a run needs the answer first: messages may be queued behind it.
func (ch *conversation) idle() bool {
	if ch.busy > 0 || ch.runs != "" {
		return false
	}
	for key := range ch.sent {
		if len(ch.questions) == 0 || strings.HasPrefix(key, answerKey) {
			return false
		}
	}
	return true
}

// errLeave ends the conversation.
var errLeave = errors.New("leave")

func (ch *conversation) run(ctx context.Context) error {
	for {
		if ch.idle() && !ch.asked && !ch.leaving {
			ch.p.endLine()
			_ = ch.out.Flush()
			select {
			case ch.in.asks <- ch.prompt():
				ch.asked, ch.hidden = true, false
			case <-ctx.Done():
				return nil
			}
		}
		var err error
		if ch.leaving && ch.idle() {
			err = errLeave
		} else {
			err = ch.next(ctx)
		}
		if ferr := ch.out.Flush(); ferr != nil {
			return nil // the reader of the output has closed it
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// farewell says how to come back.
func (ch *conversation) farewell() error {
	ch.hide()
	ch.p.endLine()
	if len(ch.questions) > 0 {
		ch.p.note("", dim, ch.questions[0].tool+" still waits for an answer")
	}
	// One line, however long: it is there to be copied.
	ch.p.line("", dim, "come back with: "+ch.remote.command("spool chat "+shellWord(clean(ch.s.ID()))))
	return nil
}

// next handles the next thing that happens.
func (ch *conversation) next(ctx context.Context) error {
	select {
	case a := <-ch.entries:
		if a.err != nil {
			return a.err
		}
		ch.lost = ""
		ch.arrived(a.entry)
	case line := <-ch.in.lines:
		ch.asked = false
		return ch.typed(ctx, line)
	case <-ch.in.interrupts:
		return ch.interrupted(ctx)
	case o := <-ch.done:
		ch.busy--
		return o.then()
	case err := <-ch.notices:
		ch.retried(err)
	case <-ctx.Done():
	}
	return nil
}

// retried says why something is tried again; a lasting problem only once.
func (ch *conversation) retried(err error) {
	why := said(ch.remote.explained(err))
	if why == ch.lost {
		return
	}
	ch.lost = why
	ch.hide()
	ch.p.notice(yellow, "… "+why+"; coming back")
	ch.show()
}

// hide and show take the prompt from the screen while other text is written.
func (ch *conversation) hide() {
	if ch.asked && !ch.hidden {
		_ = ch.out.Flush()
		ch.in.hide(ch.out)
		ch.hidden = true
	}
}

func (ch *conversation) show() {
	if ch.asked && ch.hidden && ch.idle() {
		ch.p.endLine()
		_ = ch.out.Flush()
		ch.in.show()
		ch.hidden = false
	}
}

// arrived shows an entry of the log and keeps track of what it changes.
func (ch *conversation) arrived(e client.Entry) {
	ch.hide()
	defer ch.show()
	if e.Snapshot != nil {
		ch.p.note("", yellow, "… the conversation begins again from what the server has")
		ch.restore(e.Snapshot)
		return
	}
	ch.p.chunk(e.Chunk)
	own := e.Agent == ch.s.ID()
	switch c := e.Chunk.(type) {
	case *chunk.RunStarted:
		if own {
			ch.begun(c)
		}
	case *chunk.RunFinished:
		if own {
			ch.runs, ch.questions, ch.stopping = "", nil, false
		}
	case *chunk.RunSuspended:
		if own {
			ch.runs, ch.stopping = "", false
		}
	case *chunk.UserMessage:
		if own {
			delete(ch.sent, c.Message.ID)
			ch.sent[c.CommandID] = true
		}
	default:
		ch.asks(e)
	}
}

// The keys of what waits for a run and is known by no command's id.
const (
	waitingKey = "waiting "
	answerKey  = "answer "
)

// begun notes a run, and that what it answers waits no longer.
func (ch *conversation) begun(c *chunk.RunStarted) {
	ch.runs, ch.stopping = c.RunID, false
	for _, id := range c.Commands {
		delete(ch.sent, id)
	}
	maps.DeleteFunc(ch.sent, func(key string, _ bool) bool { return strings.HasPrefix(key, waitingKey) })
}

// asks keeps track of the calls that wait for an answer.
func (ch *conversation) asks(e client.Entry) {
	switch c := e.Chunk.(type) {
	case *chunk.ToolApprovalRequest:
		ch.ask(pendingCall{approval: c.ApprovalID, call: callOf(e.Agent, ch.s.ID(), c.ToolCallID), tool: c.ToolName, input: compact(c.Input)})
	case *chunk.ToolStart:
		if c.Client {
			ch.ask(pendingCall{call: callOf(e.Agent, ch.s.ID(), c.ToolCallID), tool: c.ToolName, input: compact(c.Arguments)})
		}
	case *chunk.ToolApprovalResponse:
		ch.answered(func(q pendingCall) bool { return q.approval == c.ApprovalID })
		ch.goesOn(c.CommandID, answerKey+c.ApprovalID)
	case *chunk.ToolResultSubmitted:
		call := callOf(e.Agent, ch.s.ID(), c.ToolCallID)
		ch.answered(func(q pendingCall) bool { return q.call == call })
		ch.goesOn(c.CommandID, answerKey+call)
	case *chunk.ToolEnd:
		ch.answered(func(q pendingCall) bool { return q.call == callOf(e.Agent, ch.s.ID(), c.ToolCallID) })
	}
}

// goesOn notes an answer that is in the log: if it was the last one that a pause waited
// for, a run follows.
func (ch *conversation) goesOn(command, key string) {
	delete(ch.sent, key)
	if ch.runs == "" && len(ch.questions) == 0 {
		ch.sent[command] = true
	}
}

// callOf is the id by which the root's routes know an agent's call.
func callOf(agent, root, call string) string {
	if agent == root {
		return call
	}
	return chunk.ChildCallID(agent, call)
}

func (ch *conversation) answered(by func(pendingCall) bool) {
	for i, q := range ch.questions {
		if by(q) {
			ch.questions = append(ch.questions[:i:i], ch.questions[i+1:]...)
			return
		}
	}
}

// prompt is what stands before the line that is being typed.
func (ch *conversation) prompt() string {
	ch.about = nil
	if len(ch.questions) == 0 {
		return "> "
	}
	q := ch.questions[0]
	ch.about = &q
	if q.approval != "" {
		return "allow " + clean(q.tool) + " " + cut(clean(q.input), 60) + "? [y/n] "
	}
	return "result of " + clean(q.tool) + " " + cut(clean(q.input), 60) + " (JSON or text): "
}

// interrupted is Ctrl-C: it stops the answer. Once more, or when nothing is being
// answered, it leaves; the run goes on without this program.
func (ch *conversation) interrupted(ctx context.Context) error {
	if ch.idle() || ch.stopping {
		return errLeave
	}
	ch.stopping = true
	ch.p.note("", dim, "stopping …")
	run := ch.runs
	ch.request(ctx, func() error {
		_, err := ch.s.Stop(ctx, client.StopOptions{RunID: run, Reason: "the user asked"})
		return err
	}, func(error) { ch.stopping = false })
	return nil
}

// request runs a request beside the conversation. failed is told why the server refused
// it.
func (ch *conversation) request(ctx context.Context, send func() error, failed func(error)) {
	ch.busy++
	go func() {
		err := send()
		o := outcome{func() error {
			if err == nil || errors.Is(err, context.Canceled) {
				return nil
			}
			failed(err)
			ch.hide()
			ch.p.notice(red, said(ch.remote.explained(err)))
			ch.show()
			return nil
		}}
		select {
		case ch.done <- o:
		case <-ctx.Done():
		}
	}()
}
