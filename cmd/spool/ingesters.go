package main

import (
	"io"
	"iter"

	"github.com/spool-run/spool/model"
	"github.com/spool-run/spool/model/openai"
)

// ingesters take each provider protocol apart.
var ingesters = map[string]func(src io.Reader, onData func()) iter.Seq2[model.Part, error]{
	"openai-chat": func(src io.Reader, onData func()) iter.Seq2[model.Part, error] {
		return openai.Ingest(src, &openai.IngestOptions{OnData: onData})
	},
}
