//go:build nodes

package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"
)

// readerJob is what a real client does in a session: see web/conformance/readers.mjs.
type readerJob struct {
	ID      int      `json:"id"`
	Client  string   `json:"client"`
	Servers []string `json:"servers"`
	Session string   `json:"session"`
	Message string   `json:"message,omitempty"`
	Text    string   `json:"text,omitempty"`
	Decide  bool     `json:"decide,omitempty"`
}

type readerResult struct {
	ID        int
	Error     string
	Status    string
	Messages  json.RawMessage
	Reloads   int
	Decisions int
}

// readers are real clients in a process of Node.
type readers struct {
	mu      sync.Mutex
	in      io.WriteCloser
	last    int
	waiting map[int]chan readerResult
	over    error
}

func newReaders(t *testing.T) *readers {
	cmd := exec.Command("node", "../../web/conformance/readers.mjs")
	errs := &lines{}
	cmd.Stderr = errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &readers{in: in, waiting: map[int]chan readerResult{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.listen(out, errs)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	return r
}

// listen hands out results until the process ends.
func (r *readers) listen(out io.Reader, errs *lines) {
	scan := bufio.NewScanner(out)
	scan.Buffer(nil, 16<<20)
	for scan.Scan() {
		var result readerResult
		if json.Unmarshal(scan.Bytes(), &result) != nil {
			continue // a client that writes to the console
		}
		r.mu.Lock()
		done := r.waiting[result.ID]
		delete(r.waiting, result.ID)
		r.mu.Unlock()
		if done != nil {
			done <- result
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = fmt.Errorf("the process of the readers has ended: %s", errs)
	for id, done := range r.waiting {
		done <- readerResult{Error: r.over.Error()}
		delete(r.waiting, id)
	}
}

// begin gives a client a job. Its result comes on the channel.
func (r *readers) begin(job readerJob) <-chan readerResult {
	done := make(chan readerResult, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	job.ID = r.last
	line, err := json.Marshal(job)
	if err == nil {
		err = r.over
	}
	if err == nil {
		_, err = r.in.Write(append(line, '\n'))
	}
	if err != nil {
		done <- readerResult{Error: err.Error()}
		return done
	}
	r.waiting[job.ID] = done
	return done
}

func (r readerResult) err() error {
	if r.Error == "" {
		return nil
	}
	return errors.New(r.Error)
}
