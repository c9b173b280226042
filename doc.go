// Package spool makes AI-agent runs durable, resumable and watchable.
//
// Everything that happens in a session is one typed [Chunk] in one ordered log,
// stored as a [Record]. A [Store] keeps logs; a [Log] reads and writes one;
// a [Fold] of a log's records is the session's state. Client protocols are
// projections of the log, each a [Projector] in a package below wire.
package spool
