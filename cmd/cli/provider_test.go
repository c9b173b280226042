package cli

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spool-run/spool/model/modeltest"
)

// providerScript is "provider NAME RECORDING EVENT": it begins a provider of
// background answers, which servers that begin later are told of. Who asks for an
// answer gets it up to that event, and then silence; who asks for it again gets
// the rest.
func providerScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: provider NAME RECORDING EVENT")
	}
	held, err := strconv.Atoi(args[2])
	ts.Check(err)
	data, err := os.ReadFile(filepath.Join("../../model/modeltest/testdata/openai-responses", args[1]+".sse"))
	ts.Check(err)
	b, err := modeltest.NewBackground(data)
	ts.Check(err)
	b.Before = func(e modeltest.Event) modeltest.Fate {
		if e.Connection == 0 && e.Number == held {
			return modeltest.Stall
		}
		return modeltest.Send
	}
	o, err := modeltest.NewOutage(b)
	ts.Check(err)
	ts.Defer(o.Down)
	ts.Setenv("PROVIDER", o.URL())
	providers := ts.Value("providers").(map[string]*modeltest.Background)
	providers[args[0]] = b
}

// askedScript is "asked NAME": it prints what the provider was asked for.
func askedScript(ts *testscript.TestScript, neg bool, args []string) {
	b := ts.Value("providers").(map[string]*modeltest.Background)[args[0]]
	if b == nil {
		ts.Fatalf("no provider is called %s", args[0])
	}
	_, _ = fmt.Fprintf(ts.Stdout(), "asked %d, cancelled %v\n", b.Asked(), b.Cancelled())
}

// stopScript is "halt NAME SESSION".
func stopScript(ts *testscript.TestScript, neg bool, args []string) {
	res, err := http.Post(running(ts, args[0]).url+"/api/chat/"+args[1]+"/stop", "application/json", nil)
	ts.Check(err)
	answer(ts, neg, res)
}
