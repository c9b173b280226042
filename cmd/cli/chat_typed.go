package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

const chatHelp = `/stop        stop the answer (or Ctrl-C)
/retry       try an answer that broke off again
/fail REASON tell the agent that a call which waits for you has failed
/quit        leave (or Ctrl-D); what runs goes on
//text       a message that begins with a slash`

// typed handles a line.
func (ch *conversation) typed(ctx context.Context, line typed) error {
	if line.err != nil { // the end of the input
		ch.leaving = true
		if !errors.Is(line.err, io.EOF) {
			return line.err
		}
		return nil
	}
	text := strings.TrimSpace(line.text)
	command, rest, _ := strings.Cut(text, " ")
	switch {
	case text == "":
		return nil
	case command == "/quit" || command == "/exit":
		return errLeave
	case command == "/help":
		fmt.Fprintln(ch.p.w, chatHelp)
		return nil
	case command == "/stop":
		ch.request(ctx, func() error { _, err := ch.s.Stop(ctx, client.StopOptions{}); return err }, func(error) {})
		return nil
	case command == "/retry":
		ch.request(ctx, func() error {
			_, err := ch.s.Resume(ctx, client.ResumeOptions{Mode: chunk.ModeRetry})
			return err
		}, func(error) {})
		return nil
	case ch.about != nil:
		ch.answer(ctx, *ch.about, text, command, rest)
		return nil
	case strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//"):
		ch.p.note("", red, command+" is no command; /help says which there are")
		return nil
	}
	ch.say(ctx, slashed(text))
	return nil
}

// say sends a message.
func (ch *conversation) say(ctx context.Context, text string) {
	id := rand.Text()
	if ch.in.editor != nil {
		ch.p.own[id] = struct{}{} // it stands where it was typed
	}
	ch.sent[id] = true
	ch.request(ctx, func() error {
		_, err := ch.s.Send(ctx, client.Message{ID: id, Text: text, WhenBusy: chunk.BusyQueue})
		return err
	}, func(error) { delete(ch.sent, id) })
}

// answer answers a question.
func (ch *conversation) answer(ctx context.Context, q pendingCall, text, command, rest string) {
	if !slices.Contains(ch.questions, q) {
		ch.p.note("", yellow, "this was answered elsewhere")
		return
	}
	if q.approval != "" {
		d, ok := decision(text)
		if !ok {
			ch.p.note("", dim, "y or n, with a reason behind it if you like")
			return
		}
		ch.settle(ctx, q, func() error { _, err := ch.s.Decide(ctx, q.approval, d); return err })
		return
	}
	r := client.ToolResult{Output: json.RawMessage(text)}
	if !json.Valid([]byte(text)) {
		r.Output, _ = json.Marshal(text) // strings always encode
	}
	if command == "/fail" {
		r = client.ToolResult{Error: strings.TrimSpace(rest)}
		if r.Error == "" {
			r.Error = "the user gave no result"
		}
	}
	ch.settle(ctx, q, func() error { _, err := ch.s.SubmitResult(ctx, q.call, r); return err })
}

// settle sends an answer. Its question comes back if the server refuses it.
func (ch *conversation) settle(ctx context.Context, q pendingCall, send func() error) {
	ch.answered(func(other pendingCall) bool { return other == q })
	ch.sent[q.key()] = true // until it is in the log
	ch.request(ctx, send, func(err error) {
		delete(ch.sent, q.key())
		if code := chunk.CodeOf(err); code == "result_invalid" || code == "not_waiting" {
			ch.questions = append([]pendingCall{q}, ch.questions...)
		}
	})
}

// key stands for the answer among what was sent.
func (q pendingCall) key() string {
	if q.approval != "" {
		return answerKey + q.approval
	}
	return answerKey + q.call
}

// decision reads a yes or a no, and what follows it as its reason.
func decision(text string) (d client.Decision, ok bool) {
	word, why, _ := strings.Cut(text, " ")
	switch strings.ToLower(strings.Trim(word, ",.!")) {
	case "y", "yes":
		d.Approved = true
	case "n", "no":
	default:
		return d, false
	}
	d.Reason = strings.TrimSpace(why)
	return d, true
}

// slashed returns a line as a message: two slashes at its beginning stand for one.
func slashed(text string) string {
	if strings.HasPrefix(text, "//") {
		return text[1:]
	}
	return text
}
