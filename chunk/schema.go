package chunk

import (
	"bytes"
	_ "embed"
	"encoding/json"
)

//go:embed schema/chunk.schema.json
var chunkSchema []byte

// Schema returns the JSON Schema (draft 2020-12) of the chunks that this version
// knows, as they are stored. It is made from the types of this package. Readers
// must tolerate chunks of other types, and fields that a type does not have.
func Schema() json.RawMessage { return bytes.Clone(chunkSchema) }
