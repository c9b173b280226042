// Package merlin is the wire of the Merlin streamer, in both its versions.
//
// V2 sends indexed frames: every block of the answer (a text, a piece of
// reasoning, the calls of one model phase with their results and progress) has a
// content index, and every frame has the index of its block. V1 sends content alone,
// with citation markers in it, and progress and attachments as events of their own.
// Its content is paced ([Paced]).
//
// [Wire] returns each version for a server. A [Projector] writes the wire as its
// description has it; where the original streamer contradicts that or loses
// something, [Literal] brings the original behaviour back.
//
// [EventManager] is for tools and agents that show what they do, step by step.
// What it emits are progress chunks, so that steps survive a reload and show on
// every wire. [Streamer] writes an answer to a response without a log. [Reader] and
// [Client] are the client's side.
package merlin
