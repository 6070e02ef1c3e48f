package workstate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
)

// Node is an immutable piece of working state: bytes, and the nodes they refer to. It is
// named by the SHA-256 of its encoding, so equal content has one name and is stored once.
//
//	byte      1, the version
//	uvarint   number of kids
//	per kid   byte (1 where the kid has kids itself), digest[32]
//	rest      data
type Node struct {
	data   []byte
	kids   []*Node
	digest tga.Digest
}

const refSize = 1 + len(tga.Digest{})

// NewNode makes a node. The caller must not use data and kids afterwards.
func NewNode(data []byte, kids ...*Node) *Node {
	n := &Node{data: data, kids: kids}
	n.digest = tga.Sum(n.encode())
	return n
}

// Data returns the node's own bytes, which must not be changed.
func (n *Node) Data() []byte { return n.data }

// Kids returns the nodes that n refers to, which must not be changed.
func (n *Node) Kids() []*Node { return n.kids }

// Digest names the node and everything below it.
func (n *Node) Digest() tga.Digest { return n.digest }

func (n *Node) encode() []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen32+len(n.kids)*refSize+len(n.data))
	b = binary.AppendUvarint(append(b, tga.StateNodeVersion), uint64(len(n.kids)))
	for _, k := range n.kids {
		inner := byte(0)
		if len(k.kids) > 0 {
			inner = 1
		}
		b = append(append(b, inner), k.digest[:]...)
	}
	return append(b, n.data...)
}

// ref is a node's reference to a kid. inner says that the kid refers to others, so that
// a walk over digests need not read the leaves.
type ref struct {
	digest tga.Digest
	inner  bool
}

// decodeNode splits an encoding into references and data.
func decodeNode(b []byte) (kids []ref, data []byte, err error) {
	bad := func(what string) error {
		return tga.Errorf(tga.StateChecksumMismatch, "node of %d bytes: %s", len(b), what)
	}
	if len(b) == 0 || b[0] != tga.StateNodeVersion {
		return nil, nil, bad("unknown version")
	}
	count, size := binary.Uvarint(b[1:])
	if size <= 0 {
		return nil, nil, bad("no count of kids")
	}
	rest := b[1+size:]
	if count > uint64(len(rest)/refSize) {
		return nil, nil, bad("more kids than bytes")
	}
	for range count {
		r := ref{inner: rest[0] == 1}
		copy(r.digest[:], rest[1:])
		kids, rest = append(kids, r), rest[refSize:]
	}
	return kids, rest, nil
}

// walk visits n and what it refers to, each node once, kids before parents. It does not
// go below a node for which skip is true.
func (n *Node) walk(skip func(tga.Digest) bool, visit func(*Node)) {
	seen := map[tga.Digest]bool{}
	var down func(*Node)
	down = func(n *Node) {
		if seen[n.digest] || skip(n.digest) {
			return
		}
		seen[n.digest] = true
		for _, k := range n.kids {
			down(k)
		}
		visit(n)
	}
	down(n)
}

// jsonNode is the JSON form of a node with all that is below it.
type jsonNode struct {
	Data []byte     `json:"data,omitempty"`
	Kids []jsonNode `json:"kids,omitempty"`
}

func (n *Node) toJSON() jsonNode {
	j := jsonNode{Data: n.data}
	for _, k := range n.kids {
		j.Kids = append(j.Kids, k.toJSON())
	}
	return j
}

// Kinds of snapshot in JSON. A leaf whose bytes are JSON stands there as it is.
const (
	kindJSON = "json"
	kindNode = "node"
)

// exportNode returns the JSON form of a resource's snapshot, and its kind.
func exportNode(n *Node) (kind string, raw json.RawMessage, err error) {
	if len(n.kids) == 0 && json.Valid(n.data) && bytes.Equal(compact(n.data), n.data) {
		return kindJSON, n.data, nil
	}
	raw, err = json.Marshal(n.toJSON())
	return kindNode, raw, err
}
