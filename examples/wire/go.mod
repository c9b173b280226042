module example.com/plain

go 1.26.0

require github.com/spool-run/spool v0.0.0

require (
	github.com/evanphx/json-patch/v5 v5.9.11 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/tidwall/gjson v1.18.0 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	github.com/wI2L/jsondiff v0.7.1 // indirect
)

replace github.com/spool-run/spool => ../..
