package merlin

// Version is a version of the protocol.
type Version int

const (
	V1 Version = 1 // content alone, paced
	V2 Version = 2 // indexed frames
)

// SyncIndex returns the index to stream at for a stream that wants index: never
// below current, the index that the conversation as a whole has reached, so that
// agents do not write into each other's blocks.
func SyncIndex(index, current int) int { return max(index, current) }

// InitialIndex returns the content index at which an agent begins: the higher of
// the conversation's and its event manager's in V2, and 0 in V1, which has none.
// The protocol also passes the agent's name, which decides nothing.
func InitialIndex(_ string, global, eventManager int, v Version) int {
	if v == V2 {
		return max(global, eventManager)
	}
	return 0
}
