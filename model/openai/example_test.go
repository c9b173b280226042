package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/spool-run/spool/chunk"
	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/openai"
)

func Example() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"Four."}}]}`+"\n\n")
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer endpoint.Close()

	m := openai.New(&openai.Options{BaseURL: endpoint.URL, Model: "small"})
	request := &model.Request{Messages: []chunk.Message{
		{Role: chunk.RoleUser, Parts: []chunk.Part{{Type: chunk.PartText, Text: "Two and two?"}}},
	}}
	for part, err := range m.Stream(context.Background(), request) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch p := part.(type) {
		case model.TextDelta:
			fmt.Println(p.Delta)
		case model.Finish:
			fmt.Println(p.Reason)
		}
	}
	// Output:
	// Four.
	// stop
}
