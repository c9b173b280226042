package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
)

// outcome is what a call that a child makes, or that is about one, has come to.
type outcome struct {
	result json.RawMessage
	failed error // why there is no result; the model is told
}

// outcomeOf is the outcome whose result is the JSON of v.
func outcomeOf(v any) outcome {
	result, err := json.Marshal(v)
	return outcome{result, err}
}

// companionCall is a call of a companion tool, with what it finds of the child that
// it is about.
type companionCall struct {
	step    *step
	call    *call
	op      companionOp
	input   companionInput
	command string // id of the message that it may give to the child
	session string // the child's

	agent  *Agent // the child's; nil: there is no such child
	status childStatus
	told   bool   // the child has the message: the call was made before
	latest string // id of the child's last turn; "": it has none
}

var (
	errNoAgent    = errors.New("no companion has that name")
	errNoChild    = errors.New("there is no such child")
	errChildEnded = errors.New("the child was terminated")
)

// accompany makes a call of a companion tool. As delegate, it returns the call's
// outcome, or as an error what keeps it from having one.
func (s *step) accompany(ctx context.Context, op companionOp, c *call) (outcome, error) {
	if op == opList {
		return s.listChildren(ctx)
	}
	k := &companionCall{step: s, call: c, op: op, input: inputOf(c), command: commandOf(c.effectID)}
	if k.session = k.input.ChildID; op == opSpawn {
		k.session = c.child
	}
	if op == opSpawn && c.child == "" {
		return outcome{failed: errNoAgent}, nil
	}
	if err := k.find(ctx); err != nil {
		return outcome{}, err
	}
	if refusal := k.refusal(); refusal != nil {
		return outcome{failed: refusal}, nil
	}
	switch op {
	case opSpawn:
		return k.tell(ctx, k.input.Task)
	case opSend:
		return k.tell(ctx, k.input.Message)
	case opWait:
		return k.wait(ctx)
	case opTerminate:
		return k.terminate(ctx)
	}
	return k.report(ctx), nil
}

// find looks the child up in the log. A companion is a child of this agent, and not
// one that a sub-agent's call began.
func (k *companionCall) find(ctx context.Context) error {
	return k.step.run.Log.View(ctx, func(f *fold.Fold) error {
		kid := f.Child(k.session)
		if kid == nil || kid == f || kid.Mode == "" || !slices.Contains(f.Children, kid) {
			return nil
		}
		if companion := k.step.agent.companion(kid.AgentType); companion != nil {
			k.agent, k.status = companion.Agent, statusOf(kid)
		}
		k.told = kid.Verdict(k.command).State != fold.VerdictUnknown
		if t := kid.LastTurn(); t != nil {
			k.latest = t.ID
		}
		return nil
	})
}

// refusal returns why the call cannot be made, in words for the model, or nil.
func (k *companionCall) refusal() error {
	switch {
	case k.agent == nil:
		return errNoChild
	case (k.op == opSpawn || k.op == opSend) && depth(k.session) > k.step.run.maxDepth:
		return tooDeep(k.step.run.maxDepth)
	case (k.op == opSend || k.op == opWait) && k.status.Status == childTerminated && !k.told:
		return errChildEnded
	}
	return nil
}

func (k *companionCall) child() *child { return k.step.child(k.agent, k.session) }

// tell gives the child a message and sets it to work. A child in the background
// answers later; for any other the call lasts until it has.
func (k *companionCall) tell(ctx context.Context, text string) (outcome, error) {
	kid := k.child()
	if k.told && k.status.Status == childTerminated {
		return kid.finding(ctx, k.command)
	}
	if err := kid.tell(ctx, k.command, text); err != nil {
		return outcome{}, err
	}
	shift := k.step.run.crew.work(kid)
	if shift == nil {
		return outcome{failed: errChildEnded}, nil
	}
	if k.status.Mode == chunk.ChildBackground {
		return outcomeOf(childStatus{ChildID: k.session, Status: childWorking}), nil
	}
	if err := shift.wait(ctx); err != nil {
		return outcome{}, err
	}
	return kid.finding(ctx, k.command)
}

// wait lets the child do what it has to do, and returns its last answer.
func (k *companionCall) wait(ctx context.Context) (outcome, error) {
	kid := k.child()
	if k.status.busy() {
		shift := k.step.run.crew.work(kid)
		if shift == nil {
			return outcome{failed: errChildEnded}, nil
		}
		if err := shift.wait(ctx); err != nil {
			return outcome{}, err
		}
	}
	return kid.lastFinding(ctx)
}

// report says how the child is, and what it said last unless it is at work.
func (k *companionCall) report(ctx context.Context) outcome {
	if k.latest != "" && !k.status.busy() {
		answer, err := k.child().result(ctx, k.latest)
		if k.status.Result = answer; err != nil {
			k.status.Error = err.Error()
		}
	}
	return outcomeOf(k.status)
}

// terminate ends the child: what it does is stopped and settled, and it says no
// more.
func (k *companionCall) terminate(ctx context.Context) (outcome, error) {
	run := k.step.run
	run.crew.terminate(k.session)
	if err := run.Log.Flush(ctx); err != nil {
		return outcome{}, err
	}
	var chunks []chunk.Chunk
	err := run.Log.View(ctx, func(f *fold.Fold) error {
		chunks = f.Owed().EndChild(k.session, k.call.id, "the child was terminated")
		return nil
	})
	if err == nil && len(chunks) > 0 {
		err = run.Log.Append(ctx, chunks...)
	}
	if err != nil {
		return outcome{}, err
	}
	return outcomeOf(childStatus{ChildID: k.session, Agent: k.status.Agent, Status: childTerminated}), nil
}

// finding is what the child has answered to a message.
func (c *child) finding(ctx context.Context, command string) (outcome, error) {
	answer, err := c.result(ctx, command)
	if err != nil {
		return outcome{failed: err}, nil
	}
	return outcomeOf(childStatus{ChildID: c.session, Result: answer}), nil
}

// lastFinding is what the child has answered last.
func (c *child) lastFinding(ctx context.Context) (outcome, error) {
	latest := ""
	err := c.log.View(ctx, func(f *fold.Fold) error {
		if t := f.LastTurn(); t != nil {
			latest = t.ID
		}
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	return c.finding(ctx, latest)
}

func (s *step) listChildren(ctx context.Context) (outcome, error) {
	list := []childStatus{}
	err := s.run.Log.View(ctx, func(f *fold.Fold) error {
		for _, c := range f.Children {
			if c.Mode != "" {
				list = append(list, statusOf(c))
			}
		}
		return nil
	})
	return outcomeOf(list), err
}
