package replay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/modeltest"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/model/replay"
)

const corpus = "../modeltest/testdata"

func open(t *testing.T, name string, o *replay.Options) *replay.Model {
	t.Helper()
	m, err := replay.New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func ask(name string, step int) *model.Request {
	return &model.Request{Step: step, Messages: []chunk.Message{{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: name}}}}}
}

// Every recording of the corpus plays as its ingester takes it apart.
func TestPlaysTheCorpus(t *testing.T) {
	m := open(t, corpus, nil)
	here := &openai.IngestOptions{From: "127.0.0.1"} // where recordings are played
	for format, ingest := range map[string]func(io.Reader) iter.Seq2[model.Part, error]{
		"openai-chat":      func(r io.Reader) iter.Seq2[model.Part, error] { return openai.Ingest(r, here) },
		"openai-responses": func(r io.Reader) iter.Seq2[model.Part, error] { return openai.IngestResponses(r, here) },
		"anthropic":        func(r io.Reader) iter.Seq2[model.Part, error] { return anthropic.Ingest(r, nil) },
	} {
		for file, data := range modeltest.Streams(t, filepath.Join(corpus, format), "*.sse") {
			want, wantErr := modeltest.Fold(modeltest.Collect(ingest(bytes.NewReader(data))))
			got, err := modeltest.Fold(modeltest.Collect(m.Stream(t.Context(), ask(format+"/"+filepath.Base(file), 1))))
			if !reflect.DeepEqual(got, want) || err != nil || wantErr != nil {
				t.Errorf("%s: %+v, %v\nwant %+v, %v", file, got, err, want, wantErr)
			}
		}
	}
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const hello = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}\n\n"

func says(t *testing.T, m *replay.Model, r *model.Request) modeltest.Answer {
	t.Helper()
	a, err := modeltest.Fold(modeltest.Collect(m.Stream(t.Context(), r)))
	if err != nil {
		t.Error(err)
	}
	return a
}

// Nothing outside the folder can be named.
func TestStaysInTheFolder(t *testing.T) {
	dir := t.TempDir()
	secret := write(t, dir, "secret.sse", hello)
	write(t, dir, "in/a.sse", hello)
	write(t, dir, "in/deep/b c.sse", hello)
	if err := os.Symlink(secret, filepath.Join(dir, "in/link.sse")); err != nil {
		t.Fatal(err)
	}
	m := open(t, filepath.Join(dir, "in"), nil)
	for _, name := range []string{"a.sse", " a\n", "./a.sse", "deep/b c", "deep/../a"} {
		if a := says(t, m, ask(name, 1)); len(a.Blocks) != 1 || a.Blocks[0].Text != "Hello" {
			t.Errorf("%q: %+v", name, a)
		}
	}
	for _, name := range []string{"../secret", "../secret.sse", secret, "link", "deep", "", ".", "deep/../../secret", "c:\\x", "a.sse\x00"} {
		a := says(t, m, ask(name, 1))
		if a.Error == nil || a.Error.Code != model.CodeInvalidRequest || a.Error.Retryable || !strings.Contains(a.Error.Message, "a.sse") {
			t.Errorf("%q: %+v", name, a)
		}
	}
}

// A file plays whatever is asked; later steps have files of their own, or end.
func TestSteps(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "a.sse", hello)
	write(t, dir, "a.2.sse", strings.ReplaceAll(hello, "Hello", "Again"))
	m := open(t, file, nil)
	for step, want := range []string{1: "Hello", 2: "Again"} {
		if step == 0 {
			continue
		}
		if a := says(t, m, ask("whatever", step)); len(a.Blocks) != 1 || a.Blocks[0].Text != want {
			t.Errorf("step %d: %+v", step, a)
		}
	}
	if a := says(t, m, ask("whatever", 3)); len(a.Blocks) != 0 || a.Finish != "stop" {
		t.Errorf("%+v", a)
	}
	if _, err := replay.New(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A recorded head makes the status.
func TestRecordedStatus(t *testing.T) {
	file := write(t, t.TempDir(), "busy.txt", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Type: application/json\r\n\r\n{\"error\":{\"message\":\"slow down\"}}")
	_, err := modeltest.Collect(open(t, file, nil).Stream(t.Context(), ask("", 1)))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeRateLimited || e.RetryAfter != 7*time.Second || e.StatusCode != 429 {
		t.Errorf("%+v", err)
	}
}

func TestSpeed(t *testing.T) {
	file := write(t, t.TempDir(), "slow.sse", ": +250ms\n"+strings.ReplaceAll(hello, `,"finish_reason":"stop"`, "")+"\n: +1s\n\n"+hello+"data: [DONE]\n\n")
	for _, tt := range []struct {
		rate float64
		want []time.Duration
	}{
		{0, []time.Duration{250 * time.Millisecond, time.Second}},
		{10, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}},
	} {
		slept := make(chan time.Duration, 10)
		m := open(t, file, &replay.Options{Rate: tt.rate, Sleep: func(ctx context.Context, d time.Duration) error {
			slept <- d
			return nil
		}})
		if a := says(t, m, ask("", 1)); a.Finish != "stop" || a.Blocks[0].Text != "HelloHello" {
			t.Errorf("%+v", a)
		}
		for i, want := range tt.want {
			if d := <-slept; d != want {
				t.Errorf("rate %v: pause %d is %v, not %v", tt.rate, i, d, want)
			}
		}
	}
}
