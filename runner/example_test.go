package runner_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool"
)

// An agent with one tool answers a message. The program that appends the message
// need not be the one that runs the agent, and whoever reads the log may come
// and go.
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

	session, err := logs.Log("holidays")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = session.Command(ctx, spool.Row{}, &spool.UserMessage{CommandID: "m1", Message: spool.Message{
		ID: "m1", Role: spool.RoleUser, Parts: []spool.Part{{Type: spool.PartText, Text: "weather in Rome?"}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for record, err := range session.Records(ctx, spool.ReadOptions{}) { // until the answer is settled
		if err != nil {
			fmt.Println(err)
			return
		}
		if record.Class == spool.Kept {
			fmt.Println(record.Type)
		}
	}
	err = session.View(ctx, func(f *spool.Fold) error {
		fmt.Println(f.Messages[1].Text())
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
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
