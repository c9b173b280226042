package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// user has a conversation in one session, from several devices at once.
type user struct {
	w       *world
	name    string
	chance  chance
	client  *client.Client
	session *client.Session
	message int // messages that were sent

	seen   []chunk.Record // by the device on the native wire
	cursor spool.Cursor
	run    string // that is open
	stopAt int    // after so many records; -1: not
	losses int    // of the store, when it was last asked whether the turn is over
	still  bool   // the conversation is over: it only reads
}

// newClient returns a client that never gives up.
func (w *world) newClient(c *chance) *client.Client {
	made, err := client.New("http://spool", &client.Options{HTTP: w.network.client, Retry: client.Retry{Max: -1, Cap: 3 * time.Second, Jitter: c.below}})
	if err != nil {
		panic(err) // a mistake in the simulator
	}
	return made
}

// people returns the users of this simulation.
func (w *world) people() (users []*user) {
	for i := range 2 + w.random("people").IntN(3) {
		u := &user{w: w, name: fmt.Sprintf("s%d", i+1)}
		u.chance.rnd = w.random("user " + u.name)
		u.client = w.newClient(&u.chance)
		u.session = u.client.Session(u.name)
		users = append(users, u)
	}
	return users
}

func (u *user) says(format string, args ...any) { u.w.happened(u.name+": "+format, args...) }

// live has the conversation.
func (u *user) live() {
	time.Sleep(u.chance.upTo(30 * time.Second))
	turns := 1 + int(u.chance.below(3))
	defer func() { u.still = true }()
	for range turns {
		if err := u.turn(); err != nil {
			u.w.fail("%s is stuck: %v", u.name, err)
			return
		}
		time.Sleep(u.chance.upTo(5 * time.Second))
	}
}

// turn sends a message and follows its answer, on all devices, until everything rests.
func (u *user) turn() error {
	u.message++
	m := client.Message{ID: fmt.Sprintf("%s-u%d", u.name, u.message)}
	m.Text = scenes[u.chance.below(int64(len(scenes)))] + " in " + m.ID
	if u.message > 1 && u.chance.happens(0.2) {
		m.ID, m.Edits = "", fmt.Sprintf("%s-u%d", u.name, u.message-1)
		u.message--
	}
	u.stopAt = -1
	if u.chance.happens(0.3) {
		u.stopAt = len(u.seen) + int(u.chance.below(40))
	}
	over := make(chan struct{})
	var reading sync.WaitGroup
	var readers []reader
	if m.Edits == "" && u.chance.happens(0.4) {
		// The workflow client's POST is the message itself.
		r := &counter{device: u.device(over), body: body(u.name, m.ID, m.Text), taken: make(chan struct{})}
		readers = append(readers, r)
		reading.Go(r.read)
		<-r.taken
		if r.busy {
			if err := u.send(&m); err != nil {
				return err
			}
		}
	} else if err := u.send(&m); err != nil {
		return err
	}
	id := m.ID + m.Edits
	for range 1 + u.chance.below(3) {
		r := u.newReader(over)
		readers = append(readers, r)
		reading.Go(func() {
			time.Sleep(u.chance.upTo(4 * time.Second))
			r.read()
		})
	}
	err := u.follow(id, m)
	close(over)
	reading.Wait()
	if err != nil {
		return err
	}
	if u.w.store.lost() == u.losses { // or some have left a log that was set back since
		u.compare(readers)
	}
	return nil
}

// send sends a message, under another id if it was refused.
func (u *user) send(m *client.Message) error {
	u.says("sends %q as %s%s", m.Text, m.ID, m.Edits)
	for {
		_, err := u.session.Send(u.w.ctx, *m)
		if !errors.Is(err, spool.ErrBusy) || u.w.store.lost() == 0 {
			return err
		}
		u.says("a turn that was over goes on")
		u.pause("it is busy", nil)
		if m.ID != "" {
			m.ID += "+" // that one is refused for good
		}
		if err := u.follow("", *m); err != nil {
			return err
		}
	}
}

// follow reads the log and reacts to it, until the turn is over that the message with
// this id has begun, or any turn for "".
func (u *user) follow(id string, m client.Message) error {
	for {
		if err := u.w.ctx.Err(); err != nil {
			return fmt.Errorf("the log is not at rest after %d records, cursor %v: %w", len(u.seen), u.cursor, err)
		}
		u.losses = u.w.store.lost()
		gone, err := u.readLog()
		if err != nil {
			return err
		}
		var snap *client.Snapshot
		if !gone {
			snap, err = u.session.Snapshot(u.w.ctx, client.SnapshotOptions{})
			gone = errors.Is(err, spool.ErrNotFound)
			if err != nil && !gone {
				u.pause("asking for a snapshot", err)
				continue
			}
		}
		if id == "" && gone {
			return nil
		}
		if gone || id != "" && !slices.ContainsFunc(snap.Messages, func(m client.UIMessage) bool { return m.ID == id }) && len(snap.Waiting) == 0 {
			if u.w.store.lost() == 0 {
				return fmt.Errorf("message %s was taken and is not there", id)
			}
			u.says("%s is lost", id)
			if m.Edits != "" {
				m.Edits, m.ID = "", id
			}
			if err := u.send(&m); err != nil {
				return err
			}
			id = m.ID + m.Edits
			u.pause("sent again", nil)
			continue
		}
		pending := snap.Pending()
		switch {
		case snap.Status == chunk.StatusActive || len(snap.Waiting) > 0:
			u.pause("waiting", nil)
		case len(pending) > 0 && u.chance.happens(0.15):
			u.stop("")
		case len(pending) > 0:
			for _, p := range pending {
				u.answer(p.ApprovalID, p.CallID)
			}
			u.pause("answering", nil) // the answers may be refused
		case snap.Status == chunk.StatusPaused:
			u.resume()
			u.pause("resuming", nil)
		default:
			return nil
		}
	}
}

// pause waits a moment before another attempt.
func (u *user) pause(what string, err error) {
	if err != nil {
		u.says("%s: %v", what, err)
	}
	select {
	case <-time.After(200*time.Millisecond + u.chance.upTo(time.Second)):
	case <-u.w.ctx.Done():
	}
}

// readLog reads on where it was until the log is quiet. gone: there is no such session.
func (u *user) readLog() (gone bool, err error) {
	l := u.session.Log(u.w.ctx, client.LogOptions{After: u.cursor})
	defer l.Close()
	for {
		e, err := l.Next()
		switch {
		case errors.Is(err, io.EOF):
			return false, nil
		case errors.Is(err, spool.ErrCursorAhead), errors.Is(err, spool.ErrTrimmed), errors.Is(err, spool.ErrNotFound):
			u.says("begins again after %v: %v", u.cursor, err)
			u.seen, u.cursor, u.run = nil, spool.Cursor{}, ""
			return errors.Is(err, spool.ErrNotFound), nil
		case err != nil:
			if u.w.ctx.Err() != nil {
				return false, err
			}
			u.pause("reading the log", err)
			return false, nil
		}
		if n := uint64(len(u.seen)); e.Seq != n+1 {
			return false, fmt.Errorf("record %d follows %d", e.Seq, n)
		}
		u.seen, u.cursor = append(u.seen, e.Record), l.Cursor()
		u.react(e.Chunk)
		if !u.still && u.stopAt >= 0 && len(u.seen) >= u.stopAt && u.run != "" {
			u.stopAt = -1
			if u.chance.happens(0.5) {
				u.interrupt(u.run)
			} else {
				u.stop(u.run)
			}
		}
	}
}

// react answers some questions at once.
func (u *user) react(c chunk.Chunk) {
	if u.still {
		return
	}
	switch c := c.(type) {
	case *chunk.RunStarted:
		u.run = c.RunID
	case *chunk.RunFinished, *chunk.RunSuspended:
		u.run = ""
	case *chunk.ToolApprovalRequest:
		if u.chance.happens(0.4) {
			u.answer(c.ApprovalID, c.ToolCallID)
		}
	case *chunk.ToolStart:
		if c.Client && u.chance.happens(0.4) {
			u.answer("", c.ToolCallID)
		}
	}
}

// answer answers a call. It may be answered already, or be of a run that was stopped.
func (u *user) answer(approval, call string) {
	var err error
	if approval != "" {
		yes := u.chance.happens(0.7)
		u.says("decides %s: %v", approval, yes)
		_, err = u.session.Decide(u.w.ctx, approval, client.Decision{Approved: yes})
	} else {
		u.says("answers %s", call)
		_, err = u.session.SubmitResult(u.w.ctx, call, client.ToolResult{Output: json.RawMessage(`{"lat":52.5}`)})
	}
	if err != nil {
		u.says("the answer is refused: %v", err)
	}
}

func (u *user) stop(run string) {
	u.says("stops %s", run)
	if _, err := u.session.Stop(u.w.ctx, client.StopOptions{RunID: run}); err != nil {
		u.says("the stop is refused: %v", err)
	}
}

func (u *user) interrupt(run string) {
	u.says("interrupts %s", run)
	if _, err := u.session.Interrupt(u.w.ctx, client.StopOptions{RunID: run}); err != nil {
		u.says("the interrupt is refused: %v", err)
	}
}

// resume continues a run that was interrupted.
func (u *user) resume() {
	u.says("resumes")
	if _, err := u.session.Resume(u.w.ctx, client.ResumeOptions{}); err != nil {
		u.pause("the resume is refused", err)
	}
}
