// Package stream is for producers that have an agent of their own.
//
// A stream is a session's log. A [Manager] opens runs in it, writes, ends, pauses and
// reads them; [External] is the same for producers in other processes. Both stand on
// one state machine. A [StateStore] is a session's state, messages and current run.
// Filters, combinators and collectors take any of these streams.
package stream
