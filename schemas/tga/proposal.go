package tga

import "bytes"

// RequestDigest returns the digest that says two calls of one idempotency key are the
// same call: SHA-256 of the canonical {args, tool_name, tool_server}. p.Args must be
// canonical.
func RequestDigest(p Proposal) Digest {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	encoded := p.append((*buf)[:0])
	if cap(encoded) <= mostKept {
		*buf = encoded
	}
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
