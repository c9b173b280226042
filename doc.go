// Package spool is the log of durable, resumable AI-agent runs.
//
// Everything that happens in a session is one typed [chunk.Chunk] in one ordered log,
// stored as a [chunk.Record]. A [Store] keeps logs; a [Log] reads and writes one;
// a [fold.Fold] of a log's records is the session's state. Client protocols are
// projections of the log, each a [Projector] in a package below wire.
package spool
