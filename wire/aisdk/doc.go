// Package aisdk is the UI message stream of the Vercel AI SDK as a projection of
// a log: what useChat and the other clients of npm's "ai" read.
//
// The client has no cursor. Whatever it is sent when it attaches must rebuild
// the turn's whole message, from "start" with the message's id; [Projector]
// gives that as its plan, compacted, and goes on from there record by record.
// Frames keep to the fields of ai 6.0.0, whose clients refuse any other; what
// only ai 7 understands needs [Options.UI7].
//
// [Wire] is the wire as a value. The package also converts messages to the client's
// own form ([ConvertToUIMessage]) so that a loaded history and a streamed message
// are equal, reads what clients send ([ParseBody], [ParseMessage]), and offers the
// stream as a plain function over chunks ([Transformer]) to programs that have no
// log.
package aisdk
