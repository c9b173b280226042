package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/term"
)

// console is where a person types. It reads a line when it is asked to, and no earlier:
// what is typed meanwhile waits.
type console struct {
	lines      chan typed    // one for each ask
	interrupts chan struct{} // Ctrl-C
	asks       chan string   // prompts
	end        func()

	editor *term.Terminal // nil if standard input is no terminal
	keys   *keys
}

// typed is a line, or why there is none.
type typed struct {
	text string
	err  error
}

// openConsole reads from standard input: lines that can be edited if it is a terminal,
// else plain ones.
func openConsole(ctx context.Context, std streams) (*console, error) {
	c := &console{lines: make(chan typed), interrupts: make(chan struct{}, 8), asks: make(chan string)}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt)
	c.end = func() { signal.Stop(signals) }
	go func() {
		for {
			select {
			case <-signals:
				c.interrupt()
			case <-ctx.Done():
				return
			}
		}
	}()
	read := bufio.NewReader(std.in)
	next := func(string) (string, error) {
		line, err := read.ReadString('\n')
		if line != "" && errors.Is(err, io.EOF) {
			err = nil
		}
		return line, err
	}
	in, isIn := terminal(std.in)
	out, isOut := terminal(std.out)
	if isIn && isOut {
		raw, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return nil, err
		}
		stop := c.end
		c.end = func() {
			stop()
			_ = term.Restore(int(in.Fd()), raw)
		}
		c.keys = newKeys(in, c.interrupt)
		c.editor = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{c.keys, out}, "")
		if w, h, err := term.GetSize(int(out.Fd())); err == nil && w > 0 && h > 0 {
			_ = c.editor.SetSize(w, h)
		}
		next = func(prompt string) (string, error) {
			c.editor.SetPrompt(prompt)
			c.keys.open(true)
			defer c.keys.open(false)
			return c.editor.ReadLine()
		}
	}
	go c.read(ctx, next)
	return c, nil
}

// read reads a line for each prompt.
func (c *console) read(ctx context.Context, next func(prompt string) (string, error)) {
	for {
		var t typed
		select {
		case prompt := <-c.asks:
			t.text, t.err = next(prompt)
		case <-ctx.Done():
			return
		}
		select {
		case c.lines <- t:
		case <-ctx.Done():
			return
		}
	}
}

func (c *console) interrupt() {
	select {
	case c.interrupts <- struct{}{}:
	default:
	}
}

// hide takes the prompt from the screen, so that other text can be shown, and keeps back
// what is typed; show brings it back. Between them the line is still being read.
func (c *console) hide(w io.Writer) {
	if c.editor != nil {
		c.keys.open(false)
		_, _ = io.WriteString(w, "\r\x1b[K")
	}
}

func (c *console) show() {
	if c.editor != nil {
		_, _ = c.editor.Write(nil) // shows the prompt, and what was typed
		c.keys.open(true)
	}
}

// output is what the printer writes to: in a raw terminal line ends need their CR.
func (c *console) output(w io.Writer) io.Writer {
	if c.editor == nil {
		return w
	}
	return crlf{w}
}

type crlf struct{ w io.Writer }

func (c crlf) Write(p []byte) (int, error) {
	if _, err := c.w.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// keys are the bytes that a terminal sends. Ctrl-C is taken out at once; others are kept
// back while a line is not being edited.
type keys struct {
	mu     sync.Mutex
	wake   *sync.Cond
	typed  []byte
	err    error
	opened bool
}

const ctrlC = 3

func newKeys(r io.Reader, interrupt func()) *keys {
	k := &keys{}
	k.wake = sync.NewCond(&k.mu)
	go func() {
		buf := make([]byte, 256)
		for {
			n, err := r.Read(buf)
			k.mu.Lock()
			for _, b := range buf[:n] {
				if b == ctrlC {
					interrupt()
					continue
				}
				k.typed = append(k.typed, b)
			}
			k.err = err
			k.wake.Broadcast()
			k.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return k
}

func (k *keys) open(yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.opened = yes
	k.wake.Broadcast()
}

// Read gives one line at most, so that what follows it waits for the next prompt.
func (k *keys) Read(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !k.opened || len(k.typed) == 0 && k.err == nil {
		k.wake.Wait()
	}
	if len(k.typed) == 0 {
		return 0, k.err
	}
	from := k.typed
	if end := bytes.IndexByte(from, '\r'); end >= 0 {
		from = from[:end+1]
	}
	n := copy(p, from)
	k.typed = k.typed[n:]
	return n, nil
}
