package cli

import (
	"io"
	"iter"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/anthropic"
	"github.com/spool-run/spool/model/openai"
)

// ingesters has the parser of each provider protocol.
var ingesters = map[string]func(src io.Reader, onData func()) iter.Seq2[model.Part, error]{
	"openai-chat": func(src io.Reader, onData func()) iter.Seq2[model.Part, error] {
		return openai.Ingest(src, &openai.IngestOptions{OnData: onData})
	},
	"openai-responses": func(src io.Reader, onData func()) iter.Seq2[model.Part, error] {
		return openai.IngestResponses(src, &openai.IngestOptions{OnData: onData})
	},
	"anthropic": func(src io.Reader, onData func()) iter.Seq2[model.Part, error] {
		return anthropic.Ingest(src, &anthropic.IngestOptions{OnData: onData})
	},
}
