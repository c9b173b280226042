package sim_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/client"
)

// producer writes runs of an agent that lives outside the nodes.
type producer struct {
	w       *world
	name    string
	chance  chance
	session *client.Session
	stored  []string // what was acknowledged, word by word
}

// producers returns the producers of this simulation.
func (w *world) producers() (list []*producer) {
	for i := range w.random("producers").IntN(3) {
		p := &producer{w: w, name: fmt.Sprintf("p%d", i+1)}
		p.chance.rnd = w.random("producer " + p.name)
		p.session = w.newClient(&p.chance).Session(p.name)
		list = append(list, p)
	}
	return list
}

// live writes a run, or another one if that was taken from it.
func (p *producer) live() {
	time.Sleep(p.chance.upTo(20 * time.Second))
	for n := 1; p.w.ctx.Err() == nil; n++ {
		if p.write(n) {
			return
		}
		time.Sleep(p.chance.upTo(5 * time.Second))
	}
	p.w.fail("%s is stuck", p.name)
}

// write writes a whole run, and reports whether it could.
func (p *producer) write(n int) bool {
	to, err := p.session.Claim(p.w.ctx, client.ClaimOptions{Agent: "outside"})
	if err != nil {
		p.w.happened("%s cannot claim: %v", p.name, err)
		return false
	}
	p.w.happened("%s writes run %s", p.name, to.Claim().RunID)
	for i := range 5 + int(p.chance.below(20)) {
		word := fmt.Sprintf("%s-%d-%d ", p.name, n, i)
		if !p.done(to, to.Append(p.w.ctx, &chunk.TextDelta{Delta: word})) {
			return false
		}
		p.stored = append(p.stored, word)
		time.Sleep(p.chance.upTo(500 * time.Millisecond))
	}
	return p.done(to, to.End(p.w.ctx, client.EndOptions{}))
}

// done reports whether an append was stored. One whose outcome is open is sent again.
func (p *producer) done(to *client.Producer, err error) bool {
	for err != nil && p.w.ctx.Err() == nil {
		p.w.happened("%s: %v", p.name, err)
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status < 500 || errors.Is(err, spool.ErrSuperseded) {
			return false
		}
		time.Sleep(time.Second)
		err = to.Keep(p.w.ctx)
	}
	return err == nil
}

// check checks that what was acknowledged is in the log, once and in order, and nothing
// else but what a run that was taken away may have stored unacknowledged.
func (p *producer) check(t *truth) {
	if p.w.store.lost() > 0 {
		return
	}
	var said []string
	for _, r := range t.records {
		if r.Type != chunk.TypeTextDelta {
			continue
		}
		if c, err := chunk.Decode(r.Data); err == nil {
			said = append(said, strings.SplitAfter(strings.TrimSuffix(c.(*chunk.TextDelta).Delta, " ")+" ", " ")[0])
		}
	}
	at := 0
	seen := map[string]bool{}
	for _, word := range said {
		if seen[word] {
			p.w.fail("%s: %s is there twice", p.name, word)
		}
		seen[word] = true
		if at < len(p.stored) && p.stored[at] == word {
			at++
		}
	}
	if at < len(p.stored) {
		p.w.fail("%s: %s was acknowledged and is not there, in order: %v", p.name, p.stored[at], said)
	}
}
