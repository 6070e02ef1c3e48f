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

// BeginHash returns the [keyspace.Hash] of namespace, submitter and begin id. It includes the submitter
// because two submitters may choose the same id. The namespace "" is [tga.DefaultNamespace].
func BeginHash(namespace, submitter, beginID string) [32]byte {
	if namespace == "" {
		namespace = tga.DefaultNamespace
	}
	return keyspace.Hash(namespace, submitter, beginID)
}

// DeriveKey makes the idempotency key of a call whose caller has none: the hex SHA-256 of
// scope, step, tool and canonical arguments, separated by zero bytes, and for occurrence
// n > 0 followed by a zero byte and n in decimal. The derived key does not include server and
// namespace, because the ledger key has them too. A zero byte in scope, step or tool would
// make the separation ambiguous and is refused with VALIDATION_ERROR. Canonical JSON has none.
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
