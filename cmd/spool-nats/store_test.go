package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What follows the question mark is taken for what it says, or refused with what is wanted.
// The text of a secret is in no error.
func TestOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const cluster = "dir=d&cluster=a:1,b:1,c:1&self=b:1&secret-file="
	secret := write("secret", "hush\n")
	for query, want := range map[string]string{
		"dir=d": "", "dir=d&prefix=p&sync=always&clients=127.0.0.1:0": "", cluster + secret: "", cluster + secret + "&replicas=1&sync=interval&bind=0.0.0.0:1": "",
		"":                                 "dir=PATH",
		"dir=":                             "one value for dir",
		"dir=a&dir=b":                      "one value for dir",
		"dir=d&sync=never":                 "sync=always or sync=interval",
		"dir=d&replicas=many":              "replicas=1, 3 or 5",
		"dir=d&replicas=3":                 "replicas=1, 3 or 5",
		"dir=d&password=hush":              "only dir, cluster",
		"dir=d&clients=0.0.0.0:1":          "a secret-file, or a loopback address",
		"dir=d&cluster=a:1&self=a:1":       "three or five members",
		cluster + write("empty", "\nhush"): "first line",
		cluster + write("long", strings.Repeat("hush", maxSecret)): "first line",
		cluster + filepath.Join(dir, "none"):                       "can be read",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		o, err := parseOptions(values)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush")):
			t.Errorf("%s: %v, want %q", query, err, want)
		case want == "" && strings.Contains(query, "secret") && o.Secret != "hush":
			t.Errorf("%s: the secret is %q", query, o.Secret)
		}
	}
}
