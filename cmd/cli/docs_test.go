package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/memstore"
)

// serveDemo serves the demo's agent with a model until the test ends.
func serveDemo(t *testing.T, m model.Model) *httptest.Server {
	t.Helper()
	store := memstore.New(nil)
	logs := spool.NewLogs(store, nil)
	runs, err := runner.New(logs, []*agent.Agent{demoAgent(m, 0, demoLimits{})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = runs.Run(t.Context()) }()
	s := httptest.NewServer(server.New(logs, nil))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		_ = logs.Close()
		_ = store.Close()
	})
	return s
}

// What the documents ask of a server by curl, in their order, is answered.
func TestCurlInDocs(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`'[^']*'|\S+`)
	for _, doc := range []string{"http.md", "merlin.md"} {
		s := serveDemo(t, scripted.New(nil))
		text, err := os.ReadFile("../../docs/" + doc)
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "curl ") {
				continue
			}
			asked++
			method, url, body := http.MethodGet, "", ""
			for args := words.FindAllString(line, -1)[1:]; len(args) > 0; args = args[1:] {
				switch arg := strings.Trim(args[0], "'"); arg {
				case "-N":
				case "-X":
					method, args = args[1], args[1:]
				case "-d":
					method, body, args = http.MethodPost, strings.Trim(args[1], "'"), args[1:]
				default:
					url = strings.Replace(arg, "localhost:8080", s.URL, 1)
				}
			}
			req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode > 299 || len(answer) == 0 && method != http.MethodDelete {
				t.Errorf("%s: %s%v %s: %q", doc, line, err, res.Status, answer)
			}
		}
		if asked == 0 {
			t.Errorf("%s holds no curl", doc)
		}
	}
}
