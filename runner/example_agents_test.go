package runner_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/fold"
	"github.com/spool-run/spool/model/scripted"
	"github.com/spool-run/spool/runner"
	"github.com/spool-run/spool/store/memstore"
	"github.com/spool-run/spool/tool"
)

// An agent asks another one. What the other does is in the same log.
func ExampleNew_subAgents() {
	researcher := &agent.Agent{Name: "researcher", Model: scripted.New(&scripted.Options{
		Default: scripted.Steps(scripted.Say(scripted.Text("It is 42."))),
	})}
	lead := &agent.Agent{
		Name:  "lead",
		Tools: []tool.Tool{agent.SubAgent(researcher, agent.SubAgentOptions{Description: "Finds things out."})},
		Model: scripted.New(&scripted.Options{Default: scripted.Steps(
			scripted.Say(scripted.Calls(scripted.ToolCall{ID: "c", Name: "subagent__researcher", Arguments: `{"task":"Find the answer."}`})),
			scripted.Say(scripted.Text("The researcher knows."))),
		})}

	store := memstore.New(nil)
	defer store.Close()
	logs := spool.NewLogs(store, nil)
	defer logs.Close()
	r, err := runner.New(logs, []*agent.Agent{lead}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() { cancel(); <-done }()

	log, err := logs.Log("chat")
	if err == nil {
		_, err = log.Command(ctx, spool.Row{}, &chunk.UserMessage{CommandID: "m1", Message: chunk.Message{
			ID: "m1", Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "What is it?"}}}})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, err := range log.Records(ctx, spool.ReadOptions{}) { // to the turn's end
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	err = log.View(ctx, func(f *fold.Fold) error {
		for _, a := range []*fold.Fold{f, f.Child("chat.1")} {
			fmt.Printf("%s: %s\n", a.Session, a.Messages[1].Text())
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// chat: The researcher knows.
	// chat.1: It is 42.
}
