// Package sse reads and writes server-sent events as the WHATWG HTML standard
// defines them.
package sse
