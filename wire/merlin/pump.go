package merlin

import (
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// pump writes the frames of a [Streamer] at a pace. Frames are queued, and a goroutine
// writes them as long as there are some. Whoever queued frames waits until they are
// written, so that no goroutine writes once no method of the streamer runs.
//
// All of it is under the streamer's lock but the writing and the pauses.
type pump struct {
	slicer
	queued  int // frames, since the beginning
	written int
	running bool
	rush    bool          // what is queued is written without pauses
	wake    chan struct{} // ends a pause
	moved   *sync.Cond    // frames were written, or cannot be
}

func newPump(table []Pace, lock sync.Locker) *pump {
	return &pump{slicer: newSlicer(table), wake: make(chan struct{}, 1), moved: sync.NewCond(lock)}
}

// add queues frames to be sent with send, which returns the error of all that follows.
func (p *pump) add(frames []spool.Frame, send func([]byte) error, failed *error) {
	for _, f := range frames {
		p.queue = append(p.queue, pacedFrame{data: f.Data, content: contentOf(f.Data)})
	}
	p.queued += len(frames)
	if !p.running {
		p.running = true
		go p.run(send, failed)
	}
}

// run writes what is queued. It ends after the pause that follows the last slice.
func (p *pump) run(send func([]byte) error, failed *error) {
	p.moved.L.Lock()
	defer p.moved.L.Unlock()
	for len(p.queue) > 0 && *failed == nil {
		out, pause := p.next()
		p.moved.L.Unlock()
		err := send(out)
		p.moved.L.Lock()
		*failed = err
		p.written = p.queued - len(p.queue)
		p.moved.Broadcast()
		if pause > 0 && err == nil && !p.rush {
			p.moved.L.Unlock()
			p.pause(pause)
			p.moved.L.Lock()
		}
	}
	p.running, p.rush = false, false
	p.queue = nil
	p.written = p.queued
	p.moved.Broadcast()
}

// next takes from the queue what may be written at once, and returns the pause after it.
func (p *pump) next() (out []byte, pause time.Duration) {
	for len(p.queue) > 0 && len(out) < sliceBytes && (pause == 0 || p.rush) {
		if head := &p.queue[0]; head.content == "" {
			out = append(out, head.data...)
			p.queue = p.queue[1:]
			continue
		}
		out, pause = p.slice(out)
	}
	return out, pause
}

func (p *pump) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.wake:
	}
}

// hurry has what is queued written without pauses.
func (p *pump) hurry() {
	if !p.running {
		return
	}
	p.rush = true
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// wait returns when what was queued so far is written, but for the last frames, or when
// it cannot be.
func (p *pump) wait(last int) {
	for mine := p.queued - last; p.written < mine; {
		p.moved.Wait()
	}
}
