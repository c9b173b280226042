package scripted_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/scripted"
)

func Example() {
	m := scripted.New(&scripted.Options{Scenes: map[string]scripted.Scene{
		"weather": scripted.Steps(
			scripted.Say(scripted.Calls(scripted.ToolCall{ID: "1", Name: "get_weather", Arguments: `{"city":"Oslo"}`})),
			scripted.Say(scripted.Text("It rains.")),
		),
	}})
	request := &model.Request{Messages: []chunk.Message{
		{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "Weather in Oslo?"}}},
	}}
	for part, err := range m.Stream(context.Background(), request) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch p := part.(type) {
		case model.ToolCallEnd:
			fmt.Println(p.Name, p.Arguments)
		case model.Finish:
			fmt.Println(p.Reason)
		}
	}
	// Output:
	// get_weather {"city":"Oslo"}
	// tool-calls
}
