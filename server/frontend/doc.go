// Package frontend is the AI SDK's side of a chat: the request bodies of its clients,
// snapshots and histories as its messages, and a [Handler] for programs that have
// their own HTTP framework.
package frontend
