package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/tgad/tgad/keyspace"
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

// Hash returns the [keyspace.Hash] of the four parts in the order of the fields.
func (k Key) Hash() [32]byte { return keyspace.Hash(k.Namespace, k.Server, k.Tool, k.Key) }

// BeginHash names a begin id: the [keyspace.Hash] of namespace, submitter and id. The submitter is a
// part of it, for two submitters may choose one id. "" is [tga.DefaultNamespace].
func BeginHash(namespace, submitter, beginID string) [32]byte {
	if namespace == "" {
		namespace = tga.DefaultNamespace
	}
	return keyspace.Hash(namespace, submitter, beginID)
}

// DeriveKey makes the idempotency key of a call whose caller has none: the
// hex SHA-256 of scope, step, tool and canonical arguments, each after a zero byte but
// the first, and for occurrence n > 0 of a zero byte and n in decimal too. Server and
// namespace stand beside it in the ledger key. A zero byte in scope, step or tool would
// shift the parts and is refused with VALIDATION_ERROR; canonical JSON holds none.
func DeriveKey(scope, step, tool string, canonicalArgs []byte, occurrence uint64) (string, error) {
	h := sha256.New()
	for i, p := range [...]string{scope, step, tool} {
		if strings.IndexByte(p, 0) >= 0 {
			return "", tga.Errorf(tga.ValidationError, "derive a key: %s holds a zero byte", [...]string{"scope", "step", "tool"}[i])
		}
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	if bytes.IndexByte(canonicalArgs, 0) >= 0 {
		return "", tga.Errorf(tga.ValidationError, "derive a key: the arguments hold a zero byte: they are not canonical JSON")
	}
	h.Write(canonicalArgs)
	if occurrence > 0 {
		h.Write([]byte{0})
		h.Write(strconv.AppendUint(nil, occurrence, 10))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
