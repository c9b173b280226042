package runner_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool"
)

// An agent with one tool answers a message. The program that executes it need not
// be the one that runs the agent, and readers of the log may come and go.
func Example() {
	type question struct {
		City string `json:"city" jsonschema:"name of the city"`
	}
	weather := tool.New("get_weather", "The weather in a city.",
		func(ctx tool.Context, in question) (string, error) {
			if err := ctx.Progress(tool.Progress{Label: "asking the station"}); err != nil {
				return "", err
			}
			return "sunny in " + in.City, nil
		})
	demo := &agent.Agent{
		Name: "demo",
		Model: scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{"weather": scripted.Steps(
			scripted.Say(scripted.Calls(scripted.ToolCall{ID: "c1", Name: "get_weather", Arguments: `{"city":"Rome"}`})),
			scripted.Say(scripted.Text("Take sunglasses.")),
		)}}),
		Tools: []tool.Tool{weather},
	}

	logs := spool.NewLogs(memstore.New(nil), nil)
	defer logs.Close()
	r, err := runner.New(logs, []*agent.Agent{demo}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	go r.Run(ctx)
	defer r.Close()

	in := runner.Text("weather in Rome?")
	in.Session = "holidays"
	h, err := runner.Execute(ctx, logs, in)
	if err != nil {
		fmt.Println(err)
		return
	}
	for record, err := range h.Stream(ctx, 0) { // until the answer is settled
		if err != nil {
			fmt.Println(err)
			return
		}
		if record.Class == chunk.Kept {
			fmt.Println(record.Type)
		}
	}
	result, err := h.Result(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Message.Text())
	// Output:
	// user_message
	// run_started
	// step_started
	// assistant_message
	// tool_start
	// tool_end
	// step_committed
	// checkpoint_created
	// step_started
	// assistant_message
	// step_committed
	// checkpoint_created
	// run_finished
	// Take sunglasses.
}
