package workstate

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// A trie is an immutable map of strings to bytes. Its shape depends on its keys alone, so
// equal maps are equal nodes, and a change of one key makes one node a level.
//
// A bucket is a node without kids and holds up to bucketMax keys in order: uvarint
// count, then per key uvarint length, key, uvarint length, value. More keys are parted by
// the next four bits of the SHA-256 of the key: an inner node's data is a bitmap of the
// parts that exist, big-endian in two bytes, and a uvarint count of all keys below.
const bucketMax = 16

var emptyTrie = bucketOf(nil)

type pair struct {
	key   string
	value []byte
}

func bucketOf(pairs []pair) *Node {
	b := binary.AppendUvarint(nil, uint64(len(pairs)))
	for _, p := range pairs {
		b = append(binary.AppendUvarint(b, uint64(len(p.key))), p.key...)
		b = append(binary.AppendUvarint(b, uint64(len(p.value))), p.value...)
	}
	return NewNode(b)
}

// pairsOf reads a bucket.
func pairsOf(n *Node) ([]pair, error) {
	bad := tga.Errorf(tga.StateChecksumMismatch, "node %s is no bucket of keys", n.digest)
	count, size := binary.Uvarint(n.data)
	if size <= 0 || count > bucketMax {
		return nil, bad
	}
	b := n.data[size:]
	next := func() ([]byte, bool) {
		length, size := binary.Uvarint(b)
		if size <= 0 || length > uint64(len(b)-size) {
			return nil, false
		}
		out := b[size : size+int(length)]
		b = b[size+int(length):]
		return out, true
	}
	pairs := make([]pair, 0, count)
	for range count {
		key, ok := next()
		value, also := next()
		if !ok || !also {
			return nil, bad
		}
		pairs = append(pairs, pair{string(key), value})
	}
	return pairs, nil
}

// mustPairs reads a bucket that was checked or made here.
func mustPairs(n *Node) []pair {
	pairs, err := pairsOf(n)
	if err != nil {
		panic(err)
	}
	return pairs
}

func nibble(hash tga.Digest, depth int) uint {
	b := hash[depth/2]
	if depth%2 == 0 {
		b >>= 4
	}
	return uint(b & 15)
}

func trieCount(n *Node) int {
	skip := 0
	if len(n.kids) > 0 {
		skip = 2
	}
	count, _ := binary.Uvarint(n.data[skip:])
	return int(count)
}

// trieGet returns the value of a key.
func trieGet(n *Node, key string) (value []byte, ok bool) {
	hash := tga.Sum([]byte(key))
	for depth := 0; len(n.kids) > 0; depth++ {
		bits, bit := binary.BigEndian.Uint16(n.data), uint16(1)<<nibble(hash, depth)
		if bits&bit == 0 {
			return nil, false
		}
		n = n.kids[popcount(bits&(bit-1))]
	}
	for _, p := range mustPairs(n) {
		if p.key == key {
			return p.value, true
		}
	}
	return nil, false
}

func popcount(b uint16) (n int) {
	for ; b != 0; b &= b - 1 {
		n++
	}
	return n
}

// triePut returns n with the value of a key set, or the key removed where value is nil.
func triePut(n *Node, key string, value []byte) *Node {
	return put(n, 0, tga.Sum([]byte(key)), pair{key, value})
}

func put(n *Node, depth int, hash tga.Digest, p pair) *Node {
	if len(n.kids) == 0 {
		pairs := mustPairs(n)
		at, found := slices.BinarySearchFunc(pairs, p.key, func(p pair, key string) int { return cmp.Compare(p.key, key) })
		switch {
		case p.value == nil && !found:
			return n
		case p.value == nil:
			pairs = slices.Delete(pairs, at, at+1)
		case found:
			pairs[at] = p
		default:
			pairs = slices.Insert(pairs, at, p)
		}
		return trieOf(pairs, depth)
	}
	parts := partsOf(n)
	slot := nibble(hash, depth)
	old := parts[slot]
	if old == nil {
		old = emptyTrie
	}
	next := put(old, depth+1, hash, p)
	if next == old {
		return n
	}
	if parts[slot] = next; trieCount(next) == 0 {
		delete(parts, slot)
	}
	return join(parts, depth)
}

// trieOf makes a trie of pairs in the order of their keys.
func trieOf(pairs []pair, depth int) *Node {
	if len(pairs) <= bucketMax {
		return bucketOf(pairs)
	}
	split := map[uint][]pair{}
	for _, p := range pairs {
		slot := nibble(tga.Sum([]byte(p.key)), depth)
		split[slot] = append(split[slot], p)
	}
	parts := map[uint]*Node{}
	for slot, pairs := range split {
		parts[slot] = trieOf(pairs, depth+1)
	}
	return join(parts, depth)
}

func partsOf(n *Node) map[uint]*Node {
	bits, parts, kid := binary.BigEndian.Uint16(n.data), map[uint]*Node{}, 0
	for slot := range uint(16) {
		if bits&(1<<slot) != 0 {
			parts[slot] = n.kids[kid]
			kid++
		}
	}
	return parts
}

func join(parts map[uint]*Node, depth int) *Node {
	var bits uint16
	var kids []*Node
	count := 0
	for _, slot := range slices.Sorted(maps.Keys(parts)) {
		bits |= 1 << slot
		kids = append(kids, parts[slot])
		count += trieCount(parts[slot])
	}
	if count <= bucketMax { // a removal left few enough keys for a bucket
		var pairs []pair
		for _, k := range kids {
			pairs = append(pairs, triePairs(k)...)
		}
		slices.SortFunc(pairs, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
		return trieOf(pairs, depth)
	}
	return NewNode(binary.AppendUvarint(binary.BigEndian.AppendUint16(nil, bits), uint64(count)), kids...)
}

// triePairs returns all pairs, in no order.
func triePairs(n *Node) []pair {
	if len(n.kids) == 0 {
		return mustPairs(n)
	}
	var pairs []pair
	for _, k := range n.kids {
		pairs = append(pairs, triePairs(k)...)
	}
	return pairs
}

// checkTrie says whether a node is a trie, to its last key.
func checkTrie(n *Node) error { return checkTrieAt(n, 0) }

func checkTrieAt(n *Node, depth int) error {
	if len(n.kids) == 0 {
		_, err := pairsOf(n)
		return err
	}
	bad := tga.Errorf(tga.StateChecksumMismatch, "node %s is no map of keys", n.digest)
	if len(n.data) < 3 || depth >= 2*len(n.digest) || popcount(binary.BigEndian.Uint16(n.data)) != len(n.kids) {
		return bad
	}
	count := 0
	for _, k := range n.kids {
		if err := checkTrieAt(k, depth+1); err != nil {
			return err
		}
		count += trieCount(k)
	}
	if trieCount(n) != count {
		return bad
	}
	return nil
}
