package server_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// cookieFor returns the cookie that names a user, for the handler that has checked the
// user's password. Nobody can make one without the key, which has 32 random bytes.
func cookieFor(key []byte, user string, until time.Time) *http.Cookie {
	named := until.UTC().Format(time.RFC3339) + " " + user
	return &http.Cookie{
		Name:  "user",
		Value: base64.RawURLEncoding.EncodeToString(append(sign(key, named), named...)),
		Path:  "/", Expires: until, HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode,
	}
}

// byCookie is a Principal: it reads the cookie.
func byCookie(key []byte) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		cookie, err := r.Cookie("user")
		if err != nil {
			return "", server.ErrUnauthenticated
		}
		value, err := base64.RawURLEncoding.DecodeString(cookie.Value)
		if err != nil || len(value) < sha256.Size {
			return "", server.ErrUnauthenticated
		}
		named := string(value[sha256.Size:])
		until, user, _ := strings.Cut(named, " ")
		end, err := time.Parse(time.RFC3339, until)
		if err != nil || !hmac.Equal(value[:sha256.Size], sign(key, named)) || time.Now().After(end) {
			return "", server.ErrUnauthenticated
		}
		return user, nil
	}
}

func sign(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// byToken is a Principal: users has the user of each token's SHA-256. Tokens are random,
// so their hashes are enough to check them, and a stolen list of hashes does not reveal
// them.
func byToken(users map[[sha256.Size]byte]string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		user, ok := users[sha256.Sum256([]byte(token))]
		if !bearer || !ok {
			return "", server.ErrUnauthenticated
		}
		return user, nil
	}
}

// teams is an Authorize: a team may read what its members own, and nobody but the
// monitor may read the metrics. All else is the owner's.
func teams(of map[string]string) func(context.Context, server.Access) error {
	return func(_ context.Context, a server.Access) error {
		switch {
		case a.Action == server.ActionOps && a.Principal == "monitor":
			return nil
		case a.Action == server.ActionRead && of[a.Owner] != "" && of[a.Owner] == of[a.Principal]:
			return nil
		}
		return server.OwnerOnly(a)
	}
}

// serveDemo serves an agent that plays a scene, and returns the server's address.
func serveDemo(o *server.Options) (url string, stop func()) {
	logs := spool.NewLogs(memstore.New(nil), nil)
	demo := &agent.Agent{Name: "demo", Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
		"hello": scripted.Steps(scripted.Say(scripted.Text("Hello!"))),
	}})}
	runs, err := runner.New(logs, []*agent.Agent{demo}, nil)
	if err != nil {
		panic(err)
	}
	go func() { _ = runs.Run(context.Background()) }()
	s := httptest.NewServer(server.New(logs, o))
	return s.URL, func() {
		s.Close()
		_ = runs.Close()
		_ = logs.Close()
	}
}

// show makes a request and prints the status.
func show(who, method, url, body string, prepare func(*http.Request)) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	if prepare != nil {
		prepare(r)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		panic(err)
	}
	fmt.Println(who, method, r.URL.Path, res.StatusCode)
}

func ExampleOptions_cookies() {
	key := []byte("32 random bytes from crypto/rand")
	url, stop := serveDemo(&server.Options{Principal: byCookie(key)})
	defer stop()
	as := func(user string, until time.Time) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(cookieFor(key, user, until)) }
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	const hello = `{"message":"hello"}`
	show("ann", "POST", url+"/api/chat/anns", hello, as("ann", tomorrow))
	show("ann", "GET", url+"/api/chat/anns/snapshot", "", as("ann", tomorrow))
	show("bob", "GET", url+"/api/chat/anns/snapshot", "", as("bob", tomorrow))
	show("bob", "POST", url+"/api/chat/anns", hello, as("bob", tomorrow))
	show("nobody", "GET", url+"/api/chat/anns/snapshot", "", nil)
	show("expired", "GET", url+"/api/chat/anns/snapshot", "", as("ann", time.Now().Add(-time.Hour)))
	show("forged", "GET", url+"/api/chat/anns/snapshot", "", func(r *http.Request) {
		r.AddCookie(cookieFor([]byte("another key"), "ann", tomorrow))
	})
	// Output:
	// ann POST /api/chat/anns 200
	// ann GET /api/chat/anns/snapshot 200
	// bob GET /api/chat/anns/snapshot 404
	// bob POST /api/chat/anns 404
	// nobody GET /api/chat/anns/snapshot 401
	// expired GET /api/chat/anns/snapshot 401
	// forged GET /api/chat/anns/snapshot 401
}

func ExampleOptions_tokens() {
	users := map[[sha256.Size]byte]string{
		sha256.Sum256([]byte("token-of-ann")):     "ann",
		sha256.Sum256([]byte("token-of-bob")):     "bob",
		sha256.Sum256([]byte("token-of-monitor")): "monitor",
	}
	url, stop := serveDemo(&server.Options{
		Principal: byToken(users),
		Authorize: teams(map[string]string{"ann": "red", "bob": "red"}),
	})
	defer stop()
	with := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	show("ann", "POST", url+"/api/chat/anns", `{"message":"hello"}`, with("token-of-ann"))
	show("bob", "GET", url+"/api/chat/anns/snapshot", "", with("token-of-bob"))
	show("bob", "POST", url+"/api/chat/anns/stop", "", with("token-of-bob"))
	show("monitor", "GET", url+"/metrics", "", with("token-of-monitor"))
	show("ann", "GET", url+"/metrics", "", with("token-of-ann"))
	show("nobody", "GET", url+"/sessions", "", with("guessed"))
	show("nobody", "GET", url+"/sessions", "", nil)
	// Output:
	// ann POST /api/chat/anns 200
	// bob GET /api/chat/anns/snapshot 200
	// bob POST /api/chat/anns/stop 404
	// monitor GET /metrics 200
	// ann GET /metrics 403
	// nobody GET /sessions 401
	// nobody GET /sessions 401
}

// The recipes in the document are the functions of this file, which the examples run.
func TestRecipesAreRun(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/access.md")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("example_access_test.go")
	if err != nil {
		t.Fatal(err)
	}
	recipes := 0
	for rest := string(doc); ; recipes++ {
		_, block, found := strings.Cut(rest, "```go\n")
		if !found {
			break
		}
		if block, rest, found = strings.Cut(block, "```"); !found {
			t.Fatal(errors.New("a block that does not end"))
		}
		for _, function := range strings.Split(strings.TrimSpace(block), "\n\n") {
			if !strings.Contains(string(own), function) {
				t.Errorf("the document's recipe is not what is run:\n%s", function)
			}
		}
	}
	if recipes < 3 {
		t.Errorf("the document has %d recipes", recipes)
	}
}
