package aisdk

import (
	"encoding/json"
	"testing"
)

func TestRawValuesAreOneLine(t *testing.T) {
	for in, want := range map[string]string{"": "null", "{\n \"a\": [1,\r\n2]}": `{"a":[1,2]}`, `{"a": 1}`: `{"a": 1}`, "{\n": "null"} {
		if got := string(appendRaw(nil, json.RawMessage(in))); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestProviderMetadata(t *testing.T) {
	for in, ok := range map[string]bool{"": false, "null": false, `{}`: true, `{"p":{"k":1}}`: true, `{"p":1}`: false, `{"p":null}`: false, `[]`: false} {
		if got := providerMetadata(json.RawMessage(in)); (got != nil) != ok {
			t.Errorf("%s: %s", in, got)
		}
	}
}
