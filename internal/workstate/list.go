package workstate

import (
	"encoding/binary"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/tgad/tgad/schemas/tga"
)

// list is an immutable sequence of items in leaves. Where a leaf ends depends on the
// items alone, so lists that have a run of items in common share its leaves wherever in
// the list the run stands: an item removed at the front costs one leaf, not all.
//
// A leaf is a node without kids: uvarint count, then per item uvarint length and bytes.
// Above the leaves are nodes without data, cut by the same rule, up to one root.
type list struct {
	leaves []*Node
	count  int
	root   atomic.Pointer[Node] // made when asked for; whoever makes it makes the same
}

// Bounds of a leaf and of an inner node; both hold 64 on average.
const (
	leafItems = 512
	leafBytes = 64 << 10
	innerKids = 512
	cutMask   = 63
)

func cutItem(item []byte) bool {
	// FNV-1a: the cuts are part of the format, so no seeded hash will do.
	h := uint64(14695981039346656037)
	for _, c := range item {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return (h^h>>32)&cutMask == 0
}

func leafOf(items [][]byte) *Node {
	size := binary.MaxVarintLen32
	for _, item := range items {
		size += binary.MaxVarintLen32 + len(item)
	}
	b := binary.AppendUvarint(make([]byte, 0, size), uint64(len(items)))
	for _, item := range items {
		b = append(binary.AppendUvarint(b, uint64(len(item))), item...)
	}
	return NewNode(slices.Clip(b))
}

func leafCount(n *Node) int {
	count, _ := binary.Uvarint(n.data)
	return int(count)
}

// leafItemsOf yields the items of a leaf whose form was checked.
func leafItemsOf(n *Node) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		_, size := binary.Uvarint(n.data)
		for b := n.data[size:]; len(b) > 0; {
			length, size := binary.Uvarint(b)
			end := size + int(length)
			if !yield(b[size:end:end]) {
				return
			}
			b = b[end:]
		}
	}
}

// checkLeaf says whether a node has the form of a leaf.
func checkLeaf(n *Node) error {
	count, size := binary.Uvarint(n.data)
	bad := tga.Errorf(tga.StateChecksumMismatch, "node %s is no leaf of a list", n.digest)
	if size <= 0 || len(n.kids) > 0 {
		return bad
	}
	b := n.data[size:]
	for range count {
		length, size := binary.Uvarint(b)
		if size <= 0 || length > uint64(len(b)-size) {
			return bad
		}
		b = b[size+int(length):]
	}
	if len(b) > 0 {
		return bad
	}
	return nil
}

// emptyList is the list of no items.
var emptyList = &list{}

// append returns l with items at its end. Only the last leaf of l may change.
func (l *list) append(items [][]byte) *list {
	if len(items) == 0 {
		return l
	}
	out := &list{leaves: slices.Clone(l.leaves), count: l.count + len(items)}
	var open [][]byte
	if n := len(out.leaves); n > 0 && !leafClosed(out.leaves[n-1]) {
		open = slices.Collect(leafItemsOf(out.leaves[n-1]))
		out.leaves = out.leaves[:n-1]
	}
	out.cut(append(open, items...), len(open))
	return out
}

// listOf returns the list of items.
func listOf(items [][]byte) *list {
	out := &list{count: len(items)}
	out.cut(items, 0)
	return out
}

// cut makes leaves of items. The first open items are known not to end a leaf.
func (l *list) cut(items [][]byte, open int) {
	start, size := 0, 0
	for i, item := range items {
		size += len(item)
		if i >= open && closes(i-start+1, size, item) {
			l.leaves = append(l.leaves, leafOf(items[start:i+1]))
			start, size = i+1, 0
		}
	}
	if start < len(items) {
		l.leaves = append(l.leaves, leafOf(items[start:]))
	}
}

// closes says whether a leaf of count items and size bytes ends with its item last.
func closes(count, size int, last []byte) bool {
	return count >= leafItems || size >= leafBytes || cutItem(last)
}

func leafClosed(n *Node) bool {
	count, size := 0, 0
	var last []byte
	for item := range leafItemsOf(n) {
		count, size, last = count+1, size+len(item), item
	}
	return closes(count, size, last)
}

// all yields the items in order.
func (l *list) all() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, leaf := range l.leaves {
			for item := range leafItemsOf(leaf) {
				if !yield(item) {
					return
				}
			}
		}
	}
}

// last returns the last item, nil where there is none.
func (l *list) last() []byte {
	if len(l.leaves) == 0 {
		return nil
	}
	var last []byte
	for item := range leafItemsOf(l.leaves[len(l.leaves)-1]) {
		last = item
	}
	return last
}

// node returns the root of the list.
func (l *list) node() *Node {
	if root := l.root.Load(); root != nil {
		return root
	}
	level := l.leaves
	if len(level) == 0 {
		level = []*Node{leafOf(nil)}
	}
	for len(level) > 1 {
		var up []*Node
		start := 0
		for i, n := range level {
			if full := i-start+1 >= innerKids; full || i-start > 0 && n.digest[0]&cutMask == 0 || i == len(level)-1 {
				up = append(up, NewNode(nil, level[start:i+1:i+1]...))
				start = i + 1
			}
		}
		level = up
	}
	l.root.Store(level[0])
	return level[0]
}

// listFrom reads a list back from its root.
func listFrom(root *Node) (*list, error) {
	l := &list{}
	l.root.Store(root)
	var down func(*Node) error
	down = func(n *Node) error {
		if len(n.kids) == 0 {
			if err := checkLeaf(n); err != nil {
				return err
			}
			if count := leafCount(n); count > 0 {
				l.leaves, l.count = append(l.leaves, n), l.count+count
			}
			return nil
		}
		for _, k := range n.kids {
			if err := down(k); err != nil {
				return err
			}
		}
		return nil
	}
	return l, down(root)
}

// same says whether two lists have the same items.
func (l *list) same(m *list) bool {
	if l == m {
		return true
	}
	return l.count == m.count && slices.EqualFunc(l.leaves, m.leaves, func(a, b *Node) bool { return a.digest == b.digest })
}
