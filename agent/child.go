package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// childLog is a child's part of the session's log.
type childLog struct {
	Log                // the parent's
	session, agentType string
}

func (l *childLog) Append(ctx context.Context, chunks ...chunk.Chunk) error {
	for _, c := range chunks {
		if b := c.ChunkBase(); b.AgentID == "" {
			b.AgentID, b.AgentType = l.session, l.agentType
		}
	}
	return l.Log.Append(ctx, chunks...)
}

func (l *childLog) View(ctx context.Context, fn func(*fold.Fold) error) error {
	return l.Log.View(ctx, func(f *fold.Fold) error {
		if f = f.Child(l.session); f == nil {
			return spool.ErrNotFound.Because("there is no such child").With(l.session, nil)
		}
		return fn(f)
	})
}

// child is a child agent while its parent's run is open here.
type child struct {
	agent   *Agent
	session string
	parent  *Run
	log     *childLog

	inherited []*Hooks
}

func (s *step) child(a *Agent, session string) *child {
	return &child{agent: a, session: session, parent: s.run, inherited: s.agent.inherit(s.run),
		log: &childLog{Log: s.run.Log, session: session, agentType: a.Name}}
}

// tell gives the child a message, once for a command id.
func (c *child) tell(ctx context.Context, command, text string) error {
	told := false
	err := c.log.View(ctx, func(f *fold.Fold) error {
		told = f.Verdict(command).State != fold.VerdictUnknown
		return nil
	})
	if err != nil || told {
		return err
	}
	err = c.log.Append(ctx, &chunk.UserMessage{CommandID: command, WhenBusy: chunk.BusyQueue, Message: chunk.Message{
		ID: command, Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: text}}}})
	if err != nil {
		return err
	}
	return c.log.Flush(ctx)
}

// commandOf returns the id of the command that a call gives to a child.
func commandOf(effectID string) string {
	if chunk.CheckID(effectID) == nil {
		return effectID
	}
	sum := sha256.Sum256([]byte(effectID))
	return "call-" + hex.EncodeToString(sum[:])
}

// childPlan is what a child is to do next, as its fold says.
type childPlan struct {
	info     RunInfo       // of the run
	commands []string      // that the run answers
	first    []chunk.Chunk // what is written before anything else
	begin    bool          // the run is to begin; otherwise it is open
	goesOn   bool          // the run goes on where the log has left it
	over     bool          // the run is only to be ended
	waits    bool          // no run: the child waits for answers
	idle     bool          // no run: there is nothing to do
}

func (c *child) plan(ctx context.Context) (p childPlan, err error) {
	err = c.log.View(ctx, func(f *fold.Fold) error {
		p.info.Session, p.info.Agent, p.info.Started = c.session, c.agent.Name, c.parent.Seams.Now()
		if run := f.OpenRun(); run != nil {
			p.info.Started = time.UnixMilli(run.StartTime)
			p.info.RunID, p.info.TurnID, p.info.Mode = run.ID, run.TurnID, run.Mode
			p.info.MessageID, p.goesOn = f.Turn(run.TurnID).MessageID, true
			p.over = f.Stop != nil || run.Mode == chunk.ModeStop
			if !p.over {
				p.first, _ = c.agent.TakeOver(f)
			}
			return nil
		}
		p.info.RunID = f.NextRun(c.parent.Info.RunID)
		switch {
		case f.Continue != nil, f.Break() != nil:
			turn := f.LastTurn()
			p.begin, p.goesOn, p.commands = true, true, append(p.commands, f.Answers...)
			p.info.TurnID, p.info.MessageID, p.info.Mode = turn.ID, turn.MessageID, chunk.ModeContinue
			if f.Continue != nil {
				p.info.Mode = f.Continue.Mode
			}
			if p.over = p.info.Mode == chunk.ModeStop || p.info.Mode == chunk.ModeSuperseded; p.over {
				p.commands = append(p.commands, f.Continue.ID)
				return nil
			}
			resumed := &chunk.RunResumed{FromStepCount: turn.LastRun().Step, Mode: p.info.Mode}
			if n := len(f.Checkpoints); n > 0 {
				id := f.Checkpoints[n-1].ID
				resumed.FromCheckpointID = &id
			}
			p.first = []chunk.Chunk{resumed}
		case f.Asks():
			p.waits = true
		case len(f.Waiting) > 0:
			w := f.Waiting[0]
			p.begin, p.commands = true, []string{w.ID}
			p.info.TurnID, p.info.MessageID, p.info.Mode = w.ID, p.info.RunID+"-m", chunk.ModeStart
		default:
			p.idle = true
		}
		return nil
	})
	return p, err
}

// goOn begins the run that takes up where the child was interrupted.
func (c *child) goOn(ctx context.Context) error {
	p, err := c.plan(ctx)
	if err != nil || !p.begin {
		return err
	}
	return c.begin(ctx, p)
}

// work runs the child until it has nothing more to do or is to pause (nil), or
// waits for an answer (errChildWaits). Any other error is the parent's: its run is
// over, or its log takes no more. The context late ends with alive, and also when
// the child is to be stopped.
func (c *child) work(alive, late context.Context) error {
	for {
		if err := c.log.Flush(alive); err != nil {
			return err
		}
		p, err := c.plan(alive)
		switch {
		case err != nil:
			return err
		case p.idle, p.begin && c.parent.crew.pauses():
			return nil
		case p.waits:
			return errChildWaits
		}
		if err := c.execute(alive, late, p); err != nil {
			return err
		}
	}
}

// result returns what came of a message that the child was told. The turn that the
// message began is over.
func (c *child) result(ctx context.Context, command string) (json.RawMessage, error) {
	var (
		parts  []chunk.Part
		failed error
	)
	err := c.log.View(ctx, func(f *fold.Fold) error {
		turn := f.Turn(command)
		if turn == nil {
			return spool.ErrNotFound.Because("the child has not received this task").With(c.session, nil)
		}
		failed = failureOf(f, turn.LastRun())
		if m := f.Message(turn.MessageID); m != nil {
			parts = m.Clone().Parts
		}
		return nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return c.answer(ctx, parts)
}

// failureOf says, in words for the parent's model, why a run gave no answer; nil if
// it gave one.
func failureOf(f *fold.Fold, run *fold.Run) error {
	switch run.Outcome {
	case chunk.OutcomeCompleted:
		return nil
	case chunk.OutcomeFailed:
		if f.Error != nil {
			return fmt.Errorf("the agent failed: %s", f.Error.Error)
		}
		return errors.New("the agent failed")
	case chunk.OutcomeLimit:
		return errors.New("the agent reached a limit before it was done")
	}
	return errors.New("the agent was stopped")
}

// answer returns the structured output of a message's parts if the agent has one,
// else the text of the last step.
func (c *child) answer(ctx context.Context, parts []chunk.Part) (output json.RawMessage, err error) {
	resolve := func(v json.RawMessage) (json.RawMessage, error) { return c.log.Blob(ctx, v) }
	text := ""
	for _, p := range parts {
		switch {
		case p.Type == chunk.PartStep:
			text = ""
		case p.Type == chunk.PartData && p.Name == "output":
			if output, err = resolve(p.Data); err != nil {
				return nil, err
			}
		case p.Type == chunk.PartText:
			if p, err = p.Whole(resolve); err != nil {
				return nil, err
			}
			text += p.Text
		}
	}
	if c.agent.Output != nil && output != nil {
		return output, nil
	}
	return json.Marshal(text)
}
