package ledger

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// KeyOf returns the key that a tool_call claims. The namespace is that of the
// trace's request; "" means [tga.DefaultNamespace].
func KeyOf(namespace string, call *tga.Artifact) Key {
	if namespace == "" {
		namespace = tga.DefaultNamespace
	}
	return Key{
		Namespace: namespace,
		Server:    call.Call.Call.ToolServer,
		Tool:      call.Call.Call.ToolName,
		Key:       call.Call.IdempotencyKey,
	}
}

// Hash returns the SHA-256 of the four parts in the order of the fields, each
// preceded by its length in four bytes, big-endian. Without the lengths "a"+"bc"
// and "ab"+"c" would be one key, and one tenant could claim another's.
func (k Key) Hash() [32]byte {
	parts := [...]string{k.Namespace, k.Server, k.Tool, k.Key}
	size := 0
	for _, p := range parts {
		size += 4 + len(p)
	}
	buf := make([]byte, 0, size)
	for _, p := range parts {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(p)))
		buf = append(buf, p...)
	}
	return sha256.Sum256(buf)
}
