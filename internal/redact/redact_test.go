package redact_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/redact"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "",
		"nothing to hide":                   "nothing to hide",
		"bad key sk-abcdef0123456789":       "bad key [redacted]",
		"Authorization: Bearer abc.def-123": "Authorization: [redacted]",
		"authorization=Basic dXNlcjpwOnBhc3M= to":                              "authorization=[redacted] to",
		"x-api-key: hunter2hunter2, more":                                      "x-api-key: [redacted], more",
		`{"api_key":"hunter2","n":1}`:                                          `{"api_key":"[redacted]","n":1}`,
		"PASSWORD=hunter2 ok":                                                  "PASSWORD=[redacted] ok",
		`Get "https://u:p@host/x": refused`:                                    `Get "https://[redacted]@host/x": refused`,
		"postgres://me:pw@db:5432/x failed":                                    "postgres://[redacted]@db:5432/x failed",
		`Get "https://h/x?a=1&api_key=hunter2&b=2": EOF`:                       `Get "https://h/x?a=1&api_key=[redacted]&b=2": EOF`,
		"https://h/?X-Amz-Signature=abc123#top":                                "https://h/?X-Amz-Signature=[redacted]#top",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----!": "[redacted]!",
		"mail me@example.com":                                                  "mail me@example.com",
		"https://example.com/a@b":                                              "https://example.com/a@b",
		"the monkey=1 of ?donkey=1":                                            "the monkey=1 of ?donkey=[redacted]", // rather once too often
		"at most 20 tokens: 31 were asked for":                                 "at most 20 tokens: 31 were asked for",
		"the basic arithmetic, and the bearer of it.":                          "the basic arithmetic, and the bearer of it.",
	} {
		if got := redact.Text(in); got != want {
			t.Errorf("%q\nbecame %q\n   not %q", in, got, want)
		}
		if twice := redact.Text(redact.Text(in)); twice != want {
			t.Errorf("%q twice became %q", in, twice)
		}
	}
}

func TestSecrets(t *testing.T) {
	if got := redact.Secrets("it was hunter2hunter and hunter2 or abc", "hunter2", "hunter2hunter", "abc"); got != "it was [redacted] and [redacted] or abc" {
		t.Errorf("got %q", got)
	}
}

func TestLogger(t *testing.T) {
	const secret = "hunter2hunter2"
	var b strings.Builder
	log := redact.Logger(redact.Logger(slog.New(slog.NewTextHandler(&b, nil))))
	failed := errors.New("dial redis://admin:" + secret + "@host")
	log.With("err", failed).WithGroup("g").Error("failed", "text", "password="+secret, "n", 7, "err", failed,
		slog.Group("in", "err", failed), "later", lazy{failed}, "none", nil)
	if got := b.String(); strings.Contains(got, secret) || strings.Count(got, redact.Mark) != 5 || !strings.Contains(got, "g.n=7 ") {
		t.Error(got)
	}
}

type lazy struct{ err error }

func (l lazy) LogValue() slog.Value { return slog.AnyValue(l.err) }
