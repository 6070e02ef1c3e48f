package keyspace

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// The streams. The id of a stream is the id of a trace, a turn or a family, or it is derived
// from a name that only one owner uses. docs/FORMAT.md says what each item holds.
//
//	named by                                        items
//	occurrence, namespace, server, derived key      0: counter of a derived key
//	undelivered, identity of a call                 0: identical calls whose answers were not delivered
//	executor, trace                                 0: lock of the trace's remote executor
//	instead, trace                                  0: key of the call that ran instead of the trace's
//	kept, namespace, server                         by the digest of a name: value that an executor keeps
//	turn                                            records from 1; from OpsItem: what a call did to the state
//	session, agent, session                         number of a turn
//	open turns                                      by the digest of a turn's id: turn that has not ended
//	delegations, root turn                          number of a delegation
//	state scope, mode, id                           0: head; by the digest of a key: list of keys
//	state key, stream of the scope, key             version of the key's value
//	family of working states                        StateKey: head of a state, boundaries of it

// Hash returns the SHA-256 of parts, each preceded by its length in four bytes, big-endian.
// Without the lengths, "a"+"bc" and "ab"+"c" would be the same name, and a tenant could use
// the name of another tenant.
func Hash(parts ...string) [32]byte {
	var room [512]byte // enough for most keys: no memory is allocated for one
	buf := room[:0]
	for _, p := range parts {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(p)))
		buf = append(buf, p...)
	}
	return sha256.Sum256(buf)
}

// stream returns the id of the stream with a name.
func stream(name ...string) tga.ID {
	sum := Hash(name...)
	return tga.MakeID([16]byte(sum[:16]))
}

// ofRuntime returns the id of a stream of package runtime. Its name has the parts of a ledger
// key, with the kind of the stream in the place of the tool.
func ofRuntime(kind, namespace, server, key string) tga.ID {
	return stream(namespace, server, kind, key)
}

// OccurrenceKey is the owner's key of the counter of a derived idempotency key; base is the
// key of occurrence 0.
func OccurrenceKey(namespace, server, base string) []byte {
	return StreamKey(ofRuntime("tgad occurrence v1", namespace, server, base), 0)
}

// UndeliveredKey is the owner's key of the list of identical calls whose answers were not
// delivered.
func UndeliveredKey(identity string) []byte {
	return StreamKey(ofRuntime("tgad undelivered v1", "", "", identity), 0)
}

// ExecutorKey is the owner's key of the row about a trace's newest remote executor: the lock that
// it holds, or that it gave its attempt up.
func ExecutorKey(trace tga.ID) []byte {
	return StreamKey(ofRuntime("tgad executor v1", "", "", trace.String()), 0)
}

// InsteadKey is the owner's key of the row that names the call which ran instead of a trace's
// call.
func InsteadKey(trace tga.ID) []byte {
	return StreamKey(ofRuntime("tgad instead v1", "", "", trace.String()), 0)
}

// KeptStream is the stream of the values that remote executors keep about a tool server.
func KeptStream(namespace, server string) tga.ID {
	return ofRuntime("tgad kept v1", namespace, server, "")
}

// KeptKey is the owner's key of one value in a [KeptStream].
func KeptKey(stream tga.ID, name string) []byte {
	return StreamKey(stream, item(tga.Sum([]byte(name))))
}

// OpsItem is the first item of a turn's stream that is not a record of the turn. Item
// OpsItem | i holds the changes that call i of the turn made to the state.
const OpsItem = uint64(1) << 40

// TurnStream returns the id of a named stream that agents' turns share. A turn's own stream
// has the turn's id.
func TurnStream(parts ...string) tga.ID {
	name := []byte("tgad turn v1")
	for _, p := range parts {
		name = append(binary.BigEndian.AppendUint64(name, uint64(len(p))), p...)
	}
	sum := tga.Sum(name)
	return tga.MakeID([16]byte(sum[:16]))
}

// OpenTurns is the stream of the turns that have not ended.
func OpenTurns() tga.ID { return TurnStream("open turns") }

// OpenTurnKey is the owner's key of a turn in [OpenTurns].
func OpenTurnKey(turn tga.ID) []byte { return StreamKey(OpenTurns(), item(tga.Sum(turn[:]))) }

// ScopeStream is the stream of a scope of agents' state.
func ScopeStream(mode, id string) tga.ID { return stream("tgad state scope v1", mode, id) }

// AgentStream is the stream of the scope that a session of an agent works on. Without a session it is
// the stream of the scope that the agent keeps across its sessions.
func AgentStream(agent, session string) tga.ID {
	if session == "" {
		return ScopeStream("persistent", agent)
	}
	return ScopeStream("session", agent+"\x00"+session)
}

// ValueStream is the stream of one key's values in a scope. scope is the scope's own stream.
func ValueStream(scope tga.ID, key string) tga.ID {
	return stream("tgad state key v1", string(scope[:]), key)
}

// ListBit is set in the first byte of the item number of every list of a scope's keys. So no
// list can be item 0, which is the scope's head.
const ListBit = 0x80

// ListItem is the item of a scope's stream that lists a key.
func ListItem(key string) uint64 { return item(Hash("tgad state slot v1", key)) | ListBit<<56 }

// StateKey is the owner's key of boundary n of a working state, or of the state's head for n
// 0. number is the state's number in its family, whose stream the key is in. n is less than
// 1 << 40.
func StateKey(family tga.ID, number uint32, n uint64) []byte {
	return StreamKey(family, uint64(number)<<40|n)
}

// ParseState reads what [StateKey] makes.
func ParseState(key []byte) (family tga.ID, number uint32, n uint64, err error) {
	family, item, err := ParseStream(key)
	return family, uint32(item >> 40), item & (1<<40 - 1), err
}

// NodeKey is the owner's key of the blob that is a node of a family's working states. It is
// an array, so that it can be the key of a map. It begins with the family's [NodePrefix].
func NodeKey(family tga.ID, node tga.Digest) (key [32]byte) {
	owner := tga.Sum(family[:])
	copy(key[:8], owner[:])
	copy(key[8:], node[:])
	return key
}

// NodePrefix is the common prefix of the owner's keys of all nodes of a family.
func NodePrefix(family tga.ID) []byte {
	owner := tga.Sum(family[:])
	return owner[:8]
}

// item numbers an item by the first eight bytes of a digest.
func item(digest [32]byte) uint64 { return binary.BigEndian.Uint64(digest[:]) }
