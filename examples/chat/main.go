// Command chat is the smallest useful server: an agent with one typed tool whose
// answers survive refreshes, lost connections and kill -9.
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/openai"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/server"
	"github.com/spool-run/spool/store/sqlitestore"
	"github.com/spool-run/spool/tool"
	"github.com/spool-run/spool/web"
)

type City struct {
	Name string `json:"name" jsonschema:"the city"`
}

func main() {
	store, err := sqlitestore.Open("chat.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	logs := spool.NewLogs(store, nil)
	weather := tool.New("get_weather", "The weather in a city.", func(ctx tool.Context, in City) (string, error) {
		return "Sunny in " + in.Name, nil
	})
	helper := &agent.Agent{
		Name:         "helper",
		Instructions: "You are a helpful assistant.",
		Model:        openai.New(&openai.Options{BaseURL: os.Getenv("OPENAI_BASE_URL"), APIKey: os.Getenv("OPENAI_API_KEY")}),
		Tools:        []tool.Tool{weather},
	}
	runs, err := runner.New(logs, []*agent.Agent{helper}, nil)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(runs.Run(context.Background())) }()
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", server.New(logs, &server.Options{Assets: web.FS()})))
}
