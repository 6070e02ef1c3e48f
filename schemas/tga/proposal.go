package tga

import (
	"bytes"
	"strings"
)

// RequestDigest returns the digest by which two calls with one idempotency key are recognised
// as the same call: SHA-256 of the canonical {args, tool_name, tool_server}. p.Args must be
// canonical.
func RequestDigest(p Proposal) Digest {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	encoded := p.append((*buf)[:0])
	keep(buf, encoded)
	return Sum(encoded)
}

// Equal reports whether p and q are the same call byte for byte.
func (p Proposal) Equal(q Proposal) bool {
	return p.ToolServer == q.ToolServer && p.ToolName == q.ToolName && bytes.Equal(p.Args, q.Args)
}

func (p Proposal) append(dst []byte) []byte {
	o := newObject(dst)
	o.raw("args", p.Args)
	o.str("tool_name", p.ToolName)
	o.str("tool_server", p.ToolServer)
	return o.end()
}

// CleanName reports whether s may name a tool server or a tool of a new request: 1 to
// 128 of A-Z a-z 0-9 _ . / -, no "/" at either end, and no segment that is empty, "."
// or "..". Rules, licences, ledger keys and URLs are all looked up by the exact name. If
// another program cleaned or joined a name to a different one, the call would be approved as
// one tool and run as another.
//
// Older logs may hold other names, so decoding an artifact checks only the alphabet.
func CleanName(s string) bool {
	if !isToolName(s) {
		return false
	}
	for segment := range strings.SplitSeq(s, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// CleanNameForm says what [CleanName] wants, for error messages.
const CleanNameForm = "1 to 128 of A-Z a-z 0-9 _ . / -, without / at an end and without an empty, . or .. segment"

// CheckNames returns VALIDATION_ERROR, with a pointer into the proposal, where one of
// the names is not clean.
func (p Proposal) CheckNames() error {
	switch {
	case !CleanName(p.ToolServer):
		return Errorf(ValidationError, "tool_server %.140q: want %s", p.ToolServer, CleanNameForm).At("/tool_server")
	case !CleanName(p.ToolName):
		return Errorf(ValidationError, "tool_name %.140q: want %s", p.ToolName, CleanNameForm).At("/tool_name")
	}
	return nil
}
