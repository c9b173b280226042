//go:build nodes

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// turn is a user's message, its answer, and three readers of it: the client that sends the
// message, one that watches, and a reader of the log. Midway is sent the run's id when
// readers have got text.
func (c *cluster) turn(ctx context.Context, n uint64, scene string, midway chan<- string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rnd := rand.New(rand.NewPCG(c.seed, n))
	r := &nodesRun{session: fmt.Sprintf("%s-%d", scene, n), scene: scene, stopped: midway != nil}
	c.add(r)
	kinds := []string{"newest6", "newest7", "oldest"}
	if scene == "book" {
		kinds = kinds[:2] // the oldest client knows no approvals
	}
	live := make(chan error, 1)
	seen := &nodesLog{}
	go func() { live <- seen.follow(ctx, c.anyNode(n).Session(r.session), r, midway) }()
	job := readerJob{Servers: c.urls(), Session: r.session, Client: kinds[rnd.IntN(len(kinds))]}
	watch := c.readers.begin(job)
	job.Client, job.Message, job.Text, job.Decide = kinds[rnd.IntN(len(kinds))], r.message().ID, r.message().Text, scene == "book"
	send := c.readers.begin(job)
	var shown []readerResult
	for who, done := range map[string]<-chan readerResult{"the client that sends": send, "the client that watches": watch} {
		select {
		case result := <-done:
			if err := result.err(); err != nil {
				return fmt.Errorf("%s: %s: %w", r.session, who, err)
			}
			shown = append(shown, result)
		case <-ctx.Done():
			return fmt.Errorf("%s: %s has not come to an end: %s", r.session, who, strings.Join(seen.types(), " "))
		}
	}
	if err := <-live; err != nil {
		return fmt.Errorf("%s: the log's reader: %w", r.session, err)
	}
	return c.check(ctx, r, seen, shown)
}

// nodesLog is a session's log as a reader has seen it.
type nodesLog struct{ entries []client.Entry }

// follow reads until the run has ended.
func (l *nodesLog) follow(ctx context.Context, s *client.Session, r *nodesRun, midway chan<- string) error {
	// A store whose server was killed may not know that it has lost nothing.
	stream := s.Log(ctx, client.LogOptions{Wait: true, Follow: true, Resync: true})
	defer stream.Close()
	for {
		e, err := stream.Next()
		if err != nil {
			return err
		}
		if e.Snapshot != nil {
			if e.Snapshot.Status == chunk.StatusEnded {
				r.ended.Store(true)
				return nil
			}
			continue
		}
		l.entries = append(l.entries, e)
		switch e.Chunk.(type) {
		case *chunk.RunFinished:
			r.ended.Store(true)
			return nil
		case *chunk.StepCommitted, *chunk.RunSuspended:
			r.progress.Add(1)
		case *chunk.TextDelta:
			if midway != nil {
				midway <- e.Chunk.ChunkBase().RunID
				midway = nil
			}
		}
	}
}

// read reads a log that has ended.
func (l *nodesLog) read(ctx context.Context, s *client.Session) error {
	stream := s.Log(ctx, client.LogOptions{})
	defer stream.Close()
	for {
		e, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.entries = append(l.entries, e)
	}
}

func (l *nodesLog) types() (list []string) {
	for _, e := range l.entries {
		list = append(list, string(e.Type))
	}
	return list
}

// text is the log, a record a line.
func (l *nodesLog) text() string {
	var b strings.Builder
	for _, e := range l.entries {
		b.WriteString(logLine(e))
	}
	return b.String()
}

func logLine(e client.Entry) string { return fmt.Sprintf("%d %s %s\n", e.Seq, e.Type, e.Data) }

// has checks that each record that a reader has seen is in the log, under its sequence.
func (l *nodesLog) has(seen *nodesLog) error {
	for _, e := range seen.entries {
		if e.Seq == 0 || e.Seq > uint64(len(l.entries)) || logLine(e) != logLine(l.entries[e.Seq-1]) {
			return fmt.Errorf("a reader saw %sand the log is\n%s", logLine(e), l.text())
		}
	}
	return nil
}

// check holds a log that has ended against what its readers saw of it, and against what was
// asked for outside.
func (c *cluster) check(ctx context.Context, r *nodesRun, seen *nodesLog, shown []readerResult) error {
	l := &nodesLog{}
	s := c.anyNode(uint64(len(r.session))).Session(r.session)
	if err := l.read(ctx, s); err != nil {
		return fmt.Errorf("%s: reading the log: %w", r.session, err)
	}
	if seen != nil {
		if err := l.has(seen); err != nil {
			return fmt.Errorf("%s: %w", r.session, err)
		}
	}
	r.log = l.text()
	if err := errors.Join(c.counts(r, l), c.asked(r, l)); err != nil {
		return fmt.Errorf("%s: %w\n%s", r.session, err, r.log)
	}
	snap, err := s.Snapshot(ctx, client.SnapshotOptions{})
	if err != nil {
		return err
	}
	messages, err := json.Marshal(snap.Messages)
	if err != nil {
		return err
	}
	if n := strings.Count(string(messages), finalText(r.scene, r.session)); snap.Status != chunk.StatusEnded || len(snap.Messages) != 2 || n != 1 && r.outcome == chunk.OutcomeCompleted {
		return fmt.Errorf("%s: the session is %s with %s", r.session, snap.Status, messages)
	}
	for _, result := range shown {
		var got []client.UIMessage
		if err := json.Unmarshal(result.Messages, &got); err != nil {
			return err
		}
		if again, err := json.Marshal(got); err != nil || string(again) != string(messages) {
			return fmt.Errorf("%s: a client has\n%s\nand the session\n%s", r.session, again, messages)
		}
	}
	return nil
}

// counts checks that everything in the log is there once, but for commands: a repeat that
// comes while the first one is on its way is a record, too, and has no effect.
func (c *cluster) counts(r *nodesRun, l *nodesLog) error {
	count := map[string]int{}
	for i, e := range l.entries {
		if e.Seq != uint64(i)+1 {
			return fmt.Errorf("record %d is the %dth", e.Seq, i+1)
		}
		count[string(e.Type)]++
		switch v := e.Chunk.(type) {
		case *chunk.UserMessage:
			if v.Message.ID != r.message().ID {
				return fmt.Errorf("the message %s is another session's", v.Message.ID)
			}
		case *chunk.ToolEnd:
			count["outcome of "+v.ToolCallID]++
		case *chunk.RunFinished:
			r.outcome = v.Outcome
		}
	}
	r.recovered = count[string(chunk.TypeExecutorSuperseded)]
	for of, n := range count {
		if strings.HasPrefix(of, "outcome of ") && n != 1 {
			return fmt.Errorf("%d × %s", n, of)
		}
	}
	commands, runs := []chunk.Type{chunk.TypeUserMessage}, 1
	if r.stopped {
		commands = append(commands, chunk.TypeStopRequested)
	}
	if r.scene == "book" {
		commands = append(commands, chunk.TypeToolApprovalResponse)
		runs = 2 // before the decision and after it
	}
	for _, of := range commands {
		if count[string(of)] == 0 {
			return fmt.Errorf("the %s is missing", of)
		}
	}
	if n := count[string(chunk.TypeRunStarted)]; n != runs || count[string(chunk.TypeRunFinished)] != 1 {
		return fmt.Errorf("%d runs were started and %d finished, want %d and 1", n, count[string(chunk.TypeRunFinished)], runs)
	}
	switch {
	case r.outcome == chunk.OutcomeStopped && r.stopped:
	case r.outcome != chunk.OutcomeCompleted:
		return fmt.Errorf("the run is %s", r.outcome)
	case count[string(chunk.TypeStepCommitted)] != len(scenes[r.scene])+1:
		return fmt.Errorf("%d steps are committed", count[string(chunk.TypeStepCommitted)])
	}
	return nil
}

// asked checks that the provider was asked once for each step, and once more for each loss of
// a process at most, and that tools whose calls are not repeated took effect once at most.
func (c *cluster) asked(r *nodesRun, l *nodesLog) error {
	most := 0
	for _, typ := range l.types() {
		if typ == string(chunk.TypeStepCommitted) || typ == string(chunk.TypeExecutorSuperseded) {
			most++
		}
	}
	if r.stopped {
		most++ // the step that was not committed
	}
	if n := c.outside.asked(r.session); n > most {
		return fmt.Errorf("the provider was asked %d times, want %d at most", n, most)
	}
	for _, tool := range []string{"pay", "book"} {
		if n := c.outside.done(tool, r.session); n > 1 || n == 1 && !slices.Contains(scenes[r.scene], tool) {
			return fmt.Errorf("%s took effect %d times", tool, n)
		}
	}
	return nil
}

// settle waits until the runs that nobody watched have ended, and checks all sessions: no
// fault may have changed anything in what had ended before it.
func (c *cluster) settle() {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for _, r := range c.sessions {
		if c.t.Failed() {
			return
		}
		before := r.log
		if before == "" {
			if err := (&nodesLog{}).follow(ctx, c.anyNode(0).Session(r.session), r, nil); err != nil {
				c.t.Errorf("%s: %v", r.session, err)
				continue
			}
		}
		if err := c.check(ctx, r, nil, nil); err != nil {
			c.t.Error(err)
		} else if before != "" && r.log != before {
			c.t.Errorf("%s has changed after its end from\n%s\nto\n%s", r.session, before, r.log)
		}
	}
}
