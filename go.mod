module github.com/spool-run/spool

go 1.26.0

ignore node_modules

require (
	github.com/evanphx/json-patch/v5 v5.9.11
	github.com/google/jsonschema-go v0.4.3
	github.com/wI2L/jsondiff v0.7.1
)

require (
	github.com/tidwall/gjson v1.18.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
)

require (
	github.com/google/go-cmp v0.7.0
	pgregory.net/rapid v1.3.0
)
