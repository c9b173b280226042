// Package merlin is the wire of the Merlin streamer, in both its versions.
//
// V2 sends indexed frames: every block of the answer (a text, a piece of
// reasoning, the calls of one model phase with their results and progress) has a
// content index, and every frame says whose it is. V1 sends content alone, with
// citation markers in it, and progress and attachments as events of their own;
// its pacing is the server's.
//
// Both are projections of the log like any other wire. Where the protocol's own
// description contradicts itself, the projector does what serves its readers,
// and [Literal] has the literal behaviour.
//
// [EventManager] is for tools and agents that show what they do, step by step.
// What it emits are progress chunks, so that steps survive a reload and show on
// every wire. [Streamer] writes an answer to a response without a log. [Reader] and
// [Client] are the client's side.
package merlin
